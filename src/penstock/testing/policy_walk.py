"""Any store of policies beside the reference: equal answers to equal random traffic."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from hypothesis import strategies as st

from penstock.model.decision import Conclusion, End, Question
from penstock.model.policy import Cap, Pace, Policy, Scope, Suppression
from penstock.model.verdict import Verdict
from penstock.ports.policies import PolicyStore
from penstock.stores.memory.policies import MemoryPolicies
from penstock.testing import policy_worlds as worlds

IDS = st.sampled_from(["p1", "p2", "p3", "p4", "p5"])


class Put(msgspec.Struct, frozen=True):
    id: str
    policy: Policy


class Drop(msgspec.Struct, frozen=True):
    id: str


class Suppress(msgspec.Struct, frozen=True):
    id: str
    suppression: Suppression | None
    add: tuple[str, ...]


class Decide(msgspec.Struct, frozen=True):
    batch: list[Question]
    again: int = 0
    """Messages in flight that are decided once more, …"""
    late: int = 0
    """… milliseconds after the call was made: its reservations end so much sooner."""
    kept: int = 0
    """Messages that keep their reservations for a retry, and are decided now."""


class Conclude(msgspec.Struct, frozen=True):
    number: int
    end: End
    ago: int | None = None
    """RELEASE: milliseconds since the decision whose reservations end; None: any decision. KEEP:
    milliseconds for which it holds longer than a decision would; None: an hour."""


class Wait(msgspec.Struct, frozen=True):
    millis: int


Step: TypeAlias = Put | Drop | Suppress | Decide | Conclude | Wait

decides = st.builds(
    Decide,
    st.lists(worlds.questions(), min_size=1, max_size=12),
    st.integers(0, 3),
    st.sampled_from([0, 0, 1, 1_500]),
    st.sampled_from([0, 1, 3]),
)
concludes = st.builds(
    Conclude,
    st.integers(1, 12),
    st.sampled_from([*End, End.KEEP]),
    st.sampled_from([None, None, 0, 1, 1_500, worlds.HOLD]),
)
steps: st.SearchStrategy[Step] = st.one_of(
    st.builds(Put, IDS, worlds.policies),
    st.builds(Drop, IDS),
    st.builds(
        Suppress,
        st.sampled_from(["s1", "s2"]),
        st.one_of(st.none(), worlds.suppressions),
        st.sampled_from([(), ("cid",)]),
    ),
    decides,
    decides,
    decides,
    concludes,
    st.builds(Wait, worlds.waits),
)
TIGHT: dict[str, Policy] = {
    "p1": Cap(scope=(Scope.KEY,), limit=3, window="1h"),
    "p2": Cap(scope=(Scope.ROUTE,), limit=5, window="1h"),
    "p3": Pace(rate="7/m", burst=2),
}
"""Refuses most, by what is no matter of caps too."""
sequences = st.tuples(
    st.one_of(worlds.books, worlds.books, st.just(TIGHT)), st.lists(steps, min_size=10, max_size=30)
)
traffic: st.SearchStrategy[Step] = st.one_of(
    decides,
    decides,
    concludes,
    st.builds(Wait, worlds.waits),
)
"""Traffic without changes of the rules."""


class Beside:
    """Two stores that get the same calls and must give the same answers."""

    def __init__(self, store: PolicyStore) -> None:
        self.store = store
        self.reference = MemoryPolicies()
        self.now = worlds.START
        self.flying: dict[str, Question] = {}
        self.waiting: dict[str, Question] = {}
        self.kept: dict[str, Question] = {}

    async def walk(self, policies: dict[str, Policy], steps: list[Step]) -> None:
        for policy_id, policy in policies.items():
            await self.step(Put(policy_id, policy))
        for step in steps:
            await self.step(step)
            await self.compare()

    async def step(self, step: Step) -> None:
        match step:
            case Put(policy_id, policy):
                if await self.looks_back_anew(policy_id, policy):
                    await self.step(Drop(policy_id))
                version = await self.store.put_policy(policy_id, policy)
                assert version == await self.reference.put_policy(policy_id, policy)
            case Drop(policy_id):
                dropped = await self.store.drop_policy(policy_id)
                assert dropped == await self.reference.drop_policy(policy_id)
            case Suppress(list_id, suppression, add):
                await self.suppress(list_id, suppression, add)
            case Decide(batch, again, late, kept):
                await self.decide(batch, again, late, kept)
            case Conclude(number, end, ago):
                await self.conclude(number, end, ago)
            case Wait(millis):
                self.now += millis

    async def looks_back_anew(self, policy_id: str, policy: Policy) -> bool:
        """Whether a cap's window changes: messages outside the old one may still count."""
        before = (await self.reference.book()).policies.get(policy_id)
        return (
            isinstance(before, Cap) and isinstance(policy, Cap) and before.window != policy.window
        )

    async def suppress(
        self, list_id: str, suppression: Suppression | None, add: tuple[str, ...]
    ) -> None:
        if suppression is None:
            dropped = await self.store.drop_suppression(list_id)
            assert dropped == await self.reference.drop_suppression(list_id)
            return
        version = await self.store.put_suppression(list_id, suppression)
        assert version == await self.reference.put_suppression(list_id, suppression)
        for store in (self.store, self.reference):
            assert await store.suppress(list_id, add, ("ann",))
            assert not await store.suppress("nobody", add)
        assert await self.store.suppression(list_id) == await self.reference.suppression(list_id)

    async def decide(
        self, batch: list[Question], again: int = 0, late: int = 0, kept: int = 0
    ) -> None:
        """Decide new messages, those whose deferral has ended, some that keep their reservations,
        and some in flight once more."""
        woken = [question for question in self.waiting.values() if question.due <= self.now]
        retried = [self.kept.pop(message_id) for message_id in list(self.kept)[:kept]]
        asked = {question.id: question for question in [*woken, *retried, *batch]}
        questions = [q for q in asked.values() if q.id not in self.flying]
        explained = await self.store.explain(questions, self.now)
        assert explained == await self.reference.explain(questions, self.now)
        questions += list(self.flying.values())[:again]
        hold = worlds.HOLD - late
        decisions = await self.store.decide(questions, self.now, hold)
        assert decisions == await self.reference.decide(questions, self.now, hold)
        for question, decision in zip(questions, decisions, strict=True):
            self.waiting.pop(question.id, None)
            if question.id in self.flying:
                continue
            if decision.verdict is Verdict.ALLOW:
                self.flying[question.id] = question
            elif decision.verdict is Verdict.DEFER:
                self.waiting[question.id] = worlds.woken(question, decision)

    async def conclude(self, number: int, end: End, ago: int | None) -> None:
        ids = list(self.flying)[:number]
        until = self.now + (worlds.HOUR if ago is None else worlds.HOLD + ago)
        if end is End.RELEASE:
            until = 0 if ago is None else self.now + worlds.HOLD - ago
        ended = [self.flying.pop(message_id) for message_id in ids]
        if end is End.KEEP:
            self.kept.update({question.id: question for question in ended})
        conclusions = [Conclusion(question, end, until) for question in ended]
        await self.store.conclude(conclusions, self.now)
        await self.reference.conclude(conclusions, self.now)

    async def compare(self) -> None:
        assert await self.store.book() == await self.reference.book()
        for key in ("ann", "bob", "cid"):
            counters = await self.store.counters(key, self.now)
            assert counters == await self.reference.counters(key, self.now)
        for route in ("push", "mail"):
            allowance = await self.store.allowance(route, self.now)
            assert allowance == await self.reference.allowance(route, self.now)


