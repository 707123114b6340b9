"""memory:// under the store suites, on a clock that jumps."""

from __future__ import annotations

import asyncio

from penstock.ports.store import Store
from penstock.stores.memory import open_store
from penstock.testing.clock import ManualClock
from penstock.testing.store_harness import DAY_MS, MANY


class MemoryHarness:
    def __init__(self) -> None:
        self.clock = ManualClock()

    async def open(self, *, retention: int = DAY_MS, retention_count: int = MANY) -> Store:
        return await open_store(
            "memory://", retention=retention, retention_count=retention_count, clock=self.clock
        )

    async def crash(self, store: Store) -> None:
        raise AssertionError(f"{store.name} keeps nothing")

    async def pass_time(self, millis: int) -> None:
        self.clock.jump(millis)
        await asyncio.sleep(0)

    async def close(self) -> None:
        """Nothing is left."""
