"""The policies' verdict on one message: ALLOW, DEFER until a moment, or BLOCK, and why."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Protocol

import msgspec

from penstock.model.message import DEFAULT_ROUTE, Labels, Message
from penstock.model.state import State
from penstock.model.times import format_moment
from penstock.model.verdict import Decided, Verdict

MAX_NAMED = 12
"""Most policies that a timeline names for a message they allowed."""
MAX_TEXT = 500
"""Most characters that a timeline shows of a decision."""


class Subject(Protocol):
    """The part of a message that a decision reads, real or hypothetical."""

    @property
    def id(self) -> str: ...
    @property
    def route(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def due(self) -> int: ...
    @property
    def expires(self) -> int | None: ...
    @property
    def labels(self) -> Labels | None: ...
    @property
    def decided(self) -> Decided | None: ...


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A hypothetical message to decide about; without an id it counts as a new one."""

    id: str = ""
    route: str = DEFAULT_ROUTE
    key: str
    due: int
    expires: int | None = None
    labels: Labels | None = None
    decided: Decided | None = None


class Share(msgspec.Struct, frozen=True, gc=False):
    """One of a message's several keys, as a subject of its own.

    Only rules about the key itself apply to it (suppressions, caps counted per key) and quiet
    hours; rules that all keys share (paces, caps without a key) are decided once, for the message.
    """

    id: str
    route: str
    key: str
    due: int
    expires: int | None
    labels: Labels | None
    decided: Decided | None


class Reason(msgspec.Struct, frozen=True):
    policy: str
    detail: str


class RuleResult(msgspec.Struct, frozen=True, kw_only=True):
    """One rule's verdict."""

    policy: str
    verdict: Verdict
    until: int | None = None
    detail: str
    shadow: bool = False
    """True if the rule is in shadow mode: its verdict is recorded, not applied."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, the binding rule, and the results of the rules.

    A decision that is applied lists the rules that did not allow; an explanation lists all.
    """

    verdict: Verdict
    until: int | None = None
    reason: Reason | None = None
    rules: tuple[RuleResult, ...] = ()
    asked: tuple[str, ...] = ()
    """For an applied ALLOW: the policies and suppression lists that were consulted."""
    bypassed: tuple[str, ...] = ()
    """For an applied ALLOW: the policies that the message's class bypassed."""
    key: str | None = None
    """For a refusal of a message with several keys: the key whose rules bind."""


ALLOWED = Decision(verdict=Verdict.ALLOW)


class End(StrEnum):
    """How a reservation ends."""

    COMMIT = "commit"  # sent: counted at the moment given
    RELEASE = "release"  # not sent and never will be: counted no more
    KEEP = "keep"  # to be tried again: the reservation stays until then


class Conclusion(msgspec.Struct, frozen=True, gc=False):
    """The end of one message's reservations. Applying it twice is the same as applying it once."""

    subject: Subject
    end: End
    until: int = 0
    """For KEEP: how long to hold the reservation. For RELEASE: until when the decision of this
    lease held it; what a later decision has reserved, for the message's next lease, stays. 0 ends
    any reservation."""


class CounterFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One cap's count for a recipient."""

    policy: str
    scope: dict[str, str]
    """The counted scope: scope word → value."""
    used: int
    """Messages sent in the window or in flight."""
    limit: int | None
    resets: int | None
    """When the count next falls without a release; None if it is zero."""


class PaceAllowance(msgspec.Struct, frozen=True):
    """How many messages of a route the paces that cover all of it let through now."""

    number: int
    again_at: int | None = None
    """When some are allowed again, if none is now."""


def verdict_of(message: Message) -> Verdict | None:
    """The last verdict stored with a message; None if there is none.

    Only refusals are stored: that a message was allowed shows in its later states.
    """
    decided = message.decided
    if message.state is State.BLOCKED:
        return Verdict.BLOCK
    if decided is not None and message.due == decided.until and message.claimed is None:
        return decided.verdict
    return Verdict.ALLOW if message.attempt > 0 else None


def reason_of(message: Message) -> Reason | None:
    """The reason of the last refusal, while a refusal is the last decision."""
    decided = message.decided
    if decided is None or decided.verdict is Verdict.ALLOW:
        return None
    if verdict_of(message) is not decided.verdict:
        return None
    return Reason(decided.policy, decided.detail)


def allowed_text(decision: Decision) -> str | None:
    """The timeline's text about an ALLOW; None if no rule applied to the message."""
    parts = []
    acting = [policy for policy in decision.asked if policy not in _shadows(decision)]
    if acting:
        parts.append(f"ALLOW by {_listed(acting)}")
    elif decision.asked or decision.bypassed:
        parts.append("ALLOW")
    if decision.bypassed:
        parts.append(f"bypassed {_listed(decision.bypassed)}")
    parts += [_shadow_text(rule) for rule in decision.rules if rule.shadow]
    return "; ".join(parts)[:MAX_TEXT] or None


def _shadows(decision: Decision) -> set[str]:
    return {rule.policy for rule in decision.rules if rule.shadow}


def _shadow_text(rule: RuleResult) -> str:
    would = "blocked it" if rule.until is None else f"deferred it until {format_moment(rule.until)}"
    return f"shadow {rule.policy} would have {would}: {rule.detail}"


def _listed(policies: Sequence[str]) -> str:
    named = ", ".join(policies[:MAX_NAMED])
    more = len(policies) - MAX_NAMED
    return f"{named} and {more} more" if more > 0 else named
