"""Redis under the store suites: a real server, whose own clock counts."""

from __future__ import annotations

import asyncio

from penstock.ports.store import MessageStore
from penstock.stores.redis import open_store
from penstock.testing.store_harness import DAY_MS, MANY
from tests.servers.redis import RedisCluster, RedisServer


class RedisHarness:
    def __init__(
        self, server: RedisServer | RedisCluster, *, partitions: int = 8, options: str = ""
    ) -> None:
        self._server = server
        self._partitions = partitions
        self._options = options
        self._crashed: list[MessageStore] = []
        server.flush()

    async def open(self, *, retention: int = DAY_MS, retention_count: int = MANY) -> MessageStore:
        return await open_store(
            self._server.url + self._options,
            total_partitions=self._partitions,
            retention=retention,
            retention_count=retention_count,
        )

    async def crash(self, store: MessageStore) -> None:
        """A killed process just stops calling: nothing it knew is used again."""
        self._crashed.append(store)

    async def pass_time(self, millis: int) -> None:
        await asyncio.sleep(millis / 1000)

    async def close(self) -> None:
        for store in self._crashed:
            await store.close()
