"""DynamoDB + Redis keeps every promise of the store port."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio

from penstock.testing.store_cases.fleet import FleetCases
from penstock.testing.store_cases.keyed import KeyedCases
from penstock.testing.store_cases.leases import SettleCases
from penstock.testing.store_suite import DurableStoreSuite
from systems.servers.dynamodb import DynamoServer, Moto
from systems.servers.redis import RedisServer
from tests.conformance.dynamodb_harness import TABLE, TieredHarness

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def local(dynamodb_node: DynamoServer) -> DynamoServer:
    dynamodb_node.make_table(TABLE)
    return dynamodb_node


@pytest.fixture(scope="module")
def moto(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoServer]:
    server = Moto(Path(tmp_path_factory.mktemp("moto")))
    server.start()
    server.make_table(TABLE)
    yield server
    server.kill()


class TestDynamoDBStore(DurableStoreSuite, FleetCases):
    @pytest_asyncio.fixture
    async def harness(
        self, local: DynamoServer, redis_node: RedisServer
    ) -> AsyncIterator[TieredHarness]:
        harness = TieredHarness(local, redis_node)
        yield harness
        await harness.close()


class TestDynamoDBWithoutStatements(SettleCases):
    """Where PartiQL is missing, writes go one by one."""

    @pytest_asyncio.fixture
    async def harness(
        self, moto: DynamoServer, redis_node: RedisServer
    ) -> AsyncIterator[TieredHarness]:
        harness = TieredHarness(moto, redis_node)
        yield harness
        await harness.close()


class TestKeyed(KeyedCases):
    @pytest_asyncio.fixture
    async def harness(
        self, local: DynamoServer, redis_node: RedisServer
    ) -> AsyncIterator[TieredHarness]:
        harness = TieredHarness(local, redis_node)
        yield harness
        await harness.close()
