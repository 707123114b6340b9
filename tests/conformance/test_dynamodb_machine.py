"""DynamoDB + Redis and the reference in memory agree on every walk Hypothesis finds."""

from __future__ import annotations

from typing import ClassVar

import pytest
from hypothesis import settings

from penstock.testing.store_machine import StoreMachine
from systems.servers.dynamodb import DynamoServer
from systems.servers.redis import RedisServer
from tests.conformance.dynamodb_harness import TieredHarness

TABLE = "walks"


class TieredMachine(StoreMachine):
    servers: ClassVar[tuple[DynamoServer, RedisServer]]
    """One of each for all walks; Hypothesis makes the machine, so they are left here."""

    def make_harness(self) -> TieredHarness:
        return TieredHarness(*self.servers, TABLE)


@pytest.fixture(scope="module", autouse=True)
def servers(dynamodb_node: DynamoServer, redis_node: RedisServer) -> None:
    dynamodb_node.make_table(TABLE, shards=3)
    TieredMachine.servers = (dynamodb_node, redis_node)


TestDynamoDBMachine = pytest.mark.slow(TieredMachine.TestCase)
TestDynamoDBMachine.settings = settings(max_examples=7, stateful_step_count=30)
