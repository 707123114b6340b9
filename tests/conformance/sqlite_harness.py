"""SQLite under the store suites: a file or memory, on a clock that jumps."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path

from penstock.ports.store import Store
from penstock.stores.sqlite import open_store
from penstock.testing.clock import ManualClock
from penstock.testing.store_harness import DAY_MS, MANY


class SqliteHarness:
    def __init__(self, options: str = "", *, in_memory: bool = False) -> None:
        self.clock = ManualClock()
        self._options = options
        self._in_memory = in_memory
        self._folder = Path(tempfile.mkdtemp(prefix="penstock-test-"))
        self._file = self._folder / "0.db"
        self._crashed: list[Store] = []

    async def open(self, *, retention: int = DAY_MS, retention_count: int = MANY) -> Store:
        return await open_store(
            f"sqlite:///{':memory:' if self._in_memory else self._file}{self._options}",
            total_partitions=8,
            retention=retention,
            retention_count=retention_count,
            clock=self.clock,
        )

    async def crash(self, store: Store) -> None:
        """What a killed process leaves is what is in its files now: go on with a copy of them."""
        copy = self._file.with_stem(str(len(self._crashed) + 1))
        shutil.copy(self._file, copy)
        shutil.copy(f"{self._file}-wal", f"{copy}-wal")
        self._file = copy
        self._crashed.append(store)

    async def pass_time(self, millis: int) -> None:
        self.clock.jump(millis)
        await asyncio.sleep(0)

    async def close(self) -> None:
        for store in self._crashed:
            await store.close()
        shutil.rmtree(self._folder)
