"""Redis keeps every promise of the store port: one server, its own clock, a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from penstock.testing.store_cases.fleet import FleetCases
from penstock.testing.store_cases.keyed import KeyedCases
from penstock.testing.store_cases.leases import ClaimCases, LeaseCases, SettleCases
from penstock.testing.store_suite import DurableStoreSuite
from systems.servers.redis import RedisCluster, RedisServer
from tests.conformance.redis_harness import RedisHarness

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster(fails_over=False) as cluster:
        yield cluster


class TestOneServer(DurableStoreSuite, FleetCases):
    @pytest_asyncio.fixture
    async def harness(self, server: RedisServer) -> AsyncIterator[RedisHarness]:
        harness = RedisHarness(server)
        yield harness
        await harness.close()


class TestAnIndexByKey(DurableStoreSuite):
    @pytest_asyncio.fixture
    async def harness(self, server: RedisServer) -> AsyncIterator[RedisHarness]:
        harness = RedisHarness(server, options="?key_index=true")
        yield harness
        await harness.close()


class TestTheServersClock(ClaimCases, SettleCases, LeaseCases):
    @pytest_asyncio.fixture
    async def harness(self, server: RedisServer) -> AsyncIterator[RedisHarness]:
        harness = RedisHarness(server, own_clock=True)
        yield harness
        await harness.close()


class TestCluster(DurableStoreSuite, FleetCases):
    first_by_bytes = False

    @pytest_asyncio.fixture
    async def harness(self, cluster: RedisCluster) -> AsyncIterator[RedisHarness]:
        harness = RedisHarness(cluster, partitions=6)
        yield harness
        await harness.close()


class TestKeyedOnOneServer(KeyedCases):
    @pytest_asyncio.fixture
    async def harness(self, server: RedisServer) -> AsyncIterator[RedisHarness]:
        harness = RedisHarness(server)
        yield harness
        await harness.close()


class TestKeyedOnACluster(KeyedCases):
    first_by_bytes = False

    @pytest_asyncio.fixture
    async def harness(self, cluster: RedisCluster) -> AsyncIterator[RedisHarness]:
        harness = RedisHarness(cluster, partitions=6)
        yield harness
        await harness.close()
