"""SQLite keeps every promise of the store port: in a file, in memory, with a writer thread."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.testing.store_cases.fleet import FleetCases
from penstock.testing.store_cases.keyed import KeyedCases
from penstock.testing.store_suite import DurableStoreSuite, StoreSuite
from tests.conformance.sqlite_harness import SqliteHarness


class TestFile(DurableStoreSuite, FleetCases):
    @pytest_asyncio.fixture
    async def harness(self) -> AsyncIterator[SqliteHarness]:
        harness = SqliteHarness()
        yield harness
        await harness.close()


@pytest.mark.slow  # the same promises once more
class TestWriterThread(DurableStoreSuite):
    @pytest_asyncio.fixture
    async def harness(self) -> AsyncIterator[SqliteHarness]:
        harness = SqliteHarness("?writer=thread&synchronous=normal")
        yield harness
        await harness.close()


class TestMemory(StoreSuite, FleetCases):
    @pytest_asyncio.fixture
    async def harness(self) -> AsyncIterator[SqliteHarness]:
        harness = SqliteHarness(in_memory=True)
        yield harness
        await harness.close()


class TestKeyed(KeyedCases):
    @pytest_asyncio.fixture
    async def harness(self) -> AsyncIterator[SqliteHarness]:
        harness = SqliteHarness(in_memory=True)
        yield harness
        await harness.close()
