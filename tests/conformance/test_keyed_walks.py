"""Promises per key: every store and the plain book agree on every walk Hypothesis finds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings

from penstock.model.route import KeyLimit
from penstock.stores.redis.messages import turns
from penstock.testing.keyed_walk import Step, limits, walk, walks
from systems.servers.dynamodb import DynamoServer
from systems.servers.postgres import PostgresServer
from systems.servers.redis import RedisCluster, RedisServer
from tests.conformance.dynamodb_harness import TieredHarness
from tests.conformance.postgres_harness import PostgresHarness
from tests.conformance.redis_harness import RedisHarness
from tests.conformance.sqlite_harness import SqliteHarness

SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.differing_executors]


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(fails_over=False) as cluster:
        yield cluster


@settings(max_examples=10, suppress_health_check=SHARED)
@given(limits(), walks())
async def test_sqlite_keeps_turns(per_key: KeyLimit, steps: list[Step]) -> None:
    await walk(SqliteHarness("?synchronous=normal"), per_key, steps)


@settings(max_examples=10, suppress_health_check=SHARED)
@given(per_key=limits(), steps=walks())
async def test_postgres_keeps_turns(
    postgres: PostgresServer, per_key: KeyLimit, steps: list[Step]
) -> None:
    await walk(PostgresHarness(postgres), per_key, steps)


@pytest.fixture
def _nothing_to_mend(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mending is for what processes did that knew nothing: here all know."""

    def fail(*_: object) -> None:
        raise AssertionError("turns and messages are not in step")

    monkeypatch.setattr(turns, "mend", fail)


@pytest.mark.slow
@pytest.mark.usefixtures("_nothing_to_mend")
@settings(max_examples=8, suppress_health_check=SHARED)
@given(limits(), walks())
async def test_redis_keeps_turns(server: RedisServer, per_key: KeyLimit, steps: list[Step]) -> None:
    await walk(RedisHarness(server), per_key, steps)


@pytest.mark.slow
@pytest.mark.usefixtures("_nothing_to_mend")
@settings(max_examples=3, suppress_health_check=SHARED)
@given(limits(), walks(30))
async def test_a_redis_cluster_keeps_turns(
    cluster: RedisCluster, per_key: KeyLimit, steps: list[Step]
) -> None:
    await walk(RedisHarness(cluster, partitions=6), per_key, steps, all_at_once=True)


@pytest.fixture(scope="module")
def local(dynamodb_node: DynamoServer) -> DynamoServer:
    dynamodb_node.make_table("walks", shards=2)
    return dynamodb_node


@pytest.mark.slow
@settings(max_examples=2, suppress_health_check=SHARED)
@given(limits(), walks(30))
async def test_the_tiered_store_keeps_turns(
    local: DynamoServer, server: RedisServer, per_key: KeyLimit, steps: list[Step]
) -> None:
    await walk(TieredHarness(local, server, "walks"), per_key, steps, alone=False)
