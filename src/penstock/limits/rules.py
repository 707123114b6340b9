"""Policies compiled: which rules concern a message, with everything about them known before."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import product
from math import ceil
from typing import TypeAlias

from msgspec.structs import replace

from penstock.limits.counter import REMEMBER_MS, Counter, Limit
from penstock.limits.pace import Rate
from penstock.limits.quiet import QuietHours, quiet_hours
from penstock.limits.window import Rolling, Window, period
from penstock.model.decision import ALLOWED, Decision, Share, Subject
from penstock.model.message import Labels
from penstock.model.policy import (
    AppliesTo,
    CalendarWindow,
    Cap,
    OnExceed,
    Pace,
    Policy,
    Quiet,
    RuleBook,
    Scope,
    Suppression,
    parse_rate,
)
from penstock.model.times import parse_duration
from penstock.model.verdict import Verdict
from penstock.model.zone import DEFAULT_ZONE, is_zone

SEPARATOR = "\x1f"
"""Separates the parts of a counter's name; no label contains it."""
BURST_MS = 10
"""A pace without a burst of its own is smooth to within this."""
MAX_PLANS = 20_000
"""Combinations of route and labels whose rules are remembered."""

_NO_LABELS = Labels()


class Rule:
    """Common to all rules of a policy."""

    __slots__ = ("blocks", "id", "max_defer", "shadow")

    def __init__(self, policy_id: str, policy: Policy) -> None:
        self.id = policy_id
        self.blocks = policy.on_exceed is OnExceed.BLOCK
        self.shadow = policy.shadow
        self.max_defer = (
            None if policy.max_defer is None else parse_duration(policy.max_defer, "max_defer")
        )


class QuietRule(Rule):
    __slots__ = ("hours", "spread", "zone")

    def __init__(self, policy_id: str, policy: Quiet, zone: str) -> None:
        super().__init__(policy_id, policy)
        self.zone = zone
        self.hours: QuietHours = quiet_hours(policy, zone)
        self.spread = parse_duration(policy.spread, "spread")


class CapRule(Rule):
    """A cap for one combination of its scope. `account` None: it is kept with the key."""

    __slots__ = ("account", "counter", "limit", "values")

    def __init__(
        self,
        policy_id: str,
        policy: Cap,
        values: dict[str, str],
        born: int,
        zone: str,
    ) -> None:
        super().__init__(policy_id, policy)
        self.values = values
        parts = [str(born), *(f"{word}={value}" for word, value in values.items())]
        self.counter = SEPARATOR.join(parts)
        self.account = None if Scope.KEY in policy.scope else self.counter
        self.limit = _limit(policy, zone)


class CounterGroup:
    """Caps of a key that count every message together: they share one counter, under all their
    names, for as long as they have counted the same messages."""

    __slots__ = (
        "always_allows_below",
        "caps",
        "count",
        "enforcing",
        "first",
        "limit",
        "names",
        "shadow",
    )

    def __init__(self, caps: list[CapRule], enforcing: list[CapRule]) -> None:
        self.caps = caps
        self.names = tuple(cap.counter for cap in caps)
        self.first = self.names[0]
        self.shadow = caps[0].shadow
        """A shadow cap is a group of its own."""
        self.limit = max((cap.limit for cap in caps), key=Limit.keeps_sends)
        """The limit that looks back the longest: the sends it keeps are enough for all."""
        self.count = self.limit.count
        self.enforcing = [cap for cap in caps if cap in enforcing]
        """The caps that may refuse."""
        self.always_allows_below = min(
            (cap.limit.always_allows_below for cap in self.enforcing), default=sys.maxsize
        )
        """Below this number of sends and reservations, no cap of the group refuses."""


class PaceRule(Rule):
    __slots__ = ("rate", "state", "text", "whole")

    def __init__(self, policy_id: str, policy: Pace, born: int) -> None:
        super().__init__(policy_id, policy)
        rate = parse_rate(policy.rate)
        burst = policy.burst if policy.burst is not None else max(1, ceil(rate * BURST_MS))
        self.rate = Rate(rate, burst)
        self.state = str(born)
        self.text = f"{policy.rate}, burst {burst}"
        self.whole = covers_whole_routes(policy)


AnyRule: TypeAlias = QuietRule | CapRule | PaceRule


