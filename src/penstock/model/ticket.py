"""A visitor's ticket, its states, and what came of what a visitor asked."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

import msgspec

from penstock.model.errors import InvalidMessage
from penstock.model.room import DEFAULT_LANE, Room, RoomState

MAX_USER = 200
MAX_INSTANCE = 200
KEEP_ENDED = 600_000
"""How long an ended ticket stays known, so that a late question gets a definite answer."""
KEEP_OUTSIDE = 3_600_000
"""How long a promoted ticket is known whose slot another program counts."""


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
    """A visitor's place in one room and epoch. A new visit after the end is a new ticket."""

    user: str
    state: TicketState
    lane: str = DEFAULT_LANE
    number: int = 0
    """The place in the order; it never changes while the visitor waits."""
    joined: int = 0
    ahead: int | None = None
    """While waiting: how many of the same lane come before. 0 is next."""
    seen: int | None = None
    """While waiting: the last sign of life; None for members another program put here."""
    promoted: int | None = None
    until: int | None = None
    """While admitted: claim_by. Once entered: when the session ends without a heartbeat."""
    entered: int | None = None
    pass_id: str = ""
    """Names this one admission: the `jti` of its entry token."""
    instance: str = "unknown"
    """Which of the broker's instances the visitor is connected to."""


class Outlook(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What an estimate of the wait needs to know of the room."""

    room: Room
    state: RoomState
    in_use: int
    waiting: dict[str, int]
    """People waiting, by lane."""
    a_minute: float = 0.0
    """Admissions in about the last minute; 0 when nothing is known."""

    @property
    def free(self) -> int:
        return max(0, self.room.settings.capacity - self.in_use)


class Looked(msgspec.Struct, frozen=True):
    """Tickets as they are, one for each user asked for, and the room around them."""

    tickets: list[Ticket | None]
    outlook: Outlook


class Joining(msgspec.Struct, frozen=True, gc=False):
    """Somebody who wants to line up."""

    user: str
    lane: str = DEFAULT_LANE
    instance: str = "unknown"


class JoinAnswer(StrEnum):
    NEW = "new"
    KNOWN = "known"  # was in line, admitted or inside already: the same ticket
    CLOSED = "closed"
    UNKNOWN_LANE = "unknown_lane"


class Joined(msgspec.Struct, frozen=True, gc=False):
    answer: JoinAnswer
    ticket: Ticket | None = None


class JoinedAll(msgspec.Struct, frozen=True):
    """One answer each, in order, and the room around them."""

    answers: list[Joined]
    outlook: Outlook


class EnterAnswer(StrEnum):
    ENTERED = "entered"
    USED = "used"  # this very token was redeemed before
    INVALID = "invalid"  # no admission of that id holds a slot now


class Redeemed(msgspec.Struct, frozen=True, gc=False):
    answer: EnterAnswer
    ticket: Ticket | None = None


class Promotion(msgspec.Struct, frozen=True, kw_only=True):
    """What one atomic step of one room did."""

    room: str
    admitted: Sequence[Ticket] = ()
    expired: int = 0
    """Tickets that ended because their time was over: claims, sessions and silent waiters."""
    more: bool = False
    """The step's limit ended it, not the lack of work: promote again at once."""
    look_at: int | None = None
    """The next moment at which time alone changes something here."""


class Entry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A promotion on its way to the visitor: one entry of the stream ENTRY."""

    id: str
    user: str
    room: str
    instance: str
    promoted: int
    """Epoch milliseconds (the stream itself keeps seconds)."""


class Dispatch(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What the visitor's instance is told: come in, with this token."""

    entry: Entry
    token: str