async def sends(policies: PolicyStore, number: int, now: int, key: str = "ann") -> int:
    """Decide `number` new messages of one key and send the allowed ones; returns their number."""
    asked = [Question(id=f"{key}-{now}-{n}", key=key, due=now) for n in range(number)]
    decisions = await policies.decide(asked, now, worlds.HOLD)
    allowed = [q for q, d in zip(asked, decisions, strict=True) if d.verdict is Verdict.ALLOW]
    await policies.conclude([Conclusion(q, End.COMMIT) for q in allowed], now)
    return len(allowed)


async def check_changes_bind_everywhere(here: PolicyStore, there: PolicyStore) -> None:
    """A change by one process applies to the other's decisions at once."""
    daily = Cap(scope=(Scope.KEY,), limit=2, window="24h")
    assert await sends(here, 3, worlds.START) == 3
    await there.put_policy("daily", daily)
    assert await sends(here, 3, worlds.START + 1) == 2
    assert await sends(there, 3, worlds.START + 2) == 0
    await here.drop_policy("daily")
    assert await sends(there, 3, worlds.START + 3) == 3


async def check_a_release_is_of_its_lease(policies: PolicyStore) -> None:
    """A message returned unsent may be decided by its next lease before the last one releases its
    reservation: the new reservation stays."""
    now = worlds.START
    asked, other = await _reserved(policies, now, now + 1)
    for decided_at, verdict in ((now, Verdict.DEFER), (now + 1, Verdict.ALLOW)):
        end = Conclusion(asked, End.RELEASE, decided_at + worlds.HOLD)
        await policies.conclude([end], now + 1)
        figures = await policies.counters("a", now + 1)
        assert [one.used for one in figures if one.policy == "own"] == [now + 1 - decided_at]
        (decision,) = await policies.explain([other], now + 1)
        assert decision.verdict is verdict


async def check_a_late_decision_takes_nothing(policies: PolicyStore) -> None:
    """The decision of a lease that was given up may take effect after that of the next lease: the
    reservation is that of the next lease, whatever the late decision says."""
    now = worlds.START
    asked, other = await _reserved(policies, now + 5)
    hold = worlds.HOLD
    for verdict in (Verdict.ALLOW, Verdict.BLOCK):
        (late,) = await policies.decide([asked], now, hold)
        assert late.verdict is verdict
        await policies.conclude([Conclusion(asked, End.RELEASE, now + hold)], now + 6)
        figures = await policies.counters("a", now + 6)
        assert [one.used for one in figures if one.policy == "own"] == [1]
        (decision,) = await policies.explain([other], now + 6)
        assert decision.verdict is Verdict.DEFER
        await policies.put_suppression("optout", Suppression(keys=("a",)))
    # One that is not late gives it back.
    (decision,) = await policies.decide([asked], now + 7, hold)
    assert decision.verdict is Verdict.BLOCK
    (decision,) = await policies.explain([other], now + 7)
    assert decision.verdict is Verdict.ALLOW


