"""Redis and Redis Cluster decide as the reference does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import pytest_asyncio
from hypothesis import Phase
from msgspec.structs import replace

from penstock.flow.conclude import sent
from penstock.model.decision import Conclusion, End, Question
from penstock.model.errors import StoreUnavailable
from penstock.model.message import Labels, NewMessage
from penstock.model.outcome import Settlement
from penstock.model.policy import AppliesTo, Cap, Pace, Scope, Suppression
from penstock.model.state import State
from penstock.model.verdict import Verdict
from penstock.redis_kit import runner
from penstock.stores.redis import RedisStore, open_store
from penstock.testing import policy_worlds as worlds
from penstock.testing.policy_suite import MakeHarness, SharedPolicySuite
from penstock.testing.policy_walk import (
    Beside,
    Conclude,
    Decide,
    Drop,
    Put,
    Step,
    Wait,
    sends,
)
from systems.servers.redis import RedisCluster, RedisServer, patient
from tests.conformance.redis_harness import RedisHarness

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000
DAILY = Cap(scope=(Scope.KEY,), limit=2, window="24h")
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
"""Without making a failing sequence smaller: against a server that takes minutes."""


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(fails_over=False) as cluster:
        yield cluster


async def opened(where: RedisServer | RedisCluster) -> RedisStore:
    store = (
        await open_store(
            patient(where.url), total_partitions=1, retention=60_000, retention_count=1_000
        )
    ).messages
    assert isinstance(store, RedisStore)
    return store


class TestRedisPolicies(SharedPolicySuite):
    examples = 60
    phases = PHASES

    @pytest.fixture
    def make_harness(self, server: RedisServer) -> MakeHarness:
        return lambda: RedisHarness(server, partitions=1)


class TestClusterPolicies(SharedPolicySuite):
    examples = 20
    phases = PHASES

    @pytest.fixture
    def make_harness(self, cluster: RedisCluster) -> MakeHarness:
        return lambda: RedisHarness(cluster, partitions=1)


@pytest_asyncio.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    server.flush()
    store = await opened(server)
    yield store
    await store.close()


async def test_a_server_that_forgot_its_scripts_goes_on(
    server: RedisServer, store: RedisStore
) -> None:
    await store.policies.put_policy("daily", DAILY)
    for number in range(3):
        server.cli("SCRIPT", "FLUSH")
        assert await sends(store.policies, 1, worlds.START + number) == (number < 2)


async def test_a_book_that_lost_its_last_change_goes_on_with_what_it_has(
    server: RedisServer, store: RedisStore
) -> None:
    """As when a server fails before its replica has the change, which a counter shard has seen."""
    await store.policies.put_policy("daily", DAILY)
    await store.policies.put_policy("other", DAILY)
    server.cli("HDEL", "penstock:policies", "pother")
    server.cli("HSET", "penstock:policies", "v", "1")
    fresh = await opened(server)
    for policies in (fresh.policies, store.policies):
        assert await sends(policies, 3, worlds.START) <= 2
        assert list((await policies.book()).policies) == ["daily"]
    assert (await fresh.policies.book()).version == 3
    await fresh.close()


async def test_counters_do_not_stay_for_ever(server: RedisServer, store: RedisStore) -> None:
    await store.policies.put_policy("daily", DAILY)
    await store.policies.put_policy("all", Cap(scope=(Scope.ROUTE,), limit=50, window="24h"))
    await sends(store.policies, 1, worlds.START)
    names = [name for name in server.cli("KEYS", "*}:n:*").split("\n") if name[-2:] != ":v"]
    assert len(names) >= 3
    assert all(int(server.cli("PTTL", name)) > DAY_MS for name in names)


async def test_a_long_suppression_list_is_kept_whole_and_replaced_at_once(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.stores.redis.policies.book.CHUNK", 7)
    for number in (500, 3, 0):
        keys = tuple(sorted(f"user{n}" for n in range(number)))
        await store.policies.put_suppression("optout", Suppression(keys=keys))
        assert await store.policies.suppression("optout") == Suppression(keys=keys)
        assert await sends(store.policies, 1, worlds.START, "user2") == (number == 0)


async def test_a_busy_key_is_counted_like_the_reference(store: RedisStore) -> None:
    """More messages than the short form of an account takes, by plans that take turns."""
    day = Cap(scope=(Scope.KEY,), limit=70, window="24h")
    often = Cap(scope=(Scope.KEY, Scope.CHANNEL), limit=40, window="5m")
    beside = Beside(store.policies)
    steps: list[Step] = [Put("day", day), Put("often", often)]
    for turn in range(28):
        labels = Labels(channel="sms" if turn % 9 < 6 else "app")
        batch = [
            Question(id=f"{turn}-{n}", key="ann", due=beside.now, labels=labels) for n in range(4)
        ]
        end = (End.COMMIT, End.COMMIT, End.KEEP, End.COMMIT, End.RELEASE)[turn % 5]
        steps += [Decide(batch), Conclude(3, end), Wait(worlds.MINUTE if turn % 8 else 5_000)]
    steps += [
        Put("often", Cap(scope=(Scope.KEY,), limit=60, window="1h")),
        Conclude(99, End.COMMIT),
    ]
    steps += [Decide([Question(id="last", key="ann", due=beside.now)]), Drop("day"), steps[2]]
    for step in steps:
        await beside.step(step)
        await beside.compare()


async def test_what_was_expected_to_be_refused_and_is_not_takes_its_places(
    store: RedisStore,
) -> None:
    """The last of a batch that is decided in two rounds, and has a slot of the pace."""
    beside = Beside(store.policies)
    to = AppliesTo(class_=("promotional",))
    await beside.step(Put("each", Cap(scope=(Scope.KEY,), limit=1, window="24h")))
    await beside.step(Put("slow", Pace(rate="1/s", burst=1, applies_to=to)))
    first, waits = (_promotion(name, beside.now) for name in ("first", "waits"))
    await beside.step(Decide([first]))
    await beside.step(Decide([waits]))
    (woken,) = beside.waiting.values()
    now = beside.now = woken.due
    batch = [_promotion("a", now, "k"), Question(id="b", key="k", due=now), woken]
    for policies in (store.policies, beside.reference):
        said = await policies.decide(batch, now, worlds.HOLD)
        assert [one.verdict for one in said] == [Verdict.DEFER, Verdict.ALLOW, Verdict.ALLOW]
        more = [Question(id="c", key=woken.key, due=now)]
        assert (await policies.decide(more, now, worlds.HOLD))[0].verdict is Verdict.DEFER


def _promotion(name: str, due: int, key: str = "") -> Question:
    return Question(id=name, key=key or name, due=due, labels=Labels(class_="promotional"))


@pytest.mark.parametrize("kind", ["server", "cluster"])
async def test_many_at_once_never_exceed_a_cap(kind: str, request: pytest.FixtureRequest) -> None:
    """Callers on connections of their own, deciding about the same few keys in one route."""
    where = request.getfixturevalue(kind)
    where.flush()
    stores = [await opened(where) for _ in range(4)]
    caps = {"each": DAILY, "all": Cap(scope=(Scope.ROUTE,), limit=9, window="24h")}
    for name, cap in caps.items():
        await stores[0].policies.put_policy(name, cap)

    async def caller(number: int) -> list[Question]:
        gone: list[Question] = []
        policies = stores[number % 4].policies
        for turn in range(5):
            now = worlds.START + turn
            batch = [
                Question(id=f"{number}-{turn}-{n}", key=f"k{n % 7}", due=now) for n in range(10)
            ]
            decisions = await policies.decide(batch, now, worlds.HOLD)
            pairs = zip(batch, decisions, strict=True)
            allowed = [q for q, d in pairs if d.verdict is Verdict.ALLOW]
            gone += allowed
            await policies.conclude([Conclusion(q, End.COMMIT) for q in allowed], now)
        return gone

    sent = [q for gone in await asyncio.gather(*map(caller, range(12))) for q in gone]
    assert len(sent) == 9
    assert max(Counter(q.key for q in sent).values()) <= 2
    for store in stores:
        await store.close()


async def claimed(store: RedisStore, number: int) -> list[Settlement]:
    """So many messages, each decided about, as they are when their sends have succeeded."""
    now = store.clock.now()
    names = [f"m{n}" for n in range(number)]
    new = [
        NewMessage(id=name, route="r", key=f"user{n % 5}", payload=b"1", due=now, labels=SPRING)
        for n, name in enumerate(names)
    ]
    await store.put(new, now)
    claim = await store.claim("r", number, 30_000, now)
    decisions = await store.policies.decide(claim.messages, now, 60_000)
    assert all(decision.verdict is Verdict.ALLOW for decision in decisions)
    return [
        Settlement(message=message, token=claim.token, state=State.DELIVERED, event="delivered")
        for message in claim.messages
    ]


def scripts_run(server: RedisServer) -> int:
    with server.client as client:
        return int(client.info("commandstats")["cmdstat_evalsha"]["calls"])


SPRING = Labels(campaign="spring")
SHARED_AND_OWN = {
    "own": Cap(scope=(Scope.KEY,), limit=10, window="24h"),
    "all": Cap(scope=(Scope.CAMPAIGN,), limit=50, window="24h"),
}
"""Fifty to five people are as many as each lets through."""


async def full(store: RedisStore, key: str, settlements: list[Settlement]) -> set[str]:
    """The caps that refuse one more to this key, once every place that is only held is free."""
    now = store.clock.now()
    held = [Conclusion(one.message, End.RELEASE) for one in settlements]
    await store.policies.conclude(held, now)
    more = Question(id="more", key=key, due=now, labels=SPRING)
    decision = (await store.policies.explain([more], now))[0]
    return {rule.policy for rule in decision.rules if rule.verdict is Verdict.DEFER}


@pytest.mark.parametrize("names", [("own",), ("all",), ("own", "all")])
async def test_what_was_sent_is_counted_and_settled_in_one_call(
    server: RedisServer, store: RedisStore, names: tuple[str, ...]
) -> None:
    for name in names:
        await store.policies.put_policy(name, SHARED_AND_OWN[name])
    settlements = await claimed(store, 50)
    await store.settle_counted(settlements[:10], sent(settlements[:10]), store.clock.now())
    before = scripts_run(server)
    states = await store.settle_counted(settlements, sent(settlements), store.clock.now())
    assert scripts_run(server) == before + 1
    assert states == [None] * 10 + [State.DELIVERED] * 40
    assert await full(store, "user1", settlements) == set(names)


async def test_nothing_is_settled_that_newer_rules_have_not_counted(
    server: RedisServer, store: RedisStore
) -> None:
    await store.policies.put_policy("own", SHARED_AND_OWN["own"])
    settlements = await claimed(store, 50)
    beside = await opened(server)
    await beside.policies.put_policy("all", SHARED_AND_OWN["all"])
    now = store.clock.now()
    await beside.policies.decide([Question(id="q", key="q", due=now)], now, 60_000)
    states = await store.settle_counted(settlements, sent(settlements), store.clock.now())
    await beside.close()
    assert states == [State.DELIVERED] * 50
    assert await full(store, "somebody else", settlements) == {"all"}


@pytest.mark.parametrize("limit", ["MAX_ARGUMENTS", "MAX_GROUPS"])
async def test_what_is_too_long_for_one_call_is_counted_and_then_settled(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    monkeypatch.setattr(runner, limit, 0 if limit == "MAX_GROUPS" else 10)
    for name, cap in SHARED_AND_OWN.items():
        await store.policies.put_policy(name, cap)
    settlements = await claimed(store, 50)
    states = await store.settle_counted(settlements, sent(settlements), store.clock.now())
    assert states == [State.DELIVERED] * 50
    assert await full(store, "user1", settlements) == {"own", "all"}


async def test_a_batch_that_is_not_all_delivered_is_counted_all_the_same(
    store: RedisStore,
) -> None:
    await store.policies.put_policy("own", SHARED_AND_OWN["own"])
    settlements = await claimed(store, 10)
    dead = [replace(one, state=State.DEAD, event="dead") for one in settlements[:5]]
    batch = [*dead, *settlements[5:]]
    states = await store.settle_counted(batch, sent(batch), store.clock.now())
    assert states == [State.DEAD] * 5 + [State.DELIVERED] * 5


async def test_a_settlement_whose_answer_was_lost_is_known_when_it_is_made_again(
    store: RedisStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.policies.put_policy("own", SHARED_AND_OWN["own"])
    settlements = await claimed(store, 10)
    subjects = sent(settlements)
    ran = runner.Runner.run_chain

    async def lost(self: runner.Runner, *call: Any) -> list[list[object]]:
        await ran(self, *call)
        raise StoreUnavailable("the answer was lost", retry_after=0)

    with monkeypatch.context() as away:
        away.setattr(runner.Runner, "run_chain", lost)
        with pytest.raises(StoreUnavailable):
            await store.settle_counted(settlements, subjects, store.clock.now())
    states = await store.settle_counted(settlements, subjects, store.clock.now())
    assert states == [State.DELIVERED] * 10
    found = await store.policies.counters("user1", store.clock.now())
    assert [one.used for one in found] == [2]
