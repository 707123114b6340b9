"""Redis and Redis Cluster decide as the reference does."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, Phase, given, settings

from penstock.model.decision import Conclusion, End, Question
from penstock.model.policy import Cap, Policy, Scope, Suppression
from penstock.model.verdict import Verdict
from penstock.stores.redis import RedisStore, open_store
from tests.conformance.policy_agreement import (
    Beside,
    Step,
    check_changes_bind_everywhere,
    check_counts_anew_after_a_drop,
    sends,
    sequences,
)
from tests.servers.redis import RedisCluster, RedisServer
from tests.unit.limits import worlds

pytestmark = pytest.mark.slow

DAY_MS = 86_400_000
DAILY = Cap(scope=(Scope.KEY,), limit=2, window="24h")
PHASES = [Phase.explicit, Phase.reuse, Phase.generate]
"""Without making a failing sequence smaller: against a server that takes minutes."""
SHARED = [HealthCheck.function_scoped_fixture]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


async def opened(where: RedisServer | RedisCluster) -> RedisStore:
    store = await open_store(where.url, total_partitions=1, retention=60_000, retention_count=1_000)
    assert isinstance(store, RedisStore)
    return store


async def walk(
    where: RedisServer | RedisCluster, sequence: tuple[dict[str, Policy], list[Step]]
) -> None:
    where.flush()
    store = await opened(where)
    try:
        await Beside(store.policies).walk(*sequence)
    finally:
        await store.close()


@settings(max_examples=60, phases=PHASES, suppress_health_check=SHARED)
@given(sequences)
async def test_redis_answers_like_the_reference(
    server: RedisServer, sequence: tuple[dict[str, Policy], list[Step]]
) -> None:
    await walk(server, sequence)


@settings(max_examples=20, phases=PHASES, suppress_health_check=SHARED)
@given(sequences)
async def test_a_cluster_answers_like_the_reference(
    cluster: RedisCluster, sequence: tuple[dict[str, Policy], list[Step]]
) -> None:
    await walk(cluster, sequence)


@pytest_asyncio.fixture
async def store(server: RedisServer) -> AsyncIterator[RedisStore]:
    server.flush()
    store = await opened(server)
    yield store
    await store.close()


async def test_a_change_by_one_process_binds_every_other_at_its_next_decision(
    server: RedisServer, store: RedisStore
) -> None:
    other = await opened(server)
    await check_changes_bind_everywhere(store.policies, other.policies)
    await other.close()


async def test_a_policy_that_was_dropped_and_put_again_counts_anew(store: RedisStore) -> None:
    await check_counts_anew_after_a_drop(store.policies)


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
    monkeypatch.setattr("penstock.stores.redis.policy_book.CHUNK", 7)
    for number in (500, 3, 0):
        keys = tuple(sorted(f"user{n}" for n in range(number)))
        await store.policies.put_suppression("optout", Suppression(keys=keys))
        assert await store.policies.suppression("optout") == Suppression(keys=keys)
        assert await sends(store.policies, 1, worlds.START, "user2") == (number == 0)


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
