"""`/v1/rooms`: waiting rooms, for operators, services and visitors."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from urllib.parse import unquote_to_bytes

import msgspec
from litestar import delete, get, post, put
from litestar.handlers import HTTPRouteHandler
from litestar.params import FromPath
from litestar.response import Stream
from litestar.response.base import ASGIResponse

from penstock.api.access import Scope
from penstock.api.http.answers import HttpRequest, json_answer
from penstock.api.http.auth import header
from penstock.api.http.context import Api, TheApi, page_limit, query, read_body
from penstock.api.http.room_shapes import (
    check_join,
    check_public_join,
    decode_enter,
    decode_heartbeat,
    decode_join,
)
from penstock.model.errors import PenstockError, Unauthorized, UnknownThing
from penstock.model.room import RoomState, decode_room, is_room_name
from penstock.model.room_view import RoomPage, room_out
from penstock.model.ticket import TicketState, check_user
from penstock.rooms.parts import RoomParts
from penstock.rooms.view import entered_out, hidden, ticket_out
from penstock.rooms.wait import Place

VISITOR = {"scope": Scope.OPEN, "visitor": True}
"""Each of these checks for itself: a token, or the ticket that a join returned."""
ADMIN = {"scope": Scope.ADMIN}
PAGE = 1000
STREAM_SECONDS = 2.0
"""How often a visitor's stream says something at least: a silent one looks dead."""
_LIST = frozenset({"cursor", "limit"})
_encoder = msgspec.json.Encoder()


# --- operators ---


@get("/v1/rooms")
async def list_rooms(request: HttpRequest, api: TheApi) -> ASGIResponse:
    asked = query(request, _LIST)
    limit = page_limit(asked.get("limit"), 100, PAGE)
    rooms, after = await _parts(api).operate.page(asked.get("cursor", ""), limit)
    return json_answer(RoomPage([room_out(figures) for figures in rooms], after))


