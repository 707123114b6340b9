"""What policies decided, in the order they did, held against what they promise."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from zoneinfo import ZoneInfo

from penstock.limits.memory import MemoryPolicies
from penstock.limits.quiet import QuietHours
from penstock.model.decision import Conclusion, Decision, End, Room, Subject
from penstock.model.policy import Policy, Quiet, Suppression
from penstock.model.verdict import Verdict
from tests.simulation.journal import Journal
from tests.simulation.sync import now_or_never

CAPS = "4 no window exceeds its limit"
QUIET = "4 never ALLOW when quiet or suppressed"
UNCHANGED = "4 a refusal leaves counters unchanged"
UNTIL = "4 now < until ≤ expires"
CAP_WINDOW, CAP_LIMIT = 10_000, 2
"""Of the policy "cap", here and in the plan."""
FOR_EVER = 1 << 60
TWIN = "the store's decisions are those of the arithmetic"


@dataclass(slots=True)
class Rules:
    """What is in force, by what was acknowledged."""

    policies: dict[str, Policy] = field(default_factory=dict)
    suppressed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    changed: int = 0
    """How many changes there have been."""


@lru_cache(maxsize=100)
def _hours(policy: Quiet, zone: str) -> QuietHours:
    return QuietHours(policy, ZoneInfo(zone))


class Rulings:
    """Told of every decision that took effect."""

    def __init__(self, journal: Journal, twin: MemoryPolicies | None) -> None:
        self._journal = journal
        self._twin = twin
        self.rules = Rules()
        self.allowed: list[tuple[int, str, str]] = []
        """(server time, message, key) of every ALLOW, in order."""
        self.decisions = 0
        self._places: dict[str, dict[str, int]] = {}
        """Key → message → how long its place may count: by what was said of it, at most."""

    def put_policy(self, who: str, policy_id: str, policy: Policy) -> None:
        self._journal.note(who, "policy", policy_id, type(policy).__name__)
        self.rules.policies[policy_id] = policy
        self.rules.changed += 1
        if self._twin is not None:
            now_or_never(self._twin.put_policy(policy_id, policy))

    def drop_policy(self, who: str, policy_id: str, got: bool) -> None:
        self._journal.note(who, "no policy", policy_id)
        if self.rules.policies.pop(policy_id, None) is not None:
            self.rules.changed += 1
        if self._twin is not None:
            self._same(now_or_never(self._twin.drop_policy(policy_id)), got)

    def put_suppression(self, who: str, list_id: str, suppression: Suppression) -> None:
        self._journal.note(who, "suppress", list_id, " ".join(suppression.keys))
        self.rules.suppressed[list_id] = suppression.keys
        if self._twin is not None:
            now_or_never(self._twin.put_suppression(list_id, suppression))

    def drop_suppression(self, who: str, list_id: str, got: bool) -> None:
        self._journal.note(who, "unsuppress", list_id)
        self.rules.suppressed.pop(list_id, None)
        if self._twin is not None:
            self._same(now_or_never(self._twin.drop_suppression(list_id)), got)

    def decide(
        self, who: str, subjects: Sequence[Subject], now: int, hold: int, got: list[Decision]
    ) -> None:
        for subject, decision in zip(subjects, got, strict=True):
            self.decisions += 1
            reason = "" if decision.reason is None else decision.reason.policy
            self._journal.note(who, "decide", subject.id, f"{decision.verdict} {reason}")
            if decision.verdict is Verdict.ALLOW:
                self._check_allowed(subject, now)
                self.allowed.append((now, subject.id, subject.key))
                self._places.setdefault(subject.key, {})[subject.id] = FOR_EVER
            elif decision.verdict is Verdict.DEFER:
                self._check_until(subject, now, decision)
                self._check_places(subject, now, decision)
        if self._twin is not None:
            self._same(now_or_never(self._twin.decide(subjects, now, hold)), got)

    def conclude(self, who: str, conclusions: Sequence[Conclusion], now: int) -> None:
        for conclusion in conclusions:
            subject = conclusion.subject
            self._journal.note(who, "conclude", subject.id, conclusion.end.value)
            places = self._places.setdefault(subject.key, {})
            if conclusion.end is End.COMMIT:
                places[subject.id] = now + CAP_WINDOW
            elif conclusion.end is End.RELEASE and places.get(subject.id) == FOR_EVER:
                del places[subject.id]
        if self._twin is not None:
            now_or_never(self._twin.conclude(conclusions, now))

    def room(self, route: str, now: int, got: Room | None) -> None:
        if self._twin is not None:
            self._same(now_or_never(self._twin.room(route, now)), got)

    def check_window(
        self, arrivals: dict[str, list[tuple[int, str]]], limit: int, window: int
    ) -> None:
        """No key got more different messages than `limit` in any window."""
        for key, got in arrivals.items():
            first: dict[str, int] = {}
            for at, message_id in sorted(got):
                first.setdefault(message_id, at)
            times = sorted(first.values())
            for number, at in enumerate(times):
                inside = bisect_right(times, at + window - 1) - number
                if inside > limit:
                    self._journal.fail(CAPS, key, f"{inside} of {limit} in {window} ms")
                    return

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
        places = self._places.get(subject.key, {})
        used = sum(until > now for name, until in places.items() if name != subject.id)
        if used < CAP_LIMIT:
            told = f"the cap is full for {subject.key}, but only {used} went or are on their way"
            self._journal.fail(UNCHANGED, subject.id, told)

    def _same(self, mine: object, theirs: object) -> None:
        if mine != theirs:
            self._journal.fail(TWIN, "", f"the arithmetic says {mine}, the store {theirs}")
