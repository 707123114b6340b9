"""What came of it: expected results are values, not exceptions."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from penstock.model.message import Labels, Message
from penstock.model.state import State
from penstock.model.verdict import Decided, Verdict


class Receipt(msgspec.Struct, frozen=True, gc=False):
    """The answer to a put: durable when this exists."""

    id: str
    state: State
    due: int
    duplicate: bool = False
    """The id was known before; `state` and `due` are those of the message now held."""


class Claim(msgspec.Struct, frozen=True, gc=False):
    """Messages leased together under one fencing token."""

    token: int
    messages: tuple[Message, ...] = ()
    next_due: int | None = None
    """When fewer than asked were due: the earliest due of what is left on the route."""
    stopped_at_bytes: bool = False
    """There were more that are due, but together they would have been too large."""


class StreamEntry(msgspec.Struct, frozen=True, gc=False):
    """A message as an entry of a stream that is in the store itself."""

    stream: str
    fields: tuple[bytes, ...]
    """Names and values in turn."""
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
    """No send was begun: the attempt that the claim counted is taken back."""
    unsure: bool = False
    """It may have arrived all the same in this attempt."""
    decided: Decided | None = None
    """The policies' refusal, to be kept with the message; None leaves what is kept."""
    allowed: str | None = None
    """What the policies said when they let it go: told beside `released` in the timeline."""

    entry: StreamEntry | None = None
    """Add this in the same step as the message is settled delivered. Should the stream not take it,
    the message stays leased, and LEASED is the answer."""

    @property
    def kept(self) -> Decided | None:
        """What the message keeps of the decision.

        An ALLOW only with the end of all: as long as it may be decided again, refusals count, and
        how many attempts did not arrive.
        """
        if self.allowed is not None and self.state is State.DELIVERED:
            return Decided(Verdict.ALLOW, "", self.allowed)
        if self.allowed is not None and self.state is State.SCHEDULED and not self.unsure:
            before = self.message.decided or Decided(Verdict.ALLOW, "", "")
            return msgspec.structs.replace(before, missed=before.missed + 1)
        return self.decided

    @property
    def may_have_arrived(self) -> bool:
        """By the attempt that ends here, or by one before it, of which nobody knows for sure."""
        return self.unsure or may_have_arrived_before(self.message)

    @property
    def detail(self) -> str | None:
        """What the timeline says beside the word: the policy's reason, or the error."""
        decided = self.decided
        return self.error if decided is None else f"{decided.policy}: {decided.detail}"


def may_have_arrived_before(message: Message) -> bool:
    """Whether an attempt before the one under way ended without a definite answer."""
    missed = 0 if message.decided is None else message.decided.missed
    return message.attempt - message.attempt_floor - 1 > missed


class Reaped(msgspec.Struct, frozen=True, gc=False):
    """A message whose lease ran out, and what became of it (scheduled or cancelled)."""

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
    """A change somebody asks for; None leaves a field as it is."""

    action: Action
    id: str
    version: int | None = None
    due: int | None = None
    payload: bytes | None = None
    content_type: str | None = None
    headers: dict[str, str] | None = None
    expires: int | None = None
    """0: it does not expire any more."""
    priority: int | None = None
    labels: Labels | None = None

    def expires_then(self, held: Message) -> int | None:
        """When the message expires once this is done."""
        return held.expires if self.expires is None else self.expires or None


class Answer(StrEnum):
    DONE = "done"
    UNKNOWN = "unknown"
    RELEASED = "released"  # too late: see the message's state (leased: being sent right now)
    CONFLICT = "conflict"  # another version


class Amended(msgspec.Struct, frozen=True):
    """The definite answer to an Amendment, with the message as it is now.

    Of a message that was deleted or erased: as it was before.
    """

    answer: Answer
    message: Message | None = None


class Delivered(msgspec.Struct, frozen=True):
    """The sink has it for sure."""


class Retry(msgspec.Struct, frozen=True):
    """It did not arrive, or may not have; try again."""

    error: str
    after: float | None = None
    """Seconds the other side asked us to wait (Retry-After)."""
    unreachable: bool = False
    """The other side cannot be reached: the circuit breaker counts these. A time-out of one
    message's answer is not that."""
    interrupted: bool = False
    """We broke it off ourselves (a shutdown, or the lease ended): never the last attempt."""
    answer: str = ""
    """What the other side wrote: kept with the message, never logged, since it may repeat it."""
    unsure: bool | None = None
    """It may have arrived all the same. Unset: whenever nobody answered, or we broke it off."""

    @property
    def may_have_arrived(self) -> bool:
        return self.unreachable or self.interrupted if self.unsure is None else self.unsure

    @property
    def text(self) -> str:
        return f"{self.error}: {self.answer}" if self.answer else self.error


class Dead(msgspec.Struct, frozen=True):
    """Refused for good: trying again cannot help."""

    error: str
    answer: str = ""
    """As that of Retry."""

    @property
    def text(self) -> str:
        return f"{self.error}: {self.answer}" if self.answer else self.error


SendOutcome: TypeAlias = Delivered | Retry | Dead
DELIVERED = Delivered()


class RetryLater(Exception):
    """Raised by a python: sink's function: not now; `after` is in seconds, None backs off."""

    def __init__(self, reason: str = "", *, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


class Reject(Exception):
    """Raised by a python: sink's function: never; the message is dead at once."""
