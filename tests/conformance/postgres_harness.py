"""PostgreSQL under the store suites: a schema for each test, on a clock that jumps.

The clock that jumps begins a day ago: claims hold every `now` against the server's own time, so it
may be behind but not ahead.
"""

from __future__ import annotations

import asyncio
import itertools
import time

from penstock.ports.store import Store
from penstock.stores.postgres import DRIVER, open_store
from penstock.stores.postgres.address import with_schema
from penstock.testing.clock import ManualClock
from penstock.testing.store_harness import DAY_MS, MANY
from systems.servers.postgres import PgBouncer, PostgresServer

_NUMBERS = itertools.count()


class PostgresHarness:
    def __init__(self, server: PostgresServer | PgBouncer, *, own_clock: bool = False) -> None:
        self.url = with_schema(server.url, f"test_{next(_NUMBERS)}") + "&connections=2"
        self._clock = None if own_clock else ManualClock(int(time.time()) * 1000 - DAY_MS)
        self._crashed: list[Store] = []

    async def open(self, *, retention: int = DAY_MS, retention_count: int = MANY) -> Store:
        return await open_store(
            self.url,
            total_partitions=8,
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
        assert DRIVER.scratch is not None
        await DRIVER.scratch.erase(self.url)
