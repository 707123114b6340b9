"""Redis keeps every promise of the store port: one server, one partition, a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from penstock.testing.store_suite import DurableStoreSuite
from tests.conformance.redis_harness import RedisHarness
from tests.servers.redis import RedisCluster, RedisServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


class TestOneServer(DurableStoreSuite):
    @pytest_asyncio.fixture
    async def harness(self, server: RedisServer) -> AsyncIterator[RedisHarness]:
        harness = RedisHarness(server)
        yield harness
        await harness.close()
