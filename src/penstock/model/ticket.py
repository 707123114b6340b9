"""A visitor's ticket, its states, and the answers to a visitor's requests."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from penstock.model.errors import InvalidMessage
from penstock.model.room import DEFAULT_LANE, Room, RoomState

MAX_USER = 200
MAX_INSTANCE = 200
KEEP_ENDED = 600_000
"""How long an ended ticket stays stored, so that a late request gets a definite answer."""
KEEP_OUTSIDE = 3_600_000
"""How long a promoted ticket is stored if its slot is counted by another program."""


def check_user(text: str, field: str = "user") -> str:
    if not (1 <= len(text) <= MAX_USER and text.isprintable()):
        raise InvalidMessage(field, f"must be 1-{MAX_USER} printable characters")
    return text


class TicketState(StrEnum):
    WAITING = "WAITING"
    ADMITTED = "ADMITTED"  # holds a slot until claim_by
    ENTERED = "ENTERED"  # holds the slot for the session
    LEFT = "LEFT"
    EXPIRED = "EXPIRED"
    REVOKED = "REVOKED"


_ENDS = frozenset({TicketState.LEFT, TicketState.EXPIRED, TicketState.REVOKED})
TRANSITIONS: dict[TicketState, frozenset[TicketState]] = {
    TicketState.WAITING: _ENDS | {TicketState.ADMITTED},
    TicketState.ADMITTED: _ENDS | {TicketState.ENTERED},
    TicketState.ENTERED: _ENDS,
    TicketState.LEFT: frozenset(),
    TicketState.EXPIRED: frozenset(),
    TicketState.REVOKED: frozenset(),
}
LIVE = frozenset(TicketState) - _ENDS
HOLDS_SLOT = frozenset({TicketState.ADMITTED, TicketState.ENTERED})


class Ticket(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A visitor's ticket in one room and epoch. A new visit after the end is a new ticket."""

    user: str
    state: TicketState
    lane: str = DEFAULT_LANE
    number: int = 0
    """The position in the order; it never changes while the visitor waits."""
    joined: int = 0
    ahead: int | None = None
    """While waiting: visitors ahead in the same lane. 0 is next."""
    seen: int | None = None
    """While waiting: the last sign of life; None for members that another program queued."""
    promoted: int | None = None
    until: int | None = None
    """While admitted: claim_by. Once entered: when the session ends without a heartbeat."""
    entered: int | None = None
    pass_id: str = ""
    """The id of this one admission: the `jti` of its entry token."""
    instance: str = "unknown"
    """The broker instance that the visitor is connected to."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The room's facts that an estimate of the wait uses."""

    room: Room
    state: RoomState
    in_use: int
    waiting: dict[str, int]
    """Visitors waiting, by lane."""
    a_minute: float = 0.0
    """Admissions in about the last minute; 0 if unknown."""

    @property
    def free(self) -> int:
        return max(0, self.room.settings.capacity - self.in_use)


class Looked(msgspec.Struct, frozen=True):
    """The current tickets, one for each requested user, and their room."""

    tickets: list[Ticket | None]
    outlook: Outlook


class Joining(msgspec.Struct, frozen=True, gc=False):
    """A visitor who wants to join."""

    user: str
    lane: str = DEFAULT_LANE
    instance: str = "unknown"


class JoinAnswer(StrEnum):
    NEW = "new"
    KNOWN = "known"  # was waiting, admitted or entered already: the same ticket
    CLOSED = "closed"
    UNKNOWN_LANE = "unknown_lane"


class Joined(msgspec.Struct, frozen=True, gc=False):
    answer: JoinAnswer
    ticket: Ticket | None = None


class JoinedAll(msgspec.Struct, frozen=True):
    """One answer per visitor, in order, and their room."""

    answers: list[Joined]
    outlook: Outlook


class EnterAnswer(StrEnum):
    ENTERED = "entered"
    USED = "used"  # this token was redeemed before
    INVALID = "invalid"  # no admission of that id holds a slot now


class Redeemed(msgspec.Struct, frozen=True, gc=False):
    answer: EnterAnswer
    ticket: Ticket | None = None


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one atomic step of one room."""

    room: str
    admitted: Sequence[Ticket] = ()
    expired: int = 0
    """Tickets that ran out: claims, sessions and silent waiters."""
    more: bool = False
    """True if the step's limit ended it, not the lack of work: promote again at once."""
    look_at: int | None = None
    """The next moment at which the passing of time alone changes the room."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """An admission on its way to the visitor: one entry of the stream ENTRY."""

    id: str
    user: str
    room: str
    instance: str
    promoted: int
    """Epoch milliseconds (the stream itself keeps seconds)."""


class Dispatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """The message to the visitor's instance: the visitor may enter, with this token."""

    entry: Entry
    token: str
