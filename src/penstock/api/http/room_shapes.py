"""Rooms and tickets as they look on the wire."""

from __future__ import annotations

from typing import TypeVar

import msgspec

from penstock.model.admission import Eta
from penstock.model.draft import wire_error
from penstock.model.room import DEFAULT_LANE, Room, RoomFigures, RoomState
from penstock.model.ticket import Ticket, TicketState
from penstock.model.times import format_duration, format_moment
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


class RoomOut(msgspec.Struct, frozen=True, kw_only=True):
    """A room's settings and figures."""

    room: str
    state: RoomState
    epoch: int
    capacity: int
    admit_rate: str | None
    claim_ttl: str | None
    session_ttl: str | None
    wait_grace: str | None
    lanes: dict[str, int]
    lottery: bool
    opens_at: str | None
    public: bool
    in_use: int
    free: int
    waiting: int
    admitted: int
    entered: int
    left: int
    expired: int
    revoked: int
    joined: int
    promoted: int
    promoted_a_minute: float


class RoomNames(msgspec.Struct, frozen=True):
    items: list[str]
    next: str | None


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


def room_out(room: Room, figures: RoomFigures) -> RoomOut:
    settings = room.settings
    return RoomOut(
        room=room.name,
        state=figures.state,
        epoch=figures.epoch,
        capacity=settings.capacity,
        admit_rate=None if settings.admit_rate is None else str(settings.admit_rate),
        claim_ttl=_duration(settings.claim_ttl),
        session_ttl=_duration(settings.session_ttl),
        wait_grace=_duration(settings.wait_grace),
        lanes=settings.lanes,
        lottery=settings.lottery,
        opens_at=None if settings.opens_at is None else format_moment(settings.opens_at),
        public=settings.public,
        in_use=figures.in_use,
        free=max(0, settings.capacity - figures.in_use),
        waiting=figures.waiting,
        admitted=figures.admitted,
        entered=figures.entered,
        left=figures.left,
        expired=figures.expired,
        revoked=figures.revoked,
        joined=figures.joined,
        promoted=figures.promoted,
        promoted_a_minute=round(figures.a_minute, 3),
    )


def _duration(millis: int | None) -> str | None:
    return None if millis is None else format_duration(millis)
