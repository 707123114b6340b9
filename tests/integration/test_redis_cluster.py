"""A cluster whose primary dies: its replica takes over and the store goes on by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeVar

import pytest

from penstock.model.errors import StoreUnavailable
from penstock.model.message import NewMessage
from penstock.model.outcome import Claim, Settlement
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.redis import open_store
from systems.servers.redis import RedisCluster

pytestmark = pytest.mark.slow

LEASE = 60_000
T = TypeVar("T")


@pytest.fixture
def cluster() -> Iterator[RedisCluster]:
    with RedisCluster() as cluster:
        yield cluster


async def open_at(url: str) -> MessageStore:
    return (
        await open_store(url, total_partitions=6, retention=86_400_000, retention_count=100_000)
    ).messages


async def until_done(work: Callable[[], Awaitable[T]]) -> T:
    """As every caller does: try again after what the store says."""
    for _ in range(6_000):
        try:
            return await work()
        except StoreUnavailable as exc:
            await asyncio.sleep(min(exc.retry_after, 0.2))
    raise AssertionError("the store did not come back")


async def put(store: MessageStore, *names: str) -> list[bool]:
    now = store.clock.now()
    messages = [NewMessage(id=n, route="r", key="k", payload=b"1", due=now) for n in names]
    return [receipt.duplicate for receipt in await store.put(messages, now)]


async def claim_all(store: MessageStore, number: int) -> list[Claim]:
    """Claim until that many messages were given, though some partitions may be away at first."""
    claims: list[Claim] = []
    for _ in range(6_000):
        claim = await until_done(lambda: store.claim("r", 100, LEASE, store.clock.now()))
        if claim.messages:
            claims.append(claim)
        elif sum(len(one.messages) for one in claims) >= number:
            break
        else:
            await asyncio.sleep(0.05)
    return claims


async def test_a_primary_that_dies_takes_nothing_with_it_that_a_replica_has(
    cluster: RedisCluster,
) -> None:
    before = [f"before{n}" for n in range(60)]
    after = [f"after{n}" for n in range(60)]
    careful = await open_at(f"{cluster.url}?wait_replicas=1&wait_ms=5000")
    try:
        await until_done(lambda: put(careful, *before))
    finally:
        await careful.close()
    store = await open_at(f"{cluster.url}?timeout=1s")
    try:
        cluster.primaries()[0].kill()
        for name in after:
            await until_done(lambda name=name: put(store, name))  # type: ignore[misc]
        assert await until_done(lambda: put(store, *before, *after)) == [True] * 120
        claims = await claim_all(store, 120)
        taken = [message.id for claim in claims for message in claim.messages]
        assert sorted(taken) == sorted(before + after)
        for claim in claims:
            ends = [
                Settlement(message=m, token=claim.token, state=State.DELIVERED, event="delivered")
                for m in claim.messages
            ]
            settled = await until_done(lambda ends=ends: store.settle(ends, store.clock.now()))  # type: ignore[misc]
            assert settled == [State.DELIVERED] * len(ends)
    finally:
        await store.close()
