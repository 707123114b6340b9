"""Acknowledged only when a replica has it (WAIT), or the disk (WAITAOF), on a server of today."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest

from penstock.model.errors import ConfigError, StoreUnavailable
from penstock.model.message import NewMessage
from penstock.ports.store import MessageStore
from penstock.stores.redis import open_store
from systems.servers.redis import RedisServer
from tests.servers.valkey import ValkeyServer

pytestmark = pytest.mark.slow

SOON = ("--repl-diskless-sync-delay", "0")


async def open_at(url: str) -> MessageStore:
    return (
        await open_store(url, total_partitions=2, retention=86_400_000, retention_count=1_000)
    ).messages


async def put(store: MessageStore, name: str) -> bool:
    """Whether it was known already."""
    now = store.clock.now()
    message = NewMessage(id=name, route="r", key=name, payload=b"1", due=now)
    (outcome,) = await store.put([message], now)
    return outcome.duplicate


@pytest.fixture
def primary() -> Iterator[RedisServer]:
    with ValkeyServer(*SOON, aof=True) as server:
        yield server


@pytest.fixture
async def replica(primary: RedisServer) -> AsyncIterator[RedisServer]:
    with ValkeyServer(*SOON, "--replicaof", f"127.0.0.1 {primary.port}") as server:
        async with asyncio.timeout(300):
            while "master_link_status:up" not in server.cli("INFO", "replication"):  # noqa: ASYNC110 - not ours
                await asyncio.sleep(0.02)
        yield server


async def test_a_put_repeated_after_it_waited_in_vain_waits_again(
    primary: RedisServer, replica: RedisServer
) -> None:
    store = await open_at(f"{primary.url}?wait_replicas=1&wait_ms=100")
    replica.pause()
    for _ in range(2):  # the second finds it there and writes nothing
        with pytest.raises(StoreUnavailable, match="0 of 1 replicas"):
            await put(store, "a")
    replica.resume()
    async with asyncio.timeout(300):
        while True:
            try:
                assert await put(store, "a")
            except StoreUnavailable as exc:
                await asyncio.sleep(exc.retry_after)
            else:
                break
    await store.close()
    assert replica.cli("INFO", "replication").count("master_link_status:up") == 1
    assert primary.cli("DBSIZE") == replica.cli("DBSIZE")


async def test_what_waited_for_the_disk_is_there_after_a_crash(primary: RedisServer) -> None:
    primary.cli("CONFIG", "SET", "appendfsync", "everysec")
    store = await open_at(f"{primary.url}?waitaof=1&wait_ms=3000")
    for n in range(5):
        assert not await put(store, f"m{n}")
    primary.kill()
    await store.close()
    primary.start()
    store = await open_at(primary.url)
    assert [await put(store, f"m{n}") for n in range(5)] == [True] * 5
    await store.close()


async def test_waitaof_needs_an_aof() -> None:
    with ValkeyServer() as server, pytest.raises(ConfigError, match="appendonly yes"):
        await open_at(f"{server.url}?waitaof=1")
