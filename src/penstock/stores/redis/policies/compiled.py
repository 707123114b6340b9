"""Plans compiled to the numbers that the scripts take: the calendar is evaluated once per batch.

The shapes are those of common.lua and shared.lua.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from penstock.limits.engine import Finding, Findings, quiet_findings
from penstock.limits.rules import CapRule, PaceRule, Plan, Rules
from penstock.limits.window import Rolling
from penstock.model.decision import Subject
from penstock.redis_kit.runner import Plan as Packed
from penstock.redis_kit.runner import raw

COUNTED, SHADOW, ACTING = 0, 1, 2
NEVER_FULL = 1_000_000

_encode = msgspec.msgpack.Encoder().encode


class CompiledPlan:
    """One plan at one moment, as numbers: the same for all its messages."""

    def __init__(self, plan: Plan, now: int) -> None:
        self.plan = plan
        self.now = now
        self.quiets: Findings = quiet_findings(plan, now)
        self.is_quiet = any(not finding.rule.shadow for finding in self.quiets)
        caps = [(place, cap, _kind(cap, place < len(plan.caps))) for place, cap in _all_caps(plan)]
        self.keyed = [(place, cap) for place, cap, _ in caps if cap.account is None]
        """(place in the plan, cap) in the order of the script's caps."""
        self.shared = [(place, cap) for place, cap, _ in caps if cap.account is not None]
        self.keyed_caps = [_cap(cap, kind, now) for _, cap, kind in caps if cap.account is None]
        self.shared_caps = [
            _cap(cap, kind, now) for _, cap, kind in caps if cap.account is not None
        ]
        self.tail = _tail(self.keyed_caps)
        self.paces = plan.all_paces()
        self.lists = list(plan.suppressions)
        self.with_key = bool(self.keyed or self.lists)
        self.with_all = bool(self.shared or self.paces)
        self.defers = any(
            rule.max_defer is not None for rule in [*plan.caps, *plan.paces, *plan.quiets]
        )

    @property
    def is_plain(self) -> bool:
        """True if only caps and paces decide about its messages now."""
        return not (self.quiets or self.defers)

    def shared_plan(self, counters: dict[str, int]) -> Packed:
        """Its shared part; `counters`: the number of each counter in the call."""
        caps = [
            [counters[cap.counter], numbers]
            for (_, cap), numbers in zip(self.shared, self.shared_caps, strict=True)
        ]
        acting = len(self.plan.paces)
        paces = [_pace(pace, place < acting) for place, pace in enumerate(self.paces)]
        return [caps, paces, self._quiet_ahead() if acting else []]

    def _quiet_ahead(self) -> list[int]:
        spans: list[int] = []
        for quiet in self.plan.quiets:
            if not quiet.shadow:
                for span in quiet.hours.ahead(self.now):
                    spans += span
        return spans

    def shared_finding(self, rule: int, until: int, used: int) -> tuple[int, Finding]:
        """(index among the plan's rules, the finding of a shared rule)."""
        if rule <= len(self.shared):
            place, cap = self.shared[rule - 1]
            return place, Finding(cap, until, used)
        number = rule - len(self.shared) - 1
        return len(self.plan.caps) + number, Finding(self.paces[number], until)

    def keyed_finding(self, rule: int, until: int, used: int) -> tuple[int, Finding]:
        place, cap = self.keyed[rule - 1]
        return place, Finding(cap, until, used)


class PlanCompiler:
    """Compiles the plans that a batch needs, each once."""

    def __init__(self, rules: Rules, now: int) -> None:
        self._rules = rules
        self._now = now
        self._known: dict[int, CompiledPlan] = {}

    def each(self, subjects: Sequence[Subject]) -> list[CompiledPlan]:
        """The compiled plan of each message; most of a batch share one."""
        return [self._of(plan) for plan in self._rules.plans(subjects)]

    def _of(self, plan: Plan) -> CompiledPlan:
        numbers = self._known.get(id(plan))
        if numbers is None:
            numbers = self._known[id(plan)] = CompiledPlan(plan, self._now)
        return numbers


def _all_caps(plan: Plan) -> list[tuple[int, CapRule]]:
    return list(enumerate(plan.all_caps()))


def _kind(rule: CapRule | PaceRule, enforced: bool) -> int:
    """`enforced`: not bypassed by the message's class."""
    if not enforced:
        return COUNTED
    return SHADOW if rule.shadow else ACTING


def _cap(cap: CapRule, kind: int, now: int) -> Packed:
    limit, window = cap.limit, cap.limit.window
    blocks, defers = int(cap.blocks), cap.max_defer if cap.max_defer is not None else False
    if window is None:
        times: Packed = [False, 0, 0, 0, 0]
    else:
        rolling = isinstance(window, Rolling)
        grain = now if limit.exact else window.grain(now)
        times = [
            window.floor(now),
            window.length if isinstance(window, Rolling) else 0,
            0 if rolling else window.leaves(now, now),
            now - window.keeps,
            grain,
        ]
    head = [cap.counter, kind, limit.limit, limit.interval]
    return [*head, *times, int(limit.exact), blocks, defers, int(cap.shadow)]


def _tail(caps: list[Packed]) -> Packed | bool:
    """The part for messages that may take the short way of keyed.lua; False: they may not.

    A shadow counts only some of them, and a cap that counts in steps writes another moment than
    that of the send.
    """
    named: Packed = []
    sure = NEVER_FULL
    for name, kind, limit, interval, floor, *_, exact, _, _, shadow in caps:
        if shadow or not exact:
            return False
        named += (name, int(floor is not False))
        if kind != COUNTED:
            sure = min(sure, 0 if interval else limit)
    if not named:
        return False
    packed = _encode(named)
    return [raw(len(packed).to_bytes(2, "big") + packed), sure]


def _pace(pace: PaceRule, enforced: bool) -> Packed:
    rate = pace.rate
    return [
        pace.state,
        _kind(pace, enforced),
        rate.ticks,
        rate.gap,
        rate.slack,
        int(pace.whole),
        int(pace.blocks),
        pace.max_defer if pace.max_defer is not None else False,
    ]
