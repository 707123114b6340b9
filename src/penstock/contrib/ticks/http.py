"""`/ticks` and `/tick`: the contract of the tick service, mounted beside the core's verbs."""

from __future__ import annotations

import msgspec

from penstock.api.http.answer import Answer, json_answer
from penstock.api.http.context import SMALL_BODY, Api
from penstock.api.http.hot_route import HotRoute
from penstock.api.http.messages import put_as
from penstock.api.http.request import Request
from penstock.api.verbs import WRITE, Mount, Verb
from penstock.model.draft import Draft, is_key
from penstock.model.errors import InvalidMessage
from penstock.model.message import DEFAULT_ROUTE
from penstock.model.outcome import Receipt
from penstock.model.wire import read_json

TICKS_ROUTE = "ticks"

# fmt: off
MOUNT = Mount(
    name="ticks",
    verbs=(
        Verb("healthy", "GET", "/healthy", "open", "penstock.contrib.ticks.http:healthy",
             "Ticks", "The process is up, as the tick service says it",
             answers={200: ("Up", "Healthy")}),
        Verb("tick", "POST", "/ticks", "write", "penstock.contrib.ticks.http:create_tick",
             "Ticks", "Tell about an item at a moment",
             body="Tick", answers={202: ("Accepted", "TickId")}, failures=WRITE, limited=True),
        Verb("tick_as_before", "POST", "/tick", "write", "penstock.contrib.ticks.http:create_tick",
             "Ticks", "The same as /ticks",
             body="Tick", answers={202: ("Accepted", "TickId")}, failures=WRITE, limited=True),
    ),
    schemas={
        "Healthy": "penstock.contrib.ticks.http:Healthy",
        "Tick": "penstock.contrib.ticks.http:TickIn",
        "TickId": "penstock.contrib.ticks.http:TickOut",
    },
    fields={"Tick": {
        "item": {"type": "string", "minLength": 1, "maxLength": 512},
        "at": {"type": "string", "format": "date-time",
               "description": "RFC 3339 with an offset, 1970 to 9999.",
               "examples": ["2030-01-31T09:00:00+02:00"]},
    }},
    examples={"Tick": {"item": "user1234", "at": "2030-01-31T09:00:00Z"}},
    hot="penstock.contrib.ticks.http:hot_routes",
)
# fmt: on


class TickIn(msgspec.Struct, frozen=True):
    """An item and the moment of its message."""

    item: str
    at: str


class TickOut(msgspec.Struct, frozen=True):
    id: str


class Healthy(msgspec.Struct, frozen=True):
    status: str = "ok"


_decoder = msgspec.json.Decoder(TickIn)
_encoder = msgspec.json.Encoder()


def hot_routes(api: Api) -> dict[str, HotRoute[Draft, Receipt]]:
    """Both paths as hot routes: programs written for the tick service call either."""
    route = _route(api)
    hot = HotRoute(
        lambda body: decode_tick(body, route),
        api.parts.intake.submit,
        tick_answer,
        max_body=SMALL_BODY,
        untyped=True,
    )
    return {"/ticks": hot, "/tick": hot}


def decode_tick(body: bytes, route: str) -> Draft:
    """A tick → a message of its own: key = item, payload = the same structure."""
    tick = read_json(_decoder, body)
    if not is_key(tick.item):
        raise InvalidMessage("item", "must be 1-512 printable characters")
    return Draft(route=route, key=tick.item, at=tick.at, payload=msgspec.Raw(_encoder.encode(tick)))


def tick_answer(receipt: Receipt) -> Answer:
    return Answer(202, _encoder.encode(TickOut(receipt.id)))


async def create_tick(request: Request) -> Answer:
    api = request.api
    body = await request.body(most=SMALL_BODY, untyped=True)
    api.check_load()
    api.in_flight += 1
    try:
        receipt = await put_as(request.grant, api, decode_tick(body, _route(api)))
    finally:
        api.in_flight -= 1
    return tick_answer(receipt)


async def healthy(request: Request) -> Answer:
    del request
    return json_answer(Healthy())


def _route(api: Api) -> str:
    return TICKS_ROUTE if TICKS_ROUTE in api.parts.routes else DEFAULT_ROUTE
