"""Rooms and tickets as they look on the wire."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from penstock.model.admission import Eta
from penstock.model.draft import wire_error
from penstock.model.room import DEFAULT_LANE, RoomState
from penstock.model.ticket import Ticket, TicketState
from penstock.model.times import format_moment
from penstock.rooms.wait import Place


class JoinIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    user: str
    lane: str = DEFAULT_LANE
    instance: str | None = None
    """Where the visitor is connected; passed on with the promotion."""


class HeartbeatIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    user: str


class EnterIn(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    token: str


_Wire = TypeVar("_Wire", JoinIn, HeartbeatIn, EnterIn)
_join = msgspec.json.Decoder(JoinIn)
_heartbeat = msgspec.json.Decoder(HeartbeatIn)
_enter = msgspec.json.Decoder(EnterIn)


def decode_join(body: bytes) -> JoinIn:
    return _decode(_join, body)


def decode_heartbeat(body: bytes) -> HeartbeatIn:
    return _decode(_heartbeat, body)


def decode_enter(body: bytes) -> EnterIn:
    return _decode(_enter, body)


def _decode(decoder: msgspec.json.Decoder[_Wire], body: bytes) -> _Wire:
    try:
        return decoder.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as exc:
        raise wire_error(exc) from exc


class TicketOut(msgspec.Struct, frozen=True, kw_only=True):
    """A visitor's place. What does not apply is null."""

    user: str
    state: TicketState
    position: int | None
    """1 is next; null when not waiting, or before a lottery is drawn."""
    ahead: int | None
    eta: Eta | None
    """Seconds, as a range; null while nobody can know."""
    poll_after_ms: int
    lane: str
    room: str
    room_state: RoomState
    waiting: int
    """People waiting in the lane."""
    joined: str
    token: str | None = None
    """While ADMITTED: lets the visitor in, once."""
    claim_by: str | None = None
    session_expires: str | None = None
    ticket: str | msgspec.UnsetType = msgspec.UNSET
    """Only in the answer to a join: shows that a request is the visitor's own."""


class EnteredOut(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    state: TicketState
    session_expires: str | None


def ticket_out(place: Place, *, secret: bool = False) -> TicketOut:
    ticket, outlook = place.ticket, place.outlook
    until = None if ticket.until is None else format_moment(ticket.until)
    return TicketOut(
        user=ticket.user,
        state=ticket.state,
        position=None if place.ahead is None else place.ahead + 1,
        ahead=place.ahead,
        eta=place.eta,
        poll_after_ms=place.poll_after,
        lane=ticket.lane,
        room=outlook.room.name,
        room_state=outlook.state,
        waiting=outlook.waiting.get(ticket.lane, 0),
        joined=format_moment(ticket.joined),
        token=place.token,
        claim_by=until if ticket.state is TicketState.ADMITTED else None,
        session_expires=until if ticket.state is TicketState.ENTERED else None,
        ticket=place.secret if secret else msgspec.UNSET,
    )


def hidden(place: Place) -> Place:
    """The place without what only the visitor may have."""
    return msgspec.structs.replace(place, token=None)


def entered_out(ticket: Ticket) -> EnteredOut:
    until = None if ticket.until is None else format_moment(ticket.until)
    return EnteredOut(user=ticket.user, state=ticket.state, session_expires=until)
