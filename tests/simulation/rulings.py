"""What policies decided, in the order they did, held against what they promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from zoneinfo import ZoneInfo

from penstock.flow.conclude import LIFE
from penstock.limits.counter import reserved_until
from penstock.limits.engine import is_ended_by
from penstock.limits.quiet import QuietHours
from penstock.model.decision import Conclusion, Decision, End, PaceAllowance, Subject
from penstock.model.policy import Policy, Quiet, Suppression
from penstock.model.verdict import Verdict
from penstock.stores.memory.policies import MemoryPolicies
from tests.simulation.journal import Journal
from tests.simulation.policies import PACES, WINDOWS
from tests.simulation.sync import now_or_never

QUIET = "4 never ALLOW when quiet or suppressed"
UNCHANGED = "4 a refusal leaves counters unchanged"
UNTIL = "4 now < until ≤ expires"
PACE = "4 allows in any T ≤ burst + rate·T"
CAP_LIMIT, CAP_WINDOW = WINDOWS["cap"]
TWIN = "the store's decisions are those of the arithmetic"


@dataclass(slots=True)
class Rules:
    """What is in force, by what was acknowledged."""

    policies: dict[str, Policy] = field(default_factory=dict)
    suppressed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    changed: int = 0
    """How many changes there have been."""


def _named(subject: Subject) -> str:
    """The message's own id, however often it was redriven."""
    return subject.id.partition(LIFE)[0]


@lru_cache(maxsize=100)
def _hours(policy: Quiet, zone: str) -> QuietHours:
    return QuietHours(policy, ZoneInfo(zone))


@dataclass(frozen=True, slots=True)
class Allowed:
    """One ALLOW, in the order they took effect."""

    who: str
    message_id: str
    now: int
    """By the clock it was decided on: the store's, or one behind it."""
    elapsed: int
    """Of the world's time."""


