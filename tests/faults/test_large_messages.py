"""A gigabyte that is due at once goes through a worker of 512 MB: nothing dead, nothing twice."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from penstock.model.message import NewMessage
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.stores.dynamodb import init_store
from penstock.stores.dynamodb import open_store as open_dynamodb
from penstock.stores.postgres import open_store as open_postgres
from penstock.stores.postgres.address import with_schema
from penstock.stores.redis import open_store as open_redis
from penstock.stores.sqlite import open_store as open_sqlite
from systems.servers.dynamodb import DynamoServer
from systems.servers.postgres import PostgresServer
from systems.servers.redis import RedisServer
from tests.servers.penstock import PenstockProcess

pytestmark = pytest.mark.slow

MB = 1_000_000
SIZE = 250_000
LIMIT = 512 * MB
EMPTY = 140 * MB
"""What a worker has that holds nothing, about."""
EMPTY_POSTGRES = 180 * MB
"""The same with psycopg, and with what libpq keeps of the answers of each connection."""
TOGETHER = 32
"""Messages put at once."""
HANDLER = """
import asyncio, pathlib
from penstock import Message

async def take(messages: list[Message]) -> None:
    await asyncio.sleep(0.1)  # so that many are in flight
    with pathlib.Path("taken").open("a") as taken:
        taken.writelines(f"{m.id} {m.attempt} {len(m.payload)}\\n" for m in messages)
"""
CONFIG = """
store = "{store}"
[worker]
lease = "10m"
in_flight_bytes = {in_flight_bytes}
metrics = "none"
[routes.large]
sink = "python:handler:take?batch=500"
"""
Open: TypeAlias = Callable[[], Awaitable[MessageStore]]


async def fill(store: MessageStore, number: int) -> None:
    """Put so many large messages, due now; they all have the same payload."""
    payload = b'"' + b"x" * (SIZE - 2) + b'"'
    for first in range(0, number, TOGETHER):
        now = store.clock.now()
        names = [f"m{place}" for place in range(first, min(first + TOGETHER, number))]
        await store.put([NewMessage(name, "large", name, payload, now) for name in names], now)


def peak_memory(pid: int) -> int:
    """The most that the process ever had in memory, in bytes."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("the system does not tell")


async def drained(
    folder: Path, store: MessageStore, url: str, number: int, in_flight_bytes: int
) -> int:
    """Let a worker take everything: each once, at its first attempt. Its peak memory."""
    (folder / "handler.py").write_text(HANDLER)
    taken = folder / "taken"
    taken.touch()
    config = CONFIG.format(store=url, in_flight_bytes=in_flight_bytes)
    worker = PenstockProcess(folder, config, command="worker")
    await worker.start()
    try:
        async with asyncio.timeout(1_500):
            while taken.read_text().count("\n") < number:
                assert worker.is_running, worker.log.read_text()[-2_000:]
                await asyncio.sleep(0.1)
            while (await store.figures(store.clock.now())).states[State.LEASED]:  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        peak = peak_memory(worker.pid)
    finally:
        await worker.kill()
    lines = sorted(taken.read_text().splitlines())
    right = sorted(f"m{place} 1 {SIZE}" for place in range(number))
    wrong = sorted(set(lines) - set(right))
    log = worker.log.read_text()[-2_000:]
    assert lines == right, f"{len(lines)} taken, {len(wrong)} wrong, such as {wrong[:3]}; {log}"
    states = (await store.figures(store.clock.now())).states
    assert (states[State.DEAD], states[State.SCHEDULED]) == (0, 0)
    print(f"{number} messages of {SIZE:,} bytes: at most {peak / MB:.0f} MB")
    return peak


async def test_a_gigabyte_in_a_file(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'large.db'}"
    store = (
        await open_sqlite(url, total_partitions=8, retention=86_400_000, retention_count=1_000_000)
    ).messages
    await fill(store, 4_000)
    try:
        assert await drained(tmp_path, store, url, 4_000, 64 << 20) <= LIMIT
    finally:
        await store.close()


async def test_a_gigabyte_in_redis(tmp_path: Path) -> None:
    with RedisServer() as server:
        url = f"{server.url}?timeout=30s"
        store = (
            await open_redis(
                url, total_partitions=8, retention=86_400_000, retention_count=1_000_000
            )
        ).messages
        await fill(store, 4_000)
        try:
            assert await drained(tmp_path, store, url, 4_000, 64 << 20) <= LIMIT
        finally:
            await store.close()


async def test_a_part_of_a_gigabyte_in_postgres(postgres: PostgresServer, tmp_path: Path) -> None:
    """A quarter of it, with a quarter of the memory beside what an empty worker has."""
    part = int(os.environ.get("LARGE_PART", "4"))
    url = with_schema(postgres.url, "large")
    store = (
        await open_postgres(
            url, total_partitions=8, retention=86_400_000, retention_count=1_000_000, clock=None
        )
    ).messages
    await fill(store, 4_000 // part)
    try:
        peak = await drained(tmp_path, store, url, 4_000 // part, (64 << 20) // part)
        assert peak <= EMPTY_POSTGRES + (LIMIT - EMPTY_POSTGRES) // part
    finally:
        await store.close()
        postgres.sql("DROP SCHEMA large CASCADE")


async def test_a_part_of_a_gigabyte_in_dynamodb(
    dynamodb: DynamoServer, redis_node: RedisServer, tmp_path: Path
) -> None:
    """A tenth of it, with a tenth of the memory beside what an empty worker has."""
    part = int(os.environ.get("LARGE_PART", "10"))
    redis_node.flush()
    url = dynamodb.url("large", redis_node.url, timeout="30s")
    await init_store(url)
    store = (
        await open_dynamodb(
            url, total_partitions=8, retention=86_400_000, retention_count=1_000_000
        )
    ).messages
    await fill(store, 4_000 // part)
    try:
        peak = await drained(tmp_path, store, url, 4_000 // part, (64 << 20) // part)
        assert peak <= EMPTY + (LIMIT - EMPTY) // part
    finally:
        await store.close()
        dynamodb.drop("large")
