"""Redis under the store suites: real servers, on a clock that jumps or on their own.

The clock that jumps begins a day ago: scripts hold every `now` against the server's own time, so
it may be behind but not ahead.
"""

from __future__ import annotations

import asyncio
import time

from penstock.ports.store import Store
from penstock.stores.redis import open_store
from penstock.testing.clock import ManualClock
from penstock.testing.store_harness import DAY_MS, MANY
from systems.servers.redis import RedisCluster, RedisServer, patient


class RedisHarness:
    def __init__(
        self,
        server: RedisServer | RedisCluster,
        *,
        partitions: int = 8,
        options: str = "",
        own_clock: bool = False,
    ) -> None:
        self._server = server
        self._clock = None if own_clock else ManualClock(int(time.time()) * 1000 - DAY_MS)
        self._partitions = partitions
        self._options = options
        self._crashed: list[Store] = []
        server.flush()

    async def open(self, *, retention: int = DAY_MS, retention_count: int = MANY) -> Store:
        return await open_store(
            patient(self._server.url + self._options),
            total_partitions=self._partitions,
            retention=retention,
            retention_count=retention_count,
            clock=self._clock,
        )

    async def crash(self, store: Store) -> None:
        """A killed process just stops calling: nothing it knew is used again."""
        self._crashed.append(store)

    async def pass_time(self, millis: int) -> None:
        if self._clock is None:
            await asyncio.sleep(millis / 1000)
        else:
            self._clock.jump(millis)
            await asyncio.sleep(0.001)

    async def close(self) -> None:
        for store in self._crashed:
            await store.close()
