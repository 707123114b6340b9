"""A message to store (NewMessage) and a stored message (Message)."""

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
    """How a put treats a known id while its message is still scheduled."""

    KEEP = "keep"  # the first stays as it is
    REPLACE = "replace"  # the new one takes its place
    EARLIEST = "earliest"  # whichever is due first stays


class Labels(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True
):
    """The labels that policies match, frozen when the message is accepted."""

    channel: str | None = None
    campaign: str | None = None
    class_: str | None = msgspec.field(name="class", default=None)
    tags: tuple[str, ...] = ()
    tz: str | None = None
    keys: tuple[str, ...] = ()
    """Recipients besides `key`: caps count the message for each, and it waits while any is over."""


class NewMessage(msgspec.Struct, frozen=True, gc=False):
    """A validated message on its way into the store.

    Built by keyword, except on hot paths: positional arguments are four times as fast.
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
    """Why it must not be sent, if that was decided before the put: stored as BLOCKED."""
    dead: str | None = None
    """Why it cannot be sent, if that was known before the put: stored as DEAD, for an operator."""

    @property
    def ending(self) -> tuple[State, str] | None:
        """The state in which the put settles it, with the reason; None if it is scheduled."""
        if self.dead is not None:
            return State.DEAD, self.dead
        return None if self.blocked is None else (State.BLOCKED, self.blocked)

    @property
    def state(self) -> State:
        """The state of the message after the put."""
        return State.SCHEDULED if self.ending is None else self.ending[0]


class Message(msgspec.Struct, frozen=True, gc=False):
    """A message as the store holds it. A settled one may have lost its payload.

    Built by keyword, as NewMessage, except where stores read thousands at once.
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
    """The attempt at which it was redriven: max_attempts counts from here."""
    created: int = 0
    claimed: int | None = None
    settled: int | None = None
    last_error: str | None = None
    cancel_pending: bool = False
    decided: Decided | None = None
    """The policies' last refusal, which may be past. Of a delivered message that policies applied
    to: their reasons for allowing it."""
    ref: int = 0
    """The store's own handle on the row; meaningless outside the store."""


class Event(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a message's timeline."""

    at: int
    event: str
    detail: str | None = None
    attempt: int | None = None