class Rulings:
    """Told of every decision that took effect."""

    def __init__(self, journal: Journal, twin: MemoryPolicies | None) -> None:
        self._journal = journal
        self._twin = twin
        self.rules = Rules()
        self.allowed: list[Allowed] = []
        self.paced: dict[str, list[list[Allowed]]] = {}
        """Pace → what it let go, anew each time that it was put."""
        self._knowing: dict[str, list[tuple[int, bool]]] = {}
        """Process → since when it knows that there are policies, or that there are none."""
        self._binding: list[tuple[int, bool]] = []
        """Since when there are policies or lists, or none."""
        self._held: dict[str, dict[str, int]] = {}
        """Key → messages that were allowed, and nothing was said of them since → held until."""
        self._first_counted: dict[str, int] = {}
        """Message → when it was counted first, by the world's time."""
        self._counted: dict[str, dict[str, int]] = {}
        """Key → message → how long it may count, by what was said of it: at most. A message that
        was counted stays so, whatever is decided about it afterwards."""

    def put_policy(self, who: str, policy_id: str, policy: Policy) -> None:
        self._journal.note(who, "policy", policy_id, type(policy).__name__)
        if policy_id in PACES and policy_id not in self.rules.policies:
            self.paced.setdefault(policy_id, []).append([])
        self.rules.policies[policy_id] = policy
        self.rules.changed += 1
        self._changed()
        if self._twin is not None:
            now_or_never(self._twin.put_policy(policy_id, policy))

    def drop_policy(self, who: str, policy_id: str, got: bool) -> None:
        self._journal.note(who, "no policy", policy_id)
        if self.rules.policies.pop(policy_id, None) is not None:
            self.rules.changed += 1
        self._changed()
        if self._twin is not None:
            self._same(now_or_never(self._twin.drop_policy(policy_id)), got)

    def put_suppression(self, who: str, list_id: str, suppression: Suppression) -> None:
        self._journal.note(who, "suppress", list_id, " ".join(suppression.keys))
        self.rules.suppressed[list_id] = suppression.keys
        self._changed()
        if self._twin is not None:
            now_or_never(self._twin.put_suppression(list_id, suppression))

    def drop_suppression(self, who: str, list_id: str, got: bool) -> None:
        self._journal.note(who, "unsuppress", list_id)
        self.rules.suppressed.pop(list_id, None)
        self._changed()
        if self._twin is not None:
            self._same(now_or_never(self._twin.drop_suppression(list_id)), got)

    def _changed(self) -> None:
        there_are = bool(self.rules.policies or self.rules.suppressed)
        self._binding.append((self._journal.clock.elapsed(), there_are))

    def bind_since(self, at: int) -> int | None:
        """Since when there have been policies without a break, at that moment; None: are none."""
        since = None
        for elapsed, there_are in self._binding:
            if elapsed > at:
                break
            since = (elapsed if since is None else since) if there_are else None
        return since

    def knows(self, who: str, there_are: bool) -> None:
        """A process has read that there are policies, or that there are none."""
        self._knowing.setdefault(who, []).append((self._journal.clock.elapsed(), there_are))

    def bound(self, who: str, at: int) -> bool:
        """Whether it knew of policies before that moment of the world's time, and in it."""
        knowing = self._knowing.get(who, ())
        before = [there_are for since, there_are in knowing if since < at]
        return bool(before) and before[-1] and (at, False) not in knowing

    def decide(
        self, who: str, subjects: Sequence[Subject], now: int, hold: int, got: list[Decision]
    ) -> None:
        for subject, decision in zip(subjects, got, strict=True):
            reason = "" if decision.reason is None else decision.reason.policy
            self._journal.note(who, "decide", _named(subject), f"{decision.verdict} {reason}")
            if decision.verdict is Verdict.ALLOW:
                self._check_allowed(subject, now)
                self._allow(who, subject, now)
                held = self._held.setdefault(subject.key, {})
                held[subject.id] = max(reserved_until(now + hold), held.get(subject.id, 0))
            elif decision.verdict is Verdict.DEFER:
                self._check_until(subject, now, decision)
                self._check_places(subject, now, decision)
        if self._twin is not None:
            self._same(now_or_never(self._twin.decide(subjects, now, hold)), got)

    def conclude(self, who: str, conclusions: Sequence[Conclusion], now: int) -> None:
        for conclusion in conclusions:
            subject = conclusion.subject
            self._journal.note(who, "conclude", _named(subject), conclusion.end.value)
            held = self._held.setdefault(subject.key, {})
            if conclusion.end is not End.KEEP and is_ended_by(conclusion, held.get(subject.id, 0)):
                held.pop(subject.id, None)
            if conclusion.end is End.COMMIT:
                elapsed = self._journal.clock.elapsed()
                self._first_counted.setdefault(_named(subject), elapsed)
                counted = self._counted.setdefault(subject.key, {})
                counted[subject.id] = max(now + CAP_WINDOW, counted.get(subject.id, 0))
        if self._twin is not None:
            now_or_never(self._twin.conclude(conclusions, now))

    def counted_before(self, message_id: str, elapsed: int) -> bool:
        """Whether it was counted, for the first time, before this moment of the world's time."""
        return self._first_counted.get(message_id, elapsed) < elapsed

    def allowance(self, route: str, now: int, got: PaceAllowance | None) -> None:
        if self._twin is not None:
            self._same(now_or_never(self._twin.allowance(route, now)), got)

    def _allow(self, who: str, subject: Subject, now: int) -> None:
        one = Allowed(who, _named(subject), now, self._journal.clock.elapsed())
        self.allowed.append(one)
        for policy_id, promised in PACES.items():
            if policy_id in self.rules.policies and promised.covers(subject.labels):
                run = self.paced[policy_id][-1]
                run.append(one)
                for number, first in enumerate(reversed(run), start=1):
                    if promised.exceeded(number, now - first.now):
                        told = f"{policy_id}: {number} in {now - first.now} ms"
                        self._journal.fail(PACE, subject.id, told)

    def _check_allowed(self, subject: Subject, now: int) -> None:
        labels = subject.labels
        for policy_id, policy in self.rules.policies.items():
            if isinstance(policy, Quiet):
                zone = labels.tz if labels is not None and labels.tz else policy.zone or "UTC"
                if _hours(policy, zone).ends(now):
                    self._journal.fail(QUIET, subject.id, f"{policy_id} is quiet")
        for list_id, keys in self.rules.suppressed.items():
            if subject.key in keys:
                self._journal.fail(QUIET, subject.id, f"{subject.key} is on {list_id}")

    def _check_until(self, subject: Subject, now: int, decision: Decision) -> None:
        until = decision.until
        if (
            until is None
            or until <= now
            or (subject.expires is not None and until > subject.expires)
        ):
            self._journal.fail(UNTIL, subject.id, f"deferred at {now} until {until}")

    def _check_places(self, subject: Subject, now: int, decision: Decision) -> None:
        """Who is held back by the cap finds it full of others that went or are on their way."""
        if not any(result.policy == "cap" for result in decision.rules):
            return
        counted = self._counted.get(subject.key, {})
        places = {name for name, until in counted.items() if until > now}
        used = len((places | self._held.get(subject.key, {}).keys()) - {subject.id})
        if used < CAP_LIMIT:
            told = f"the cap is full for {subject.key}, but only {used} went or are on their way"
            self._journal.fail(UNCHANGED, subject.id, told)

    def _same(self, mine: object, theirs: object) -> None:
        if mine != theirs:
            self._journal.fail(TWIN, "", f"the arithmetic says {mine}, the store {theirs}")
