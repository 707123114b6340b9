"""A Redis stream in the store's own Redis: added and settled in one step, so never twice."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace
from redis.asyncio import Redis

import penstock
from penstock.model.message import NewMessage
from penstock.model.outcome import Claim, Settlement, StreamEntry
from penstock.model.state import State
from penstock.ports.store import MessageStore
from systems.servers.redis import RedisServer
from tests.conformance.redis_harness import RedisHarness

LEASE = 30_000
NUMBER = 50


@pytest.fixture
async def client(redis: RedisServer) -> AsyncIterator[Redis]:
    async with Redis(port=redis.port) as client:
        yield client


@pytest.fixture
async def store(redis: RedisServer) -> AsyncIterator[MessageStore]:
    harness = RedisHarness(redis)
    store = (await harness.open()).messages
    yield store
    await store.close()
    await harness.close()


async def claimed(store: MessageStore, number: int = NUMBER) -> Claim:
    now = store.clock.now()
    made = [
        NewMessage(id=f"m-{n}", route="r", key=f"k-{n}", payload=b"%d" % n, due=now)
        for n in range(number)
    ]
    await store.put(made, now)
    return await store.claim("r", number, LEASE, now)


def delivered(claim: Claim, stream: str = "events") -> list[Settlement]:
    return [
        Settlement(
            message,
            claim.token,
            State.DELIVERED,
            "delivered",
            entry=StreamEntry(
                stream, (b"payload", message.payload, b"penstock-id", message.id.encode())
            ),
        )
        for message in claim.messages
    ]


async def ids(client: Redis, stream: str = "events") -> list[str]:
    entries: Any = await client.xrange(stream)
    return sorted(fields[b"penstock-id"].decode() for _, fields in entries)


async def test_entries_are_added_as_their_messages_are_settled(
    store: MessageStore, client: Redis
) -> None:
    claim = await claimed(store)
    states = await store.settle(delivered(claim), store.clock.now())
    assert states == [State.DELIVERED] * NUMBER
    assert await ids(client) == sorted(message.id for message in claim.messages)


async def test_a_token_that_is_not_current_adds_nothing(store: MessageStore, client: Redis) -> None:
    claim = await claimed(store)
    stale = [replace(one, token=one.token + 1) for one in delivered(claim)]
    assert await store.settle(stale, store.clock.now()) == [None] * NUMBER
    await store.settle(delivered(claim), store.clock.now())
    assert await store.settle(delivered(claim), store.clock.now()) == [None] * NUMBER
    assert len(await ids(client)) == NUMBER


async def test_what_its_stream_does_not_take_stays_leased_and_the_others_are_settled(
    store: MessageStore, client: Redis
) -> None:
    await client.set("text", "no stream")
    claim = await claimed(store, 2)
    one, other = delivered(claim)
    bad = replace(one, entry=StreamEntry("text", (b"a", b"b")))
    assert await store.settle([bad, other], store.clock.now()) == [State.LEASED, State.DELIVERED]
    assert await ids(client) == [other.message.id]
    (found,) = await store.find([one.message.id])
    assert found is not None
    assert found.state is State.LEASED


async def _until_settled(engine: penstock.Engine, number: int) -> None:
    while True:
        states = (await engine.stats()).states
        if states.get(State.DELIVERED, 0) + states.get(State.DEAD, 0) == number:
            return
        await asyncio.sleep(0.02)


async def test_a_worker_writes_what_the_sink_would_write(redis: RedisServer, client: Redis) -> None:
    def route(host: str) -> penstock.RouteSettings:
        """By another name of the same host it goes the ordinary way."""
        return penstock.RouteSettings(
            sink=f"redis://{host}:{redis.port}/{host}?maxlen=1000",
            topics=("orders.*",),
            headers={"x-fixed": "fixed"},
        )

    routes = {"own": route("127.0.0.1"), "other": route("localhost")}
    await client.set("orders.text", "no stream")
    async with penstock.open(redis.url, routes=routes, worker=True) as engine:
        for name in routes:
            for n in range(NUMBER):
                await engine.schedule({"n": n}, route=name, key=f"k-{n}", headers={"x-own": "own"})
        await engine.schedule(1, route="own", id="bad", topic="orders.text")
        await _until_settled(engine, 2 * NUMBER + 1)
        bad = await engine.get("bad")
    assert bad.state is State.DEAD
    assert "WRONGTYPE" in (bad.last_error or "")
    written, sent = await _shown(client, "127.0.0.1"), await _shown(client, "localhost")
    assert len(written) == NUMBER
    assert written == sent


async def _shown(client: Redis, stream: str) -> list[dict[bytes, bytes]]:
    """The entries without what differs from message to message."""
    entries: Any = await client.xrange(stream)
    own = (b"penstock-id", b"penstock-due")
    shown = [{k: v for k, v in fields.items() if k not in own} for _, fields in entries]
    return sorted(shown, key=lambda fields: fields[b"key"])