class Plan:
    """Every rule for messages of one route and one set of labels."""

    __slots__ = (
        "allowed",
        "bypassed",
        "caps",
        "counted",
        "counter_groups",
        "keyed",
        "own",
        "own_asked",
        "paces",
        "passed",
        "quiets",
        "shared",
        "shared_asked",
        "suppressions",
    )

    def __init__(self) -> None:
        self.suppressions: dict[str, bool] = {}
        """Lists that concern these messages → whether it is a legal one."""
        self.quiets: list[QuietRule] = []
        self.caps: list[CapRule] = []
        self.paces: list[PaceRule] = []
        self.bypassed: list[str] = []
        """Policies that these messages bypass."""
        self.counted: list[CapRule] = []
        """Caps that are bypassed and count all the same."""
        self.passed: list[PaceRule] = []
        """Paces that are bypassed and count all the same."""
        self.keyed = False
        """True if some cap is kept with the key."""
        self.own: list[CapRule] = []
        """All caps that are kept with the key,"""
        self.own_asked: list[CapRule] = []
        """and those of them that may refuse."""
        self.counter_groups: list[CounterGroup] = []
        """All of `own`, grouped by what counts together."""
        self.shared: list[CapRule] = []
        self.shared_asked: list[CapRule] = []
        self.allowed = ALLOWED
        """The decision when nothing refuses: one for all messages, with the rules by name."""

    def keep_own(self) -> None:
        """Drop the caps that are not about the key itself, before the plan is complete."""
        self.caps = [cap for cap in self.caps if cap.account is None]
        self.counted = [cap for cap in self.counted if cap.account is None]
        self.paces, self.passed = [], []

    def complete(self, *, together: bool) -> Plan:
        """Sort the caps by where they are kept, and the rules by name."""
        self.own = [cap for cap in self.all_caps() if cap.account is None]
        self.own_asked = [cap for cap in self.caps if cap.account is None]
        self.counter_groups = list(self._group(share=together))
        self.shared = [cap for cap in self.all_caps() if cap.account is not None]
        self.shared_asked = [cap for cap in self.caps if cap.account is not None]
        self.keyed = bool(self.own)
        rules = (*self.quiets, *self.caps, *self.paces)
        asked = tuple(dict.fromkeys((*self.suppressions, *(rule.id for rule in rules))))
        self.allowed = Decision(verdict=Verdict.ALLOW, asked=asked, bypassed=tuple(self.bypassed))
        return self

    def _group(self, *, share: bool) -> Iterator[CounterGroup]:
        """Group exact, enforced caps, which share a counter: a shadow may not count with them."""
        sharing = [cap for cap in self.own if share and cap.limit.exact and not cap.shadow]
        if sharing:
            yield CounterGroup(sharing, self.own_asked)
        for cap in self.own:
            if cap not in sharing:
                yield CounterGroup([cap], self.own_asked)

    def all_caps(self) -> list[CapRule]:
        return self.caps + self.counted if self.counted else self.caps

    def all_paces(self) -> list[PaceRule]:
        return self.paces + self.passed if self.passed else self.paces


class Rules:
    """One version of the rule book, compiled."""

    def __init__(
        self,
        book: RuleBook,
        born: dict[str, int],
        default_zone: str = DEFAULT_ZONE,
        *,
        together: bool = True,
    ) -> None:
        """`together`: caps of a key that count alike share one counter. It remembers for as long
        as any of them needs it, so a cap whose window is made longer may know more than alone."""
        self.book = book
        self.version = book.version
        self.names = {str(number): policy_id for policy_id, number in born.items()}
        """The mark of a policy's counters → its id; counters of other marks are dead."""
        self._born = born
        self._default_zone = default_zone
        self._together = together
        self._plans: dict[tuple[str, Labels, bool], Plan] = {}
        self._whole: dict[str, list[PaceRule]] = {}
        self._alive: set[str] = set()
        """Names of counters that are known to belong to a policy that is there."""
        self.keeps = max(map(_keeps, book.policies.values()), default=0)
        """How long after the last send a counter can still matter."""

    def __bool__(self) -> bool:
        return bool(self.book)

    def plan_of(self, subject: Subject) -> Plan:
        return self.plan(subject.route, subject.labels, share=type(subject) is Share)

    def plan(self, route: str, labels: Labels | None, *, share: bool = False) -> Plan:
        """`share`: of one of the several keys of a message."""
        if labels is not None and labels.keys:
            labels = replace(labels, keys=())  # the same rules, for other subjects
        asked = (route, labels or _NO_LABELS, share)
        plan = self._plans.get(asked)
        if plan is None:
            if len(self._plans) >= MAX_PLANS:
                self._plans.clear()
            plan = self._plans[asked] = self._make(*asked)
        return plan

    def plans(self, subjects: Iterable[Subject]) -> list[Plan]:
        """One plan each; neighbours mostly share theirs."""
        found = []
        route, labels, kind, plan = "", _NO_LABELS, None, None
        for subject in subjects:
            asked = subject.labels or _NO_LABELS
            if (
                plan is None
                or asked is not labels
                or subject.route != route
                or type(subject) is not kind
            ):
                route, labels, kind = subject.route, asked, type(subject)
                plan = self.plan_of(subject)
            found.append(plan)
        return found

    def whole_paces(self, route: str) -> list[PaceRule]:
        """Paces that hold back everything on the route alike."""
        paces = self._whole.get(route)
        if paces is None:
            paces = self._whole[route] = [
                PaceRule(policy_id, policy, self._born[policy_id])
                for policy_id, policy in self.book.policies.items()
                if isinstance(policy, Pace)
                and covers_whole_routes(policy)
                and _matches(policy.applies_to, route, _NO_LABELS)
            ]
        return paces

    def living(self, account: dict[str, Counter]) -> dict[str, Counter]:
        """The account without the counters of dropped policies."""
        if not self._alive.issuperset(account):
            for name in list(account):
                if name.partition(SEPARATOR)[0] in self.names:
                    self._remember_alive(name)
                else:
                    counter = account.pop(name)
                    counter.names = tuple(other for other in counter.names if other != name)
        return account

    def _remember_alive(self, name: str) -> None:
        if len(self._alive) >= MAX_PLANS:
            self._alive.clear()
        self._alive.add(name)

    def cap(self, policy_id: str, policy: Cap, values: dict[str, str]) -> CapRule:
        """One counter of a cap, in the zone of its policy."""
        zone = self._cap_zone(policy, _NO_LABELS)
        return CapRule(policy_id, policy, values, self._born[policy_id], zone)

    def _make(self, route: str, labels: Labels, share: bool) -> Plan:
        plan = Plan()
        for list_id, suppression in self.book.suppressions.items():
            if _matches(suppression.applies_to, route, labels) and not _bypasses(
                suppression, labels
            ):
                plan.suppressions[list_id] = suppression.legal
        for policy_id, policy in self.book.policies.items():
            if _matches(policy.applies_to, route, labels):
                self._add(plan, policy_id, policy, route, labels)
        if share:
            plan.keep_own()
        return plan.complete(together=self._together)

    def _add(self, plan: Plan, policy_id: str, policy: Policy, route: str, labels: Labels) -> None:
        bypassed = labels.class_ is not None and labels.class_ in policy.bypass
        if bypassed:
            plan.bypassed.append(policy_id)
        if bypassed and not (isinstance(policy, Cap | Pace) and policy.bypass_counts):
            return
        born = self._born[policy_id]
        match policy:
            case Quiet():
                zone = self._zone(labels.tz, policy.zone)
                plan.quiets.append(QuietRule(policy_id, policy, zone))
            case Cap():
                caps = plan.counted if bypassed else plan.caps
                zone = self._cap_zone(policy, labels)
                caps += [
                    CapRule(policy_id, policy, values, born, zone)
                    for values in _values(policy, route, labels)
                ]
            case Pace():
                paces = plan.passed if bypassed else plan.paces
                paces.append(PaceRule(policy_id, policy, born))

    def _cap_zone(self, cap: Cap, labels: Labels) -> str:
        """A cap on people turns by their own calendar; one on everybody by its own."""
        written = cap.window.zone if isinstance(cap.window, CalendarWindow) else None
        return self._zone(labels.tz if Scope.KEY in cap.scope else None, written)

    def _zone(self, *chain: str | None) -> str:
        """The first zone that is given and known here; a label may come from a newer calendar."""
        return next((zone for zone in chain if zone and is_zone(zone)), self._default_zone)


