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

from penstock.api.grants import Scope
from penstock.api.http.answers import HttpRequest, json_answer
from penstock.api.http.auth import header
from penstock.api.http.context import (
    SMALL_BODY,
    VISITOR_BODY,
    Api,
    TheApi,
    client_of,
    page_limit,
    query,
    read_body,
)
from penstock.api.http.room_shapes import (
    check_join,
    check_public_join,
    decode_enter,
    decode_heartbeat,
    decode_join,
)
from penstock.model.errors import Overloaded, PenstockError, Unauthorized, UnknownThing
from penstock.model.room import RoomState, decode_room, is_room_name
from penstock.model.room_view import RoomPage, room_out
from penstock.model.ticket import TicketState, check_user
from penstock.rooms.join import ticket_taken
from penstock.rooms.parts import RoomParts
from penstock.rooms.view import entered_out, ticket_out
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
    draft = decode_room(await read_body(request, api, most=SMALL_BODY))
    await _parts(api).operate.put(name, draft)
    api.audit.record(request.auth, "put", f"room {name}")
    return await _room_answer(api, name)


@get("/v1/rooms/{room:str}")
async def get_room(room: FromPath[str], api: TheApi) -> ASGIResponse:
    return await _room_answer(api, _name(room))


def _state_change(word: str, state: RoomState) -> HTTPRouteHandler:
    async def change(room: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
        name = _name(room)
        await _parts(api).operate.set_state(name, state)
        api.audit.record(request.auth, word, f"room {name}")
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
async def reset_room(room: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    name = _name(room)
    await _parts(api).operate.reset(name)
    api.audit.record(request.auth, "reset", f"room {name}")
    return await _room_answer(api, name)


@post("/v1/rooms/{room:str}/enter", status_code=200)
async def enter_room(room: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    asked = decode_enter(await read_body(request, api, most=VISITOR_BODY))
    name = _name(room)
    ticket = await _parts(api).enter.enter(name, asked.token)
    api.audit.count(request.auth, "enter", f"room {name}")
    return json_answer(entered_out(ticket))


@post("/v1/rooms/{room:str}/tickets/{user:str}/revoke", status_code=200, opt=ADMIN)
async def revoke_ticket(
    room: FromPath[str], user: FromPath[str], request: HttpRequest, api: TheApi
) -> ASGIResponse:
    name = _name(room)
    ticket = await _parts(api).leave.revoke(name, _text(user))
    api.audit.record(request.auth, "revoke", f"room {name} ticket {ticket.user}")
    return json_answer(entered_out(ticket))


# --- visitors ---


@post("/v1/rooms/{room:str}/join", status_code=200, opt=VISITOR)
async def join_room(room: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    parts = _parts(api)
    name = _name(room)
    has_token = _may(request, api, Scope.WRITE)
    if not has_token:
        await _check_public(parts, name, request, api)
    asked = decode_join(await read_body(request, api, most=VISITOR_BODY))
    if not has_token:
        check_public_join(asked)
    check_join(asked)
    place = await parts.join.join(name, asked.user, lane=asked.lane, instance=asked.instance)
    if has_token:
        api.audit.count(request.auth, "join", f"room {name}")
    elif not (place.new or _is_visitor(parts, place, request)):
        raise ticket_taken()
    return json_answer(ticket_out(place, secret=True))


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
    client = await _check_visitor(parts, name, who, request, api, Scope.READ)
    first = await parts.wait.look(name, who)
    api.visitors.check_streams(name, who, client)
    return Stream(
        _events(api, parts, first, client),
        media_type="text/event-stream",
        # The second is for nginx, which would hold the news back.
        headers={"cache-control": "no-store", "x-accel-buffering": "no"},
    )


@post("/v1/rooms/{room:str}/heartbeat", status_code=200, opt=VISITOR)
async def heartbeat(room: FromPath[str], request: HttpRequest, api: TheApi) -> ASGIResponse:
    parts = _parts(api)
    name = _name(room)
    if not _may(request, api, Scope.WRITE) and _ticket_sent(request) is None:
        raise _no_ticket()
    user = decode_heartbeat(await read_body(request, api, most=VISITOR_BODY)).user
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
    if request.auth.scope >= Scope.WRITE:
        api.audit.count(request.auth, "leave", f"room {name}")
    return json_answer(entered_out(ticket))


# --- who may ---


def _may(request: HttpRequest, api: Api, needed: Scope) -> bool:
    """Whether the request has a token for it, or none is needed here."""
    given = header(request.scope["headers"], b"authorization")
    try:
        grant = api.guard.check_token(given, needed)
    except Unauthorized:
        if given is not None:
            raise
        return False
    grant.check_unlimited(reading=needed is Scope.READ)
    return True


async def _check_public(parts: RoomParts, name: str, request: HttpRequest, api: Api) -> None:
    """The rate first: it is what keeps strangers from asking the store."""
    api.visitors.check_join(client_of(request, api), api.parts.settings.rooms.joins_per_client)
    if api.visitors.is_public(name):
        return
    (room,) = await parts.store.rooms([name])
    if room is None or not room.settings.public:
        raise Unauthorized("this room is not public: send a token: Authorization: Bearer …")
    api.visitors.found_public(name)


async def _check_visitor(
    parts: RoomParts, name: str, user: str, request: HttpRequest, api: Api, needed: Scope
) -> str | None:
    """A visitor's own request carries the ticket's secret; others need a token.

    The visitor's address, or None for a caller with a token.
    """
    if _may(request, api, needed):
        return None
    refused = _no_ticket()
    if _ticket_sent(request) is None:
        raise refused
    client = client_of(request, api)
    api.visitors.check_look(client)
    try:
        place = await parts.wait.look(name, user, alive=False)
    except UnknownThing as exc:
        raise refused from exc  # who is in line is nobody else's business
    if not _is_visitor(parts, place, request):
        raise refused
    api.visitors.looked_rightly(name, user, client)
    return client


def _no_ticket() -> Unauthorized:
    return Unauthorized("send the ticket that the join returned: x-ticket: …")


def _ticket_sent(request: HttpRequest) -> bytes | None:
    return header(request.scope["headers"], b"x-ticket")


def _is_visitor(parts: RoomParts, place: Place, request: HttpRequest) -> bool:
    given = _ticket_sent(request)
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


GONE = b"event: gone\ndata: {}\n\n"
"""Ends a ticket's stream: the ticket does not exist any more, a new visit needs a new join."""


async def _events(
    api: Api, parts: RoomParts, place: Place, client: str | None
) -> AsyncIterator[bytes]:
    """Tells, waits for the turn or a moment, looks again."""
    room, user = place.outlook.room.name, place.ticket.user
    told = b""
    with contextlib.suppress(Overloaded), api.visitors.watch(room, user, client) as rung:
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
                looked = await parts.wait.look(room, user)
            except UnknownThing:
                yield GONE
                return
            except PenstockError:
                return  # the client asks again, and that answer says why
            if looked.secret != place.secret:
                yield GONE  # after a reset the name may be another visitor's
                return
            place = looked
