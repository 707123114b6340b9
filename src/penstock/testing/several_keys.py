"""Messages with several keys on any store of policies: each key is checked, all or nothing."""

from __future__ import annotations

from collections import defaultdict

import msgspec
from hypothesis import strategies as st

from penstock.flow import several
from penstock.flow.conclude import counted, keys_of
from penstock.model.decision import Conclusion, Decision, End
from penstock.model.message import Labels, Message
from penstock.model.policy import Cap, OnExceed, Pace, Policy, Scope, Suppression
from penstock.model.verdict import Verdict
from penstock.ports.policies import PolicyStore
from penstock.stores.memory.policies import MemoryPolicies
from penstock.testing import policy_worlds as worlds

KEYS = ("ann", "bob", "cid", "dan")
WINDOW = 60_000


class Batch(msgspec.Struct, frozen=True):
    """Decide these messages, each about these keys; then end some of those in flight, later."""

    messages: list[tuple[str, ...]]
    concluded: int
    end: End
    wait: int


batches = st.builds(
    Batch,
    st.lists(
        st.lists(st.sampled_from(KEYS), min_size=1, max_size=4, unique=True).map(tuple),
        min_size=1,
        max_size=6,
    ),
    st.integers(0, 6),
    st.sampled_from([End.COMMIT, End.COMMIT, End.RELEASE]),
    st.sampled_from([0, 1_000, WINDOW // 2, WINDOW]),
)
traffic = st.tuples(st.integers(1, 3), st.lists(batches, min_size=1, max_size=12))


def message(name: str, keys: tuple[str, ...], now: int, route: str = "push") -> Message:
    first, *more = keys
    labels = Labels(channel="push", keys=tuple(more)) if more else Labels(channel="push")
    return Message(id=name, route=route, key=first, payload=b"", due=now, labels=labels)


def rules(limit: int) -> dict[str, Policy]:
    """A cap per person and one in common."""
    return {
        "person": Cap(scope=(Scope.KEY,), limit=limit, window="60s"),
        "route": Cap(scope=(Scope.ROUTE,), limit=limit + 3, window="60s"),
    }


class Walk:
    """The same traffic through a store and the reference: the same answers, and no cap exceeded."""

    def __init__(self, store: PolicyStore, limit: int) -> None:
        self.stores = (store, MemoryPolicies())
        self.limit = limit
        self.now = worlds.START
        self.number = 0
        self.flying: list[Message] = []
        self.sent: dict[str, list[int]] = defaultdict(list)
        """Key → when its messages were sent."""

    async def run(self, steps: list[Batch]) -> None:
        for policy_id, policy in rules(self.limit).items():
            for store in self.stores:
                await store.put_policy(policy_id, policy)
        for step in steps:
            await self._decide(step.messages)
            await self._conclude(step.concluded, step.end)
            await self._compare()
            self.now += step.wait

    async def _decide(self, asked: list[tuple[str, ...]]) -> None:
        messages = []
        for keys in asked:
            self.number += 1
            messages.append(message(f"m{self.number}", keys, self.now))
        here, there = [
            await several.decide(store, messages, self.now, worlds.HOLD * 1_000)
            for store in self.stores
        ]
        assert here == there
        for one, decision in zip(messages, here, strict=True):
            if decision.verdict is Verdict.ALLOW:
                self.flying.append(one)

    async def _conclude(self, number: int, end: End) -> None:
        ended, self.flying = self.flying[:number], self.flying[number:]
        conclusions = [Conclusion(one, end) for message in ended for one in counted(message)]
        for store in self.stores:
            if conclusions:
                await store.conclude(conclusions, self.now)
        if end is End.COMMIT:
            for one in ended:
                for key in keys_of(one):
                    self.sent[key].append(self.now)

    async def _compare(self) -> None:
        for key in KEYS:
            here, there = [await store.counters(key, self.now) for store in self.stores]
            assert here == there
            counting = [at for at in self.sent[key] if at > self.now - WINDOW]
            flying = sum(key in keys_of(one) for one in self.flying)
            assert len(counting) + flying <= self.limit
            assert sum(figure.used for figure in here) == len(counting) + flying


async def check_all_or_nothing(store: PolicyStore, now: int) -> None:
    """A refusal for one key leaves the counters of the others unchanged."""
    once = Cap(scope=(Scope.KEY,), limit=1, window="24h", on_exceed=OnExceed.BLOCK)
    await store.put_policy("once", once)
    await store.put_policy("pace", Pace(rate="1/h", burst=3))
    await store.put_suppression("optout", Suppression(keys=("eve",)))

    async def decided(name: str, *keys: str) -> Decision:
        return (await several.decide(store, [message(name, keys, now)], now, 60_000))[0]

    async def used(*keys: str) -> list[int]:
        return [sum(one.used for one in await store.counters(key, now)) for key in keys]

    first = message("first", ("ann", "bob"), now)
    assert (await decided("first", "ann", "bob")).verdict is Verdict.ALLOW
    assert await used("ann", "bob") == [1, 1]

    refused = await decided("second", "cid", "dan", "bob")
    assert (refused.verdict, refused.key) == (Verdict.BLOCK, "bob")
    assert refused.reason is not None
    assert refused.reason.detail.endswith(", of bob")
    assert await used("cid", "dan") == [0, 0]

    suppressed = await decided("third", "cid", "eve")
    assert suppressed.reason is not None
    assert (suppressed.verdict, suppressed.reason.policy) == (Verdict.BLOCK, "optout")
    assert await used("cid") == [0]

    # Deciding again finds the same reservations, and one end ends those of all its keys.
    assert (await decided("first", "ann", "bob")).verdict is Verdict.ALLOW
    assert await used("ann", "bob") == [1, 1]
    await store.conclude([Conclusion(one, End.RELEASE) for one in counted(first)], now)
    assert await used("ann", "bob") == [0, 0]

    # The pace is checked once per message; its refusal releases the reservations of all keys.
    assert (await decided("fourth", "ann", "cid", "dan")).verdict is Verdict.ALLOW
    paced = await decided("fifth", "kim", "lea")
    assert paced.reason is not None
    assert (paced.verdict, paced.reason.policy) == (Verdict.DEFER, "pace")
    assert await used("kim", "lea") == [0, 0]