async def check_a_refused_retry_keeps_nothing(policies: PolicyStore) -> None:
    """A retry that is decided before its due, and refused, gives back what was kept for it: the
    next message gets the unit."""
    now, hold = worlds.START, worlds.HOLD
    asked, other = await _reserved(policies)
    for kept_for in (hold + 1, hold + worlds.MINUTE, worlds.HOUR):
        for is_decided in (True, False):
            now += 1_234
            await policies.drop_suppression("optout")
            await policies.decide([asked], now, hold)
            await policies.conclude([Conclusion(asked, End.KEEP, now + kept_for)], now)
            (decision,) = await policies.explain([other], now)
            assert decision.verdict is Verdict.DEFER
            if is_decided:
                await policies.put_suppression("optout", Suppression(keys=("a",)))
                (decision,) = await policies.decide([asked], now, hold)
                assert decision.verdict is Verdict.BLOCK
            else:  # as one of several keys, another of which refuses
                await policies.conclude([Conclusion(asked, End.RELEASE, now + hold)], now)
            figures = await policies.counters("a", now)
            assert [one.used for one in figures if one.policy == "own"] == [0]
            (decision,) = await policies.decide([other], now, hold)
            assert decision.verdict is Verdict.ALLOW
            await policies.conclude([Conclusion(other, End.RELEASE)], now)


async def check_a_retry_that_may_go_is_its_decisions(policies: PolicyStore) -> None:
    """Once a retry is allowed, its reservation is that decision's: a late one takes nothing."""
    now, hold = worlds.START, worlds.HOLD
    asked, other = await _reserved(policies, now)
    await policies.conclude([Conclusion(asked, End.KEEP, now + worlds.HOUR)], now)
    (decision,) = await policies.decide([asked], now + 5, hold)
    assert decision.verdict is Verdict.ALLOW
    await policies.put_suppression("optout", Suppression(keys=("a",)))
    (late,) = await policies.decide([asked], now, hold)
    assert late.verdict is Verdict.BLOCK
    (decision,) = await policies.explain([other], now + 5)
    assert decision.verdict is Verdict.DEFER
    await policies.conclude([Conclusion(asked, End.RELEASE, now + 5 + hold)], now + 6)
    (decision,) = await policies.explain([other], now + 6)
    assert decision.verdict is Verdict.ALLOW


async def check_a_clock_set_back_keeps_nothing(policies: PolicyStore) -> None:
    """Reservations from before the clock was set back are given back as any other."""
    back, hold = worlds.START - worlds.HOUR, worlds.HOLD
    for is_decided in (True, False):
        asked, other = await _reserved(policies, worlds.START + 1)
        if is_decided:
            await policies.put_suppression("optout", Suppression(keys=("a",)))
            (decision,) = await policies.decide([asked], back, hold)
            assert decision.verdict is Verdict.BLOCK
            await policies.drop_suppression("optout")
        else:
            (decision,) = await policies.decide([asked], back, hold)
            assert decision.verdict is Verdict.ALLOW
            await policies.conclude([Conclusion(asked, End.RELEASE, back + hold)], back)
        (decision,) = await policies.explain([other], back)
        assert decision.verdict is Verdict.ALLOW


async def _reserved(policies: PolicyStore, *moments: int) -> tuple[Question, Question]:
    """A message that was decided at these moments and fills its caps, and another one."""
    for name, scope in (("own", Scope.KEY), ("all", Scope.ROUTE)):
        await policies.put_policy(name, Cap(scope=(scope,), limit=1, window="24h"))
    asked, other = (Question(id=name, key=name, due=worlds.START) for name in "ab")
    for moment in moments:
        (decision,) = await policies.decide([asked], moment, worlds.HOLD)
        assert decision.verdict is Verdict.ALLOW
    return asked, other


async def check_an_id_with_another_key_is_another(policies: PolicyStore) -> None:
    """A purged id may be put again while its first message may still be in flight."""
    now = worlds.START
    await policies.put_policy("own", Cap(scope=(Scope.KEY,), limit=1, window="24h"))
    for key in ("ann", "bob"):
        (decision,) = await policies.decide([Question(id="a", key=key, due=now)], now, worlds.HOLD)
        assert decision.verdict is Verdict.ALLOW
    for key in ("ann", "bob"):
        (decision,) = await policies.decide([Question(id="b", key=key, due=now)], now, worlds.HOLD)
        assert decision.verdict is Verdict.DEFER


async def check_counts_anew_after_a_drop(policies: PolicyStore) -> None:
    daily = Cap(scope=(Scope.KEY,), limit=2, window="24h")
    for _ in range(3):
        await policies.put_policy("daily", daily)
        assert await sends(policies, 3, worlds.START) == 2
        await policies.drop_policy("daily")
