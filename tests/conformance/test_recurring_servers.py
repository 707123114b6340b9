"""Rules on the stores that are servers: PostgreSQL, Redis, Redis Cluster, DynamoDB."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from penstock.testing.recurring_suite import MakeHarness, ServerRecurringSuite
from systems.servers.dynamodb import DynamoServer
from systems.servers.postgres import PostgresServer
from systems.servers.redis import RedisCluster, RedisServer
from tests.conformance.dynamodb_harness import TABLE, TieredHarness
from tests.conformance.postgres_harness import PostgresHarness
from tests.conformance.redis_harness import RedisHarness

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def redis_cluster() -> Iterator[RedisCluster]:
    with RedisCluster(fails_over=False) as cluster:
        yield cluster


class TestPostgresRecurring(ServerRecurringSuite):
    examples = 10

    @pytest.fixture
    def make_harness(self, postgres: PostgresServer) -> MakeHarness:
        return partial(PostgresHarness, postgres)


class TestRedisRecurring(ServerRecurringSuite):
    examples = 20

    @pytest.fixture
    def make_harness(self, redis_node: RedisServer) -> MakeHarness:
        return partial(RedisHarness, redis_node)


class TestClusterRecurring(ServerRecurringSuite):
    examples = 5

    @pytest.fixture
    def make_harness(self, redis_cluster: RedisCluster) -> MakeHarness:
        return partial(RedisHarness, redis_cluster)


class TestDynamoRecurring(ServerRecurringSuite):
    examples = 5

    @pytest.fixture
    def make_harness(self, dynamodb_node: DynamoServer, redis_node: RedisServer) -> MakeHarness:
        dynamodb_node.make_table(TABLE)
        return partial(TieredHarness, dynamodb_node, redis_node)
