"""Any store of policies beside the reference: equal answers to equal random traffic."""

from __future__ import annotations

from typing import TypeAlias

import msgspec
from hypothesis import strategies as st

from penstock.model.decision import Conclusion, End, Question, mark_of, marked
from penstock.model.policy import Cap, Policy, Scope, Suppression
from penstock.model.verdict import Verdict
from penstock.ports.policies import PolicyStore
from penstock.stores.memory.policies import MemoryPolicies
from penstock.testing import policy_worlds as worlds

IDS = st.sampled_from(["p1", "p2", "p3", "p4", "p5"])
LEASES = 3
"""Number of tokens, so that some conclusions belong to another lease."""


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


class Conclude(msgspec.Struct, frozen=True):
    number: int
    end: End
    token: int = 0
    """The token of the lease that ends; 0 for the one that holds the reservation."""


class Wait(msgspec.Struct, frozen=True):
    millis: int


Step: TypeAlias = Put | Drop | Suppress | Decide | Conclude | Wait

decides = st.builds(Decide, st.lists(worlds.questions(), min_size=1, max_size=12))
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
    st.builds(Conclude, st.integers(1, 12), st.sampled_from(End), st.integers(0, LEASES)),
    st.builds(Wait, worlds.waits),
)
sequences = st.tuples(worlds.books, st.lists(steps, min_size=1, max_size=30))
traffic: st.SearchStrategy[Step] = st.one_of(
    decides,
    decides,
    st.builds(Conclude, st.integers(1, 12), st.sampled_from(End), st.integers(0, LEASES)),
    st.builds(Wait, worlds.waits),
)
"""Traffic without changes of the rules."""


class Beside:
    """Two stores that get the same calls and must give the same answers."""

    def __init__(self, store: PolicyStore) -> None:
        self.store = store
        self.reference = MemoryPolicies()
        self.now = worlds.START
        self.token = 0
        self.flying: dict[str, Question] = {}
        self.waiting: dict[str, Question] = {}

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
            case Decide(batch):
                await self.decide(batch)
            case Conclude(number, end, token):
                await self.conclude(number, end, token)
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

    async def decide(self, batch: list[Question]) -> None:
        """Decide new messages, and those whose deferral has ended."""
        woken = [question for question in self.waiting.values() if question.due <= self.now]
        asked = {question.id: question for question in [*woken, *batch]}
        questions = [q for q in asked.values() if q.id not in self.flying]
        explained = await self.store.explain(questions, self.now)
        assert explained == await self.reference.explain(questions, self.now)
        self.token = self.token % LEASES + 1
        hold = marked(self.now + worlds.HOLD, self.token) - self.now
        decisions = await self.store.decide(questions, self.now, hold)
        assert decisions == await self.reference.decide(questions, self.now, hold)
        for question, decision in zip(questions, decisions, strict=True):
            self.waiting.pop(question.id, None)
            if decision.verdict is Verdict.ALLOW:
                self.flying[question.id] = question
            elif decision.verdict is Verdict.DEFER:
                self.waiting[question.id] = worlds.woken(question, decision)

    async def conclude(self, number: int, end: End, token: int) -> None:
        ids = list(self.flying)[:number]
        mark = mark_of(token) if token else 0
        conclusions = [
            Conclusion(self.flying.pop(message_id), end, self.now + worlds.HOUR, mark)
            for message_id in ids
        ]
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
    for name, scope in (("own", Scope.KEY), ("all", Scope.ROUTE)):
        await policies.put_policy(name, Cap(scope=(scope,), limit=1, window="24h"))
    asked, other = (Question(id=name, key=name, due=now) for name in "ab")
    for token in (1, 2):
        (decision,) = await policies.decide([asked], now, marked(now + worlds.HOLD, token) - now)
        assert decision.verdict is Verdict.ALLOW
    for token, verdict in ((1, Verdict.DEFER), (2, Verdict.ALLOW)):
        await policies.conclude([Conclusion(asked, End.RELEASE, mark=mark_of(token))], now)
        figures = await policies.counters("a", now)
        assert [one.used for one in figures if one.policy == "own"] == [token % 2]
        (decision,) = await policies.explain([other], now)
        assert decision.verdict is verdict


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
