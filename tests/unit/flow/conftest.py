"""A whole engine on a clock that stands still: SQLite in memory, a fake sink."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from penstock.stores.sqlite import open_store
from penstock.testing.clock import ManualClock
from tests.unit.flow.rig import Engine


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def engine(clock: ManualClock) -> AsyncIterator[Engine]:
    store = await open_store(
        "sqlite://", total_partitions=8, retention=86_400_000, retention_count=1000, clock=clock
    )
    yield Engine(store, clock)
    await store.close()
