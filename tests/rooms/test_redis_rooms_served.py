"""Which processes serve the rooms of a Redis, and which key signs their entry tokens."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import jwt
import pytest

from penstock.model.room import RoomDraft
from penstock.rooms.parts import RoomParts
from penstock.settings import Settings
from penstock.wiring import open_parts, open_rooms
from systems.servers.redis import RedisServer
from tests.rooms.redis_harness import eventually

pytestmark = pytest.mark.slow
ROOMS = {"keys": [{"kid": "ours", "secret": "0123456789abcdef0123456789abcdef"}], "poll": "100ms"}


@pytest.fixture(scope="module")
def running() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


@pytest.fixture
def server(running: RedisServer) -> RedisServer:
    running.cli("FLUSHALL")
    return running


@asynccontextmanager
async def worker(server: RedisServer, **settings: object) -> AsyncIterator[RoomParts]:
    """The rooms of one worker process, at work."""
    given = Settings.model_validate({"store": server.url, **settings})
    async with open_parts(given) as parts, open_rooms(parts) as rooms:
        assert rooms is not None
        running = asyncio.create_task(rooms.run())
        try:
            yield rooms
        finally:
            running.cancel()
            await asyncio.wait([running])


def kids(server: RedisServer) -> list[str]:
    """The signing keys of all entry tokens."""
    found = json.loads(server.cli("--json", "XRANGE", "DISPATCH", "-", "+") or "[]")
    return [
        jwt.get_unverified_header(fields[fields.index("entryToken") + 1])["kid"]
        for _, fields in found
    ]


def line_up(server: RedisServer, event: str, *users: str) -> None:
    for place, user in enumerate(users, 1):
        server.cli("HSET", f"WAITING_QUEUE_INDEX_RECORD:{event}", user, '{"instanceId":"n1"}')
        server.cli("ZADD", f"WAITING:{event}", str(place), user)


async def test_a_worker_that_is_not_told_to_leaves_rooms_of_other_programs_alone(
    server: RedisServer,
) -> None:
    line_up(server, "concert", "alice")
    async with worker(server) as plain:
        for _ in range(3):
            await plain.promoter.promote(["concert"])
            assert await plain.store.discover(plain.store.clock.now()) is None
            assert await plain.store.take_due(plain.store.clock.now(), 10) == []
    assert server.cli("EXISTS", "ENTRY", "DISPATCH", "PENSTOCK_ROOMS") == "0"
    assert server.cli("ZCARD", "WAITING:concert") == "1"


async def test_contrib_dispatcher_serves_them(server: RedisServer) -> None:
    line_up(server, "concert", "alice")
    async with worker(server, contrib=["dispatcher"]):
        await eventually(lambda: kids(server) == ["store"])


async def test_a_room_that_was_put_is_served_by_every_worker_of_the_store(
    server: RedisServer,
) -> None:
    line_up(server, "other", "bob")
    async with worker(server) as plain:
        await plain.operate.put("sale", RoomDraft(capacity=5))
        line_up(server, "sale", "alice")
        await eventually(lambda: kids(server) == ["store"])
        await plain.join.join("sale", "carol")
        await eventually(lambda: kids(server) == ["store", "store"])
    assert server.cli("ZCARD", "WAITING:other") == "1"


async def test_only_the_processes_with_the_key_sign(server: RedisServer) -> None:
    async with worker(server) as plain, worker(server, rooms=ROOMS) as told:
        await told.operate.put("sale", RoomDraft(capacity=100))
        line_up(server, "concert", *(f"a{n}" for n in range(20)))
        line_up(server, "sale", *(f"b{n}" for n in range(20)))
        await plain.promoter.promote(["sale"])
        await eventually(lambda: len(kids(server)) == 40)
    assert set(kids(server)) == {"ours"}


async def test_a_worker_that_took_promotions_leaves_them_to_the_key_that_came_since(
    server: RedisServer,
) -> None:
    async with worker(server) as plain:
        await plain.operate.put("sale", RoomDraft(capacity=100))
        line_up(server, "sale", "alice")
        await eventually(lambda: kids(server) == ["store"])
        server.cli("SET", "PENSTOCK_ROOMS_SIGNER", "ours")
        line_up(server, "sale", "bob")
        await eventually(lambda: server.cli("XLEN", "ENTRY") == "2")
        async with worker(server, rooms={**ROOMS, "take_over": "100ms"}):
            await eventually(lambda: kids(server) == ["store", "ours"])
