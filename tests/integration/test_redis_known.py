"""A claim on Redis asks the partitions that have something due, and misses nothing by it."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from penstock.model.message import NewMessage
from penstock.stores.redis import open_store
from penstock.stores.redis.messages.lease import ALL_MS, ClaimCall, Claiming
from penstock.stores.redis.store import RedisStore
from penstock.testing.clock import ManualClock
from systems.servers.redis import RedisServer

pytestmark = pytest.mark.slow

DAY = 86_400_000
LEASE = 60_000
PARTITIONS = 8


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def clock() -> ManualClock:
    """Behind the server's: scripts hold every `now` against it."""
    return ManualClock(int(time.time()) * 1000 - DAY)


@pytest_asyncio.fixture
async def stores(
    server: RedisServer, clock: ManualClock
) -> AsyncIterator[tuple[RedisStore, RedisStore]]:
    """Two processes' worth, each hearing of the other."""
    server.flush()
    opened: list[RedisStore] = []
    for _ in range(2):
        store = (
            await open_store(
                server.url,
                total_partitions=PARTITIONS,
                retention=DAY,
                retention_count=100_000,
                clock=clock,
            )
        ).messages
        assert isinstance(store, RedisStore)
        opened.append(store)
        await asyncio.wait_for(store._session.wakeups.subscribed.wait(), 300)
    yield opened[0], opened[1]
    for store in opened:
        await store.close()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many partitions each call asked."""
    numbers: list[int] = []
    ask = Claiming.ask

    async def counting(self: Claiming, call: ClaimCall) -> None:
        numbers.append(len(call.partitions))
        await ask(self, call)

    monkeypatch.setattr(Claiming, "ask", counting)
    return numbers


def new(name: str, due: int) -> NewMessage:
    return NewMessage(id=name, route="r", key=name, payload=b"1", due=due)


async def claimed(store: RedisStore, clock: ManualClock) -> list[str]:
    claim = await store.claim("r", 100, LEASE, clock.now())
    return [message.id for message in claim.messages]


async def test_one_that_comes_due_costs_one_partition(
    stores: tuple[RedisStore, RedisStore], clock: ManualClock, asked: list[int]
) -> None:
    store, _ = stores
    now = clock.now()
    await store.put([new(f"m{n}", now + 2 * n) for n in range(1, 20)], now)
    assert await claimed(store, clock) == []
    for n in range(1, 20):
        clock.jump(2)
        assert await claimed(store, clock) == [f"m{n}"]
    assert asked[0] == PARTITIONS
    assert asked.count(1) > 15  # once or twice news of the put itself are heard late
    clock.jump(ALL_MS)
    assert await claimed(store, clock) == []
    assert asked[-1] == PARTITIONS


async def test_what_another_process_puts_nearer_is_claimed_with_the_rest(
    stores: tuple[RedisStore, RedisStore], clock: ManualClock
) -> None:
    """Whatever is heard of by then: news are on their way for some thousandths of a second."""
    store, other = stores
    chance = random.Random(5)
    now = clock.now()
    await store.put([new(f"known{n}", now + 3 * n) for n in range(1, 30)], now)
    await claimed(store, clock)
    dues = {f"known{n}": now + 3 * n for n in range(1, 30)}
    for step in range(80):
        name, due = f"news{step}", clock.now() + chance.randrange(4)
        await other.put([new(name, due)], clock.now())
        dues[name] = due
        await asyncio.sleep(0.02)
        clock.jump(1)
        taken = await claimed(store, clock)
        assert sorted(taken) == sorted(name for name, due in dues.items() if due <= clock.now())
        for name in taken:
            del dues[name]


async def test_news_that_were_missed_are_made_up_for(
    stores: tuple[RedisStore, RedisStore], clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, other = stores
    now = clock.now()
    await store.put([new(f"known{n}", now + 10 * n) for n in range(1, 30)], now)
    await claimed(store, clock)
    monkeypatch.setattr(store._session.wakeups, "_heard", lambda _: None)  # news get lost
    await other.put([new("missed", now + 5)], now)
    await asyncio.sleep(0.02)
    seen: list[str] = []
    while clock.now() < now + ALL_MS + 10:
        clock.jump(10)
        seen += await claimed(store, clock)
    assert "missed" in seen
