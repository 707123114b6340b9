"""`/v1/rooms`: waiting rooms, for operators, services and visitors.

Handlers; which verb each serves is in `penstock.api.verbs`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

import msgspec

from penstock.api.grants import Scope
from penstock.api.http.answer import Answer, Stream, json_answer
from penstock.api.http.context import SMALL_BODY, VISITOR_BODY, Api
from penstock.api.http.request import Request, page_limit, path_text
from penstock.api.http.room_shapes import (
    check_join,
    check_public_join,
    decode_enter,
    decode_heartbeat,
    decode_join,
)
from penstock.model.errors import Overloaded, PenstockError, Unauthorized, UnknownThing
from penstock.model.room import RoomState, decode_room
from penstock.model.room_view import RoomPage, room_out
from penstock.model.ticket import TicketState, check_user
from penstock.rooms.join import ticket_taken
from penstock.rooms.parts import RoomParts
from penstock.rooms.view import entered_out, ticket_out
from penstock.rooms.wait import Place

PAGE = 1000
STREAM_SECONDS = 2.0
"""Interval at which a visitor's stream sends at least a comment: a silent one looks dead."""
STATES = {
    "pause": RoomState.PAUSED,
    "resume": RoomState.OPEN,
    "open": RoomState.OPEN,
    "close": RoomState.CLOSED,
}
_encoder = msgspec.json.Encoder()


# --- operators ---


async def list_rooms(request: Request) -> Answer:
    wanted = request.query()
    limit = page_limit(wanted.get("limit"), 100, PAGE)
    rooms, after = await _parts(request.api).operate.page(wanted.get("cursor", ""), limit)
    return json_answer(RoomPage([room_out(figures) for figures in rooms], after))


async def put_room(request: Request) -> Answer:
    name = path_text(request.raw("room"))  # one that cannot be a room's is refused as invalid
    draft = decode_room(await request.body(most=SMALL_BODY))
    await _parts(request.api).operate.put(name, draft)
    request.api.audit.record(request.grant, "put", f"room {name}")
    return await _room_answer(request.api, name)


async def get_room(request: Request) -> Answer:
    return await _room_answer(request.api, request.arg("room"))


async def set_state(request: Request) -> Answer:
    """`pause`, `resume`, `open` and `close`."""
    name, word = request.arg("room"), request.verb.word
    await _parts(request.api).operate.set_state(name, STATES[word])
    request.api.audit.record(request.grant, word, f"room {name}")
    return await _room_answer(request.api, name)


async def reset_room(request: Request) -> Answer:
    name = request.arg("room")
    await _parts(request.api).operate.reset(name)
    request.api.audit.record(request.grant, "reset", f"room {name}")
    return await _room_answer(request.api, name)


async def enter_room(request: Request) -> Answer:
    wanted = decode_enter(await request.body(most=VISITOR_BODY))
    name = request.arg("room")
    ticket = await _parts(request.api).enter.enter(name, wanted.token)
    request.api.audit.count(request.grant, "enter", f"room {name}")
    return json_answer(entered_out(ticket))


async def revoke_ticket(request: Request) -> Answer:
    name = request.arg("room")
    ticket = await _parts(request.api).leave.revoke(name, request.arg("user"))
    request.api.audit.record(request.grant, "revoke", f"room {name} ticket {ticket.user}")
    return json_answer(entered_out(ticket))


# --- visitors: each of these checks for itself, a token or the ticket that a join returned ---


async def join_room(request: Request) -> Answer:
    parts, name = _parts(request.api), request.arg("room")
    has_token = _may(request, Scope.WRITE)
    if not has_token:
        await _check_public(parts, name, request)
    wanted = decode_join(await request.body(most=VISITOR_BODY))
    if not has_token:
        check_public_join(wanted)
    check_join(wanted)
    place = await parts.join.join(name, wanted.user, lane=wanted.lane, instance=wanted.instance)
    if has_token:
        request.api.audit.count(request.grant, "join", f"room {name}")
    elif not (place.new or _is_visitor(parts, place, request)):
        raise ticket_taken()
    return json_answer(ticket_out(place, secret=True))


async def get_ticket(request: Request) -> Answer:
    parts = _parts(request.api)
    name, user = request.arg("room"), request.arg("user")
    await _check_visitor(parts, name, user, request, Scope.READ)
    return json_answer(ticket_out(await parts.wait.look(name, user)))


