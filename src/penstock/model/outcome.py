"""The outcomes of store calls and sends: expected results are values, not exceptions."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from penstock.model.message import Labels, Message
from penstock.model.state import State
from penstock.model.verdict import Decided, Verdict


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The answer to a put: the message is durable."""

    id: str
    state: State
    due: int
    duplicate: bool = False
    """True if the id was known; `state` and `due` are then the stored message's."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Messages leased together under one fencing token."""

    token: int
    messages: tuple[Message, ...] = ()
    next_due: int | None = None
    """If fewer than requested were due: the earliest due time left on the route."""
    stopped_at_bytes: bool = False
    """True if more messages were due, but together they would have been too large."""


class StreamEntry(msgspec.Struct, frozen=True, gc=False):
    """A message as an entry of a Redis stream that the store writes itself."""

    stream: str
    fields: tuple[bytes, ...]
    """Names and values, alternating."""
    maxlen: int | None = None
    """Trim the stream to about this many entries."""


class Settlement(msgspec.Struct, frozen=True, gc=False):
    """How one lease ends. Applied only while `token` is still the message's."""

    message: Message
    token: int
    state: State
    """A state LEASED may become; SCHEDULED puts it back until `due`."""
    event: str
    """The word in the timeline: delivered, retry, deferred, returned, dead, blocked, expired …"""
    due: int | None = None
    error: str | None = None
    refund: bool = False
    """True if no send began: the attempt that the claim counted is taken back."""
    unsure: bool = False
    """True if the message may have arrived in this attempt although it failed."""
    decided: Decided | None = None
    """The policies' refusal to store with the message; None keeps the stored one."""
    allowed: str | None = None
    """The policies' reasons for allowing it, shown beside `released` in the timeline."""

    entry: StreamEntry | None = None
    """Add this entry in the same step as the message is settled delivered. If the stream refuses
    it, the message stays leased and the answer is LEASED."""
    reserved_until: int = 0
    """Of a message that goes back unsent: until when the policies' decision reserved its caps. 0:
    no decision of this lease is known. One that was not answered may still take effect, so that
    what it reserves is left to the next decision about the message, or expires."""

    @property
    def kept(self) -> Decided | None:
        """The part of the decision that stays with the message.

        An ALLOW stays only with a settled message: while it may be decided again, only refusals and
        the number of missed attempts count.
        """
        if self.allowed is not None and self.state is State.DELIVERED:
            return Decided(Verdict.ALLOW, "", self.allowed)
        if self.allowed is not None and self.state is State.SCHEDULED and not self.unsure:
            before = self.message.decided or Decided(Verdict.ALLOW, "", "")
            return msgspec.structs.replace(before, missed=before.missed + 1)
        return self.decided

    @property
    def may_have_arrived(self) -> bool:
        """Whether this attempt, or an earlier one without a definite answer, may have arrived."""
        return self.unsure or may_have_arrived_before(self.message)

    @property
    def detail(self) -> str | None:
        """The timeline's text beside the event: the policy's reason, or the error."""
        decided = self.decided
        return self.error if decided is None else f"{decided.policy}: {decided.detail}"


def may_have_arrived_before(message: Message) -> bool:
    """Whether an attempt before the one under way ended without a definite answer."""
    missed = 0 if message.decided is None else message.decided.missed
    return message.attempt - message.attempt_floor - 1 > missed


class Reaped(msgspec.Struct, frozen=True, gc=False):
    """A message whose lease ran out, and its new state (scheduled or cancelled)."""

    id: str
    route: str
    state: State
    attempt: int


class Action(StrEnum):
    CANCEL = "cancel"
    RESCHEDULE = "reschedule"  # any of due, payload, headers, expires, priority, labels
    RELEASE = "release"  # due now
    REDRIVE = "redrive"  # dead → scheduled at `due`
    DELETE = "delete"  # dead → gone
    ERASE = "erase"  # any state but leased → gone


class Amendment(msgspec.Struct, frozen=True, kw_only=True):
    """A caller's change of a message; None leaves a field unchanged."""

    action: Action
    id: str
    version: int | None = None
    due: int | None = None
    payload: bytes | None = None
    content_type: str | None = None
    headers: dict[str, str] | None = None
    expires: int | None = None
    """0 removes the expiry."""
    priority: int | None = None
    labels: Labels | None = None

    def expires_then(self, held: Message) -> int | None:
        """When the message expires after this change."""
        return held.expires if self.expires is None else self.expires or None


class Answer(StrEnum):
    DONE = "done"
    UNKNOWN = "unknown"
    RELEASED = "released"  # too late: see the message's state (leased: being sent right now)
    CONFLICT = "conflict"  # another version


class Amended(msgspec.Struct, frozen=True):
    """The definite answer to an Amendment, with the message after it.

    For a deleted or erased message: the message before it.
    """

    answer: Answer
    message: Message | None = None


class Delivered(msgspec.Struct, frozen=True):
    """The sink confirmed the message."""


class Retry(msgspec.Struct, frozen=True):
    """The message did not arrive, or may not have; try again."""

    error: str
    after: float | None = None
    """Seconds to wait, as the receiver asked (Retry-After)."""
    unreachable: bool = False
    """True if the receiver cannot be reached: the circuit breaker counts these. A time-out of one
    message's answer does not count."""
    interrupted: bool = False
    """True if Penstock aborted the send (shutdown, or end of lease): never the last attempt."""
    answer: str = ""
    """The receiver's text: stored with the message, never logged, since it may be sensitive."""
    unsure: bool | None = None
    """Whether it may have arrived. Unset: true without an answer, or if Penstock aborted it."""

    @property
    def may_have_arrived(self) -> bool:
        return self.unreachable or self.interrupted if self.unsure is None else self.unsure

    @property
    def text(self) -> str:
        return f"{self.error}: {self.answer}" if self.answer else self.error


class Dead(msgspec.Struct, frozen=True):
    """The receiver refused it for good: trying again cannot help."""

    error: str
    answer: str = ""
    """The receiver's text, as in Retry."""

    @property
    def text(self) -> str:
        return f"{self.error}: {self.answer}" if self.answer else self.error


SendOutcome: TypeAlias = Delivered | Retry | Dead
DELIVERED = Delivered()


class RetryLater(Exception):
    """A python: sink's function raises this for a retry `after` seconds; None backs off."""

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Reject(Exception):
    """A python: sink's function raises this to refuse for good: the message is dead at once."""
