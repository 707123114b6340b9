"""Rooms and tickets as shown to callers."""

from __future__ import annotations

import msgspec

from penstock.model.room import RoomFigures, RoomState
from penstock.model.room_admission import Eta
from penstock.model.ticket import TicketState
from penstock.model.times import format_duration, format_moment


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
    joined_total: int
    """These four count over every epoch: they never decrease, not even by a reset."""
    promoted_total: int
    left_total: int
    expired_total: int


class RoomPage(msgspec.Struct, frozen=True):
    """Rooms by name; `next` is the cursor of the following page, null on the last."""

    items: list[RoomOut]
    next: str | None


class TicketOut(msgspec.Struct, frozen=True, kw_only=True):
    """A visitor's ticket. Fields that do not apply are null."""

    user: str
    state: TicketState
    position: int | None
    """1 is next; null when not waiting, or before a lottery is drawn."""
    ahead: int | None
    eta: Eta | None
    """Seconds, as a range; null while it is unknown."""
    poll_after_ms: int
    lane: str
    room: str
    room_state: RoomState
    waiting: int
    """Visitors waiting in the lane."""
    joined: str
    token: str | None = None
    """While ADMITTED: the token that redeems the admission, once."""
    claim_by: str | None = None
    session_expires: str | None = None
    ticket: str | msgspec.UnsetType = msgspec.UNSET
    """Only in the answer to a join: proves that a later request is the visitor's own."""


class EnteredOut(msgspec.Struct, frozen=True, kw_only=True):
    user: str
    state: TicketState
    session_expires: str | None


class RoomCurves(msgspec.Struct, frozen=True, kw_only=True):
    """A room's figures at each look, newest last; null where they are unknown."""

    waiting: list[int | None]
    inside: list[int | None]
    """Visitors admitted, whether or not they have entered yet."""
    capacity: list[int | None]


class RoomHistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """Curves of equal length, for the rooms that existed at the newest look."""

    step: int
    """Seconds between two looks."""
    from_: str = msgspec.field(name="from")
    """The moment of the first look."""
    rooms: dict[str, RoomCurves]


def room_out(figures: RoomFigures) -> RoomOut:
    settings, before = figures.room.settings, figures.before
    return RoomOut(
        room=figures.room.name,
        state=figures.state,
        epoch=figures.room.epoch,
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
        joined_total=before.joined + figures.joined,
        promoted_total=before.promoted + figures.promoted,
        left_total=before.left + figures.left,
        expired_total=before.expired + figures.expired,
    )


def page_of(shown: RoomPage) -> tuple[list[RoomOut], str | None]:
    return shown.items, shown.next


def _duration(millis: int | None) -> str | None:
    return None if millis is None else format_duration(millis)
