"""The store in plain Python, which simulations measure others by, keeps the port itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio

from penstock.ports.store import MessageStore
from penstock.testing.clock import ManualClock
from penstock.testing.memory_store import MemoryStore
from penstock.testing.store_cases.keyed import KeyedCases
from penstock.testing.store_harness import DAY_MS, MANY
from penstock.testing.store_suite import StoreSuite


class MemoryHarness:
    def __init__(self) -> None:
        self.clock = ManualClock()

    async def open(self, *, retention: int = DAY_MS, retention_count: int = MANY) -> MessageStore:
        return MemoryStore(self.clock, retention=retention, retention_count=retention_count)

    async def crash(self, store: MessageStore) -> None:
        raise AssertionError(f"{store.name} keeps nothing")

    async def pass_time(self, millis: int) -> None:
        self.clock.jump(millis)
        await asyncio.sleep(0)

    async def close(self) -> None:
        """Nothing is left."""


class TestMemoryStore(StoreSuite):
    @pytest_asyncio.fixture
    async def harness(self) -> AsyncIterator[MemoryHarness]:
        yield MemoryHarness()


class TestKeyed(KeyedCases):
    @pytest_asyncio.fixture
    async def harness(self) -> AsyncIterator[MemoryHarness]:
        yield MemoryHarness()
