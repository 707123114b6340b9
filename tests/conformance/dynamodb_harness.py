"""The tiered store under the store suites: a real Redis, DynamoDB Local (or its stand-in)."""

from __future__ import annotations

import asyncio
import time

from penstock.ports.store import Store
from penstock.stores.dynamodb import open_store
from penstock.testing.clock import ManualClock
from penstock.testing.store_harness import DAY_MS, MANY
from systems.servers.dynamodb import DynamoServer
from systems.servers.redis import RedisCluster, RedisServer

TABLE = "conformance"


class TieredHarness:
    """One table, emptied for each test; its clock is behind Redis' own, as it must be."""

    def __init__(
        self, dynamodb: DynamoServer, redis: RedisServer | RedisCluster, table: str = TABLE
    ) -> None:
        self._clock = ManualClock(int(time.time()) * 1000 - DAY_MS)
        self._url = dynamodb.url(table, redis.url, forget="exact", figures="0s", timeout="30s")
        self._crashed: list[Store] = []
        dynamodb.empty(table)
        redis.flush()

    async def open(self, *, retention: int = DAY_MS, retention_count: int = MANY) -> Store:
        return await open_store(
            self._url,
            total_partitions=4,
            retention=retention,
            retention_count=retention_count,
            clock=self._clock,
        )

    async def crash(self, store: Store) -> None:
        """A killed process just stops calling: nothing it knew is used again."""
        self._crashed.append(store)

    async def pass_time(self, millis: int) -> None:
        self._clock.jump(millis)
        await asyncio.sleep(0.001)

    async def close(self) -> None:
        for store in self._crashed:
            await store.close()