def covers_whole_routes(pace: Pace) -> bool:
    """True if the pace applies to all messages of its routes, whatever their labels."""
    to = pace.applies_to
    by_label = to is not None and any((to.channel, to.campaign, to.class_, to.tag))
    return not (by_label or pace.bypass or pace.shadow or pace.on_exceed is OnExceed.BLOCK)


def _matches(to: AppliesTo | None, route: str, labels: Labels) -> bool:
    if to is None:
        return True
    return (
        (to.route is None or route in to.route)
        and (to.channel is None or labels.channel in to.channel)
        and (to.campaign is None or labels.campaign in to.campaign)
        and (to.class_ is None or labels.class_ in to.class_)
        and (to.tag is None or any(tag in to.tag for tag in labels.tags))
    )


def _bypasses(suppression: Suppression, labels: Labels) -> bool:
    return not suppression.legal and labels.class_ in suppression.bypass


def _values(cap: Cap, route: str, labels: Labels) -> list[dict[str, str]]:
    """The combinations that the message counts in, without the key.

    A missing label: with the key in the scope the message counts as one without it, so that a
    person's cap never fails open; otherwise the cap has nothing to count.
    """
    given: dict[Scope, tuple[str, ...]] = {
        Scope.CHANNEL: () if labels.channel is None else (labels.channel,),
        Scope.CAMPAIGN: () if labels.campaign is None else (labels.campaign,),
        Scope.TAG: tuple(dict.fromkeys(labels.tags)),
        Scope.ROUTE: (route,),
    }
    words = [word for word in cap.scope if word is not Scope.KEY]
    nothing = ("",) if Scope.KEY in cap.scope else ()
    return [
        dict(zip(map(str, words), values, strict=True))
        for values in product(*(given[word] or nothing for word in words))
    ]


def _limit(cap: Cap, zone: str) -> Limit:
    window: Window | None = None
    if isinstance(cap.window, CalendarWindow):
        window = period(cap.window.calendar, zone)
    elif cap.window is not None:
        written = cap.window if isinstance(cap.window, str) else ""
        window = Rolling(parse_duration(cap.window, "window"), written)
    interval = 0 if cap.min_interval is None else parse_duration(cap.min_interval, "min_interval")
    return Limit(cap.limit or 0, window, interval)


def _keeps(policy: Policy) -> int:
    return _limit(policy, DEFAULT_ZONE).keeps() + REMEMBER_MS if isinstance(policy, Cap) else 0