async def watch_ticket(request: Request) -> Stream:
    """Server-sent events: `ticket` whenever something changed, until the visitor is admitted."""
    api, parts = request.api, _parts(request.api)
    name, user = request.arg("room"), request.arg("user")
    client = await _check_visitor(parts, name, user, request, Scope.READ)
    first = await parts.wait.look(name, user)
    api.visitors.check_streams(name, user, client)
    return Stream(
        _events(api, parts, first, client),
        ("cache-control", "no-store"),
        ("x-accel-buffering", "no"),  # for nginx, which would hold the news back
        media=request.verb.media,
    )


async def heartbeat(request: Request) -> Answer:
    parts, name = _parts(request.api), request.arg("room")
    if not _may(request, Scope.WRITE) and request.text("x-ticket") is None:
        raise _no_ticket()
    user = decode_heartbeat(await request.body(most=VISITOR_BODY)).user
    await _check_visitor(parts, name, check_user(user), request, Scope.WRITE)
    return json_answer(ticket_out(await parts.wait.heartbeat(name, user)))


async def leave_room(request: Request) -> Answer:
    parts = _parts(request.api)
    name, user = request.arg("room"), request.arg("user")
    await _check_visitor(parts, name, user, request, Scope.WRITE)
    ticket = await parts.leave.leave(name, user)
    if request.grant.scope >= Scope.WRITE:
        request.api.audit.count(request.grant, "leave", f"room {name}")
    return json_answer(entered_out(ticket))


# --- who may ---


def _may(request: Request, needed: Scope) -> bool:
    """True if the request has a token for it, or none is needed here."""
    sent = request.headers.get(b"authorization")
    try:
        grant = request.api.guard.check_token(sent, needed)
    except Unauthorized:
        if sent is not None:
            raise
        return False
    grant.check_unlimited(reading=needed is Scope.READ)
    return True


async def _check_public(parts: RoomParts, name: str, request: Request) -> None:
    """Check that the room is public; the rate limit comes first, since it protects the store."""
    api = request.api
    api.visitors.check_join(request.client, api.parts.settings.rooms.joins_per_client)
    if api.visitors.is_public(name):
        return
    (room,) = await parts.store.rooms([name])
    if room is None or not room.settings.public:
        raise Unauthorized("this room is not public: send a token: Authorization: Bearer …")
    api.visitors.found_public(name)


async def _check_visitor(
    parts: RoomParts, name: str, user: str, request: Request, needed: Scope
) -> str | None:
    """Check the ticket's secret of a visitor's own request; other callers need a token.

    Returns the visitor's address, or None for a caller with a token.
    """
    if _may(request, needed):
        return None
    refused = _no_ticket()
    if request.text("x-ticket") is None:
        raise refused
    client = request.client
    request.api.visitors.check_look(client)
    try:
        place = await parts.wait.look(name, user, alive=False)
    except UnknownThing as exc:
        raise refused from exc  # who is in line is private
    if not _is_visitor(parts, place, request):
        raise refused
    request.api.visitors.looked_rightly(name, user, client)
    return client


def _no_ticket() -> Unauthorized:
    return Unauthorized("send the ticket that the join returned: x-ticket: …")


def _is_visitor(parts: RoomParts, place: Place, request: Request) -> bool:
    sent = request.text("x-ticket")
    return sent is not None and parts.wait.is_visitor(sent, place)


# --- reading and telling ---


def _parts(api: Api) -> RoomParts:
    if api.rooms is None:
        raise UnknownThing("this store keeps no waiting rooms")
    return api.rooms


async def _room_answer(api: Api, name: str) -> Answer:
    return json_answer(room_out(await _parts(api).operate.get(name)))


GONE = b"event: gone\ndata: {}\n\n"
"""Ends a ticket's stream: the ticket does not exist any more, a new visit needs a new join."""


async def _events(
    api: Api, parts: RoomParts, place: Place, client: str | None
) -> AsyncGenerator[bytes, None]:
    """Send the ticket, wait until it may have changed, look again."""
    room, user = place.outlook.room.name, place.ticket.user
    last = b""
    with contextlib.suppress(Overloaded), api.visitors.watch(room, user, client) as rung:
        while True:
            news = _encoder.encode(ticket_out(place))
            yield b": still here\n\n" if news == last else b"event: ticket\ndata: " + news + b"\n\n"
            last = news
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
                return  # the client retries, and that answer has the reason
            if looked.secret != place.secret:
                yield GONE  # after a reset the name may be another visitor's
                return
            place = looked
