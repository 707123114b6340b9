"""A request that was on its way while the clock was set back is held against the clock as it is.

Redis does so in its scripts (`tests/integration/test_redis_settings.py`), by its own clock.
"""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.ports.store import MessageStore, Store
from penstock.stores.memory import MemoryStore
from penstock.stores.sqlite import open_store
from penstock.testing.clock import ManualClock
from penstock.testing.store_cases.base import claim_one, ending, new, put, settle
from penstock.testing.store_harness import DAY_MS, MANY

MINUTE = 60_000


@pytest_asyncio.fixture(params=["sqlite", "memory"])
async def opened(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    clock = ManualClock()
    opened = MemoryStore(clock, retention=MINUTE).as_store()
    if request.param == "sqlite":
        opened = await open_store(
            "sqlite:///:memory:",
            total_partitions=8,
            retention=MINUTE,
            retention_count=MANY,
            clock=clock,
        )
    yield opened
    await opened.close()


@pytest.fixture
def store(opened: Store) -> MessageStore:
    return opened.messages


async def test_a_claim_takes_nothing_early(opened: Store, store: MessageStore) -> None:
    await put(store, new("x", due=store.clock.now() + MINUTE))
    before = store.clock.now() + 2 * MINUTE
    assert (await store.claim("r", 10, MINUTE, before)).messages == ()
    assert opened.keyed is not None
    assert (await opened.keyed.claim_keyed("r", 10, MINUTE, before, KeyLimit(1))).messages == ()


async def test_a_reap_takes_back_no_lease_that_holds(store: MessageStore) -> None:
    message, token = await claim_one(store, lease=MINUTE)
    assert await store.reap(store.clock.now() + 2 * MINUTE, 10) == []
    assert await settle(store, ending(message, token)) == [State.DELIVERED]


async def test_a_purge_forgets_nothing_that_is_still_kept(store: MessageStore) -> None:
    message, token = await claim_one(store, lease=MINUTE)
    await settle(store, ending(message, token))
    assert await store.purge(store.clock.now() + DAY_MS, 10) == 0
