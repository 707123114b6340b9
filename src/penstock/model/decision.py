"""What the policies say of one message: ALLOW, DEFER until a moment, or BLOCK, and why."""

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
"""Policies that a timeline names of those that let a message go."""
MAX_TEXT = 500
"""Characters that a timeline says about it."""


class Subject(Protocol):
    """What a decision looks at: a message, or a question about one."""

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
    """A message that is only asked about; without an id it is like a new one."""

    id: str = ""
    route: str = DEFAULT_ROUTE
    key: str
    due: int
    expires: int | None = None
    labels: Labels | None = None
    decided: Decided | None = None


class Share(msgspec.Struct, frozen=True, gc=False):
    """One of the several keys of a message, on its own.

    Only rules about the key itself apply to it (suppressions, caps kept with a key) and quiet
    hours; what keys share (paces, caps without a key) is asked once, of the message.
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
    """What one rule said."""

    policy: str
    verdict: Verdict
    until: int | None = None
    detail: str
    shadow: bool = False
    """Said, but not acted on."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """The verdict, the rule that binds, and what the rules said.

    A decision that is acted on lists the rules that did not allow; an explanation lists all.
    """

    verdict: Verdict
    until: int | None = None
    reason: Reason | None = None
    rules: tuple[RuleResult, ...] = ()
    asked: tuple[str, ...] = ()
    """ALLOW, acted on: the policies and suppression lists that were asked."""
    bypassed: tuple[str, ...] = ()
    """ALLOW, acted on: the policies that would have been, but for the message's class."""
    key: str | None = None
    """Refused, of a message with several keys: the one whose rules bind."""


ALLOWED = Decision(verdict=Verdict.ALLOW)


class End(StrEnum):
    """How a reservation ends."""

    COMMIT = "commit"  # it was sent: counted at the moment given
    RELEASE = "release"  # it was not sent and will not be: counted no more
    KEEP = "keep"  # it will be tried again: its place is held until then


MARKS = 10_000


def mark_of(token: int) -> int:
    """What a lease's reservations end in, so that only this lease gives them back; never 0."""
    return token % (MARKS - 1) + 1


def marked(moment: int, token: int) -> int:
    """The next moment but a few seconds with the mark of the lease."""
    return moment - moment % MARKS + MARKS + mark_of(token)


class Conclusion(msgspec.Struct, frozen=True, gc=False):
    """The end of one message's reservations. Saying it twice is the same as saying it once."""

    subject: Subject
    end: End
    until: int = 0
    """KEEP: how long to hold the place."""
    mark: int = 0
    """RELEASE: only what is held until a moment with this mark, which the lease decided; what the
    next lease of the message has reserved meanwhile stays. 0: whatever is held."""

    def ends(self, held_until: int) -> bool:
        """Whether a place that is held until then is one of those it ends."""
        return self.end is not End.RELEASE or not self.mark or held_until % MARKS == self.mark


class CounterFigure(msgspec.Struct, frozen=True, kw_only=True):
    """One cap's count for a recipient."""

    policy: str
    scope: dict[str, str]
    """What is counted: scope word → value."""
    used: int
    """Sent in the window, with those on their way."""
    limit: int | None
    resets: int | None
    """When the count next goes down by itself; None: nothing counts."""


class PaceAllowance(msgspec.Struct, frozen=True):
    """How many messages of a route the paces that cover all of it let through now."""

    number: int
    again_at: int | None = None
    """If none: when there is some."""


def verdict_of(message: Message) -> Verdict | None:
    """What was decided last of a message; None: nothing yet.

    Only refusals are kept with it: that it was let go shows in what happened to it since.
    """
    decided = message.decided
    if message.state is State.BLOCKED:
        return Verdict.BLOCK
    if decided is not None and message.due == decided.until and message.claimed is None:
        return decided.verdict
    return Verdict.ALLOW if message.attempt > 0 else None


def reason_of(message: Message) -> Reason | None:
    """Why it did not go out, while that is what was decided last."""
    decided = message.decided
    if decided is None or decided.verdict is Verdict.ALLOW:
        return None
    if verdict_of(message) is not decided.verdict:
        return None
    return Reason(decided.policy, decided.detail)


def allowed_text(decision: Decision) -> str | None:
    """What the timeline says of an ALLOW; None: no rule looked at the message."""
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
