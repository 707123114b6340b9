"""`/ticks` and `/tick`: the contract of the tick service, kept."""

from __future__ import annotations

import msgspec
from litestar import get, post
from litestar.response.base import ASGIResponse

from penstock.api.grants import Scope
from penstock.api.http.answer import Answer
from penstock.api.http.answers import HttpRequest, json_answer, respond
from penstock.api.http.context import LIMITED, SMALL_BODY, Api, TheApi, read_body
from penstock.api.http.messages import put_as
from penstock.model.draft import Draft
from penstock.model.errors import InvalidMessage
from penstock.model.identity import is_key
from penstock.model.message import DEFAULT_ROUTE
from penstock.model.outcome import Receipt
from penstock.model.wire import read_json

TICKS_ROUTE = "ticks"
PATHS = ["/ticks", "/tick"]
"""Programs written for the tick service call either."""


class TickIn(msgspec.Struct, frozen=True):
    """Something to be told of at a moment."""

    item: str
    at: str


class TickOut(msgspec.Struct, frozen=True):
    id: str


class Healthy(msgspec.Struct, frozen=True):
    status: str = "ok"


_decoder = msgspec.json.Decoder(TickIn)
_encoder = msgspec.json.Encoder()


def decode_tick(body: bytes, route: str) -> Draft:
    """A tick → a message of its own: key = item, payload = the same structure."""
    tick = read_json(_decoder, body)
    if not is_key(tick.item):
        raise InvalidMessage("item", "must be 1-512 printable characters")
    return Draft(route=route, key=tick.item, at=tick.at, payload=msgspec.Raw(_encoder.encode(tick)))


def ticks_route(api: Api) -> str:
    return TICKS_ROUTE if TICKS_ROUTE in api.parts.routes else DEFAULT_ROUTE


def tick_answer(receipt: Receipt) -> Answer:
    return Answer(202, _encoder.encode(TickOut(receipt.id)))


@post(PATHS, status_code=202, opt=LIMITED)
async def create_tick(request: HttpRequest, api: TheApi) -> ASGIResponse:
    body = await read_body(request, api, most=SMALL_BODY, untyped=True)
    api.check_load()
    api.in_flight += 1
    try:
        receipt = await put_as(request.auth, api, decode_tick(body, ticks_route(api)))
    finally:
        api.in_flight -= 1
    return respond(tick_answer(receipt))


@get("/healthy", opt={"scope": Scope.OPEN})
async def healthy() -> ASGIResponse:
    return json_answer(Healthy())