@put("/v1/rooms/{room:str}", opt=ADMIN)
async def put_room(room: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    name = _text(room)
    draft = decode_room(await read_body(request, api))
    await _parts(api).operate.put(name, draft)
    return await _room_answer(api, name)


@get("/v1/rooms/{room:str}")
async def get_room(room: FromPath[str], api: TheApi) -> ASGIResponse:
    return await _room_answer(api, _name(room))


def _state_change(word: str, state: RoomState) -> HTTPRouteHandler:
    async def change(room: FromPath[str], api: TheApi) -> ASGIResponse:
        name = _name(room)
        await _parts(api).operate.set_state(name, state)
        return await _room_answer(api, name)

    change.__name__ = f"{word}_room"
    return post(f"/v1/rooms/{{room:str}}/{word}", status_code=200, opt=ADMIN)(change)


STATE_CHANGES = [
    _state_change("pause", RoomState.PAUSED),
    _state_change("resume", RoomState.OPEN),
    _state_change("open", RoomState.OPEN),
    _state_change("close", RoomState.CLOSED),
]


@post("/v1/rooms/{room:str}/reset", status_code=200, opt=ADMIN)
async def reset_room(room: FromPath[str], api: TheApi) -> ASGIResponse:
    name = _name(room)
    await _parts(api).operate.reset(name)
    return await _room_answer(api, name)


@post("/v1/rooms/{room:str}/enter", status_code=200)
async def enter_room(room: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    asked = decode_enter(await read_body(request, api))
    ticket = await _parts(api).enter.enter(_name(room), asked.token)
    return json_answer(entered_out(ticket))


@post("/v1/rooms/{room:str}/tickets/{user:str}/revoke", status_code=200, opt=ADMIN)
async def revoke_ticket(room: FromPath[str], user: FromPath[str], api: TheApi) -> ASGIResponse:
    ticket = await _parts(api).leave.revoke(_name(room), _text(user))
    return json_answer(entered_out(ticket))


# --- visitors ---


@post("/v1/rooms/{room:str}/join", status_code=200, opt=VISITOR)
async def join_room(room: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    parts = _parts(api)
    name = _name(room)
    asked = decode_join(await read_body(request, api))
    if not _may(request, api, Scope.WRITE):
        await _check_public(parts, name, request, api)
        check_public_join(asked)
    check_join(asked)
    place = await parts.join.join(name, asked.user, lane=asked.lane, instance=asked.instance)
    # Whoever names a user that has a ticket already is not thereby that user.
    own = place.new or _may(request, api, Scope.WRITE) or _is_visitor(parts, place, request)
    return json_answer(ticket_out(place, secret=True) if own else ticket_out(hidden(place)))


@get("/v1/rooms/{room:str}/tickets/{user:str}", opt=VISITOR)
async def get_ticket(
    room: FromPath[str], user: FromPath[str], request: HttpRequest, api: TheApi
) -> ASGIResponse:
    parts = _parts(api)
    name, who = _name(room), _text(user)
    await _check_visitor(parts, name, who, request, api, Scope.READ)
    return json_answer(ticket_out(await parts.wait.look(name, who)))


@get("/v1/rooms/{room:str}/tickets/{user:str}/events", opt=VISITOR)
async def watch_ticket(
    room: FromPath[str], user: FromPath[str], request: HttpRequest, api: TheApi
) -> Stream:
    """Server-sent events: `ticket` whenever something changed, until the turn has come."""
    parts = _parts(api)
    name, who = _name(room), _text(user)
    await _check_visitor(parts, name, who, request, api, Scope.READ)
    first = await parts.wait.look(name, who)
    api.visitors.check_streams()
    return Stream(
        _events(api, parts, first),
        media_type="text/event-stream",
        # The second is for nginx, which would hold the news back.
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


@post("/v1/rooms/{room:str}/heartbeat", status_code=200, opt=VISITOR)
async def heartbeat(room: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    parts = _parts(api)
    name = _name(room)
    user = decode_heartbeat(await read_body(request, api)).user
    await _check_visitor(parts, name, check_user(user), request, api, Scope.WRITE)
    return json_answer(ticket_out(await parts.wait.heartbeat(name, user)))


@delete("/v1/rooms/{room:str}/tickets/{user:str}", status_code=200, opt=VISITOR)
async def leave_room(
    room: FromPath[str], user: FromPath[str], request: HttpRequest, api: TheApi
) -> ASGIResponse:
    parts = _parts(api)
    name, who = _name(room), _text(user)
    await _check_visitor(parts, name, who, request, api, Scope.WRITE)
    ticket = await parts.leave.leave(name, who)
    return json_answer(entered_out(ticket))


# --- who may ---


def _may(request: HttpRequest, api: Api, needed: Scope) -> bool:
    """Whether the request has a token for it, or none is needed here."""
    given = header(request.scope["headers"], b"authorization")
    try:
        api.guard.check_token(given, needed)
    except Unauthorized:
        if given is not None:
            raise
        return False
    return True


async def _check_public(parts: RoomParts, name: str, request: HttpRequest, api: Api) -> None:
    (room,) = await parts.store.rooms([name])
    if room is None or not room.settings.public:
        raise Unauthorized("this room is not public: send a token: Authorization: Bearer …")
    api.visitors.found_public(name)
    client = request.scope["client"]
    address = "" if client is None else client[0]
    api.visitors.check_join(address, api.parts.settings.rooms.joins_per_client)


async def _check_visitor(
    parts: RoomParts, name: str, user: str, request: HttpRequest, api: Api, needed: Scope
) -> None:
    """A visitor's own request carries the ticket's secret; others need a token."""
    if _may(request, api, needed):
        return
    refused = Unauthorized("send the ticket that the join returned: x-ticket: …")
    try:
        place = await parts.wait.look(name, user, alive=False)
    except UnknownThing as exc:
        raise refused from exc  # who is in line is nobody else's business
    if not _is_visitor(parts, place, request):
        raise refused


def _is_visitor(parts: RoomParts, place: Place, request: HttpRequest) -> bool:
    given = header(request.scope["headers"], b"x-ticket")
    return given is not None and parts.wait.is_visitor(given.decode("latin-1"), place)


# --- reading and telling ---


def _parts(api: Api) -> RoomParts:
    if api.rooms is None:
        raise UnknownThing("this store keeps no waiting rooms")
    return api.rooms


def _text(raw: str) -> str:
    """One raw path segment, percent-decoded exactly once."""
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as exc:
        raise UnknownThing("no such path: it is not UTF-8") from exc


def _name(raw: str) -> str:
    name = _text(raw)
    if not is_room_name(name):
        raise UnknownThing(f"no room named {name[:100]!r}", field="room")
    return name


async def _room_answer(api: Api, name: str) -> ASGIResponse:
    return json_answer(room_out(await _parts(api).operate.get(name)))


async def _events(api: Api, parts: RoomParts, place: Place) -> AsyncIterator[bytes]:
    """Tells, waits for the turn or a moment, looks again."""
    room, user = place.outlook.room.name, place.ticket.user
    told = b""
    with api.visitors.watch(room, user) as rung:
        while True:
            news = _encoder.encode(ticket_out(place))
            yield b": still here\n\n" if news == told else b"event: ticket\ndata: " + news + b"\n\n"
            told = news
            if place.ticket.state is not TicketState.WAITING or api.closing.is_set():
                return
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(rung.wait(), min(STREAM_SECONDS, place.poll_after / 1000))
            rung.clear()
            try:
                place = await parts.wait.look(room, user)
            except PenstockError:
                return  # the client asks again, and is told why
