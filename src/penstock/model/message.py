"""A message: what is asked for (NewMessage) and what is held (Message)."""

from __future__ import annotations

from enum import StrEnum

import msgspec

from penstock.model.state import State
from penstock.model.verdict import Decided

JSON = "application/json"
DEFAULT_ROUTE = "default"
DEFAULT_PRIORITY = 5
MAX_PAYLOAD = 256 * 1024


class OnConflict(StrEnum):
    """What a put with a known id does while the first is still scheduled."""

    KEEP = "keep"  # the first stays as it is
    REPLACE = "replace"  # the new one takes its place
    EARLIEST = "earliest"  # whichever is due first stays


class Labels(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """What policies look at, frozen when the message is accepted."""

    channel: str | None = None
    campaign: str | None = None
    class_: str | None = msgspec.field(name="class", default=None)
    tags: tuple[str, ...] = ()
    tz: str | None = None
    keys: tuple[str, ...] = ()
    """Whom the message concerns besides its `key`: caps count it for each of them, and it waits
    while any of them is over a cap."""


class NewMessage(msgspec.Struct, frozen=True, gc=False):
    """A validated message on its way into the store.

    By keyword except where every microsecond counts: in place, it is made four times as fast.
    """

    id: str
    route: str
    key: str
    payload: bytes
    due: int
    content_type: str = JSON
    headers: dict[str, str] | None = None
    expires: int | None = None
    priority: int = DEFAULT_PRIORITY
    labels: Labels | None = None
    topic: str | None = None
    on_conflict: OnConflict = OnConflict.KEEP
    blocked: str | None = None
    """Why it must not go out, when somebody decided that before it came: kept as BLOCKED."""
    dead: str | None = None
    """Why it cannot go out, known before it came: kept as DEAD, for a person to look at."""

    @property
    def ending(self) -> tuple[State, str] | None:
        """The state it is settled in as it is put, with the reason; None: it is scheduled."""
        if self.dead is not None:
            return State.DEAD, self.dead
        return None if self.blocked is None else (State.BLOCKED, self.blocked)

    @property
    def state(self) -> State:
        """The state it is put in."""
        return State.SCHEDULED if self.ending is None else self.ending[0]


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as the store holds it. Settled ones may have lost their payload.

    By keyword, as NewMessage, except where the stores read it by the ten thousand.
    """

    id: str
    route: str
    key: str
    payload: bytes
    due: int
    content_type: str = JSON
    headers: dict[str, str] | None = None
    expires: int | None = None
    priority: int = DEFAULT_PRIORITY
    labels: Labels | None = None
    topic: str | None = None
    state: State = State.SCHEDULED
    version: int = 1
    """Counts the edits callers made: put, replace, reschedule, cancel, redrive."""
    attempt: int = 0
    """Counts the times it was leased to be sent; never goes back once a send began."""
    attempt_floor: int = 0
    """The attempt it was redriven at: max_attempts counts from here."""
    created: int = 0
    claimed: int | None = None
    settled: int | None = None
    last_error: str | None = None
    cancel_pending: bool = False
    decided: Decided | None = None
    """The last time policies did not let it go; it may have gone since. Of a delivered message
    that policies applied to: what they said when they let it go."""
    ref: int = 0
    """The store's own handle on the row; means nothing outside it."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a message's timeline."""

    at: int
    event: str
    detail: str | None = None
    attempt: int | None = None
