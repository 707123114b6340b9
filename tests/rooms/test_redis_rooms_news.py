"""What a process learns of rooms from others: who was let in, and rooms nobody told it of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from penstock.model.room import RoomSettings
from penstock.model.ticket import Joining
from penstock.ports.rooms import RoomStore
from penstock.redis_kit.address import parse_address
from penstock.redis_kit.connect import connect
from penstock.stores.redis.rooms import Serving, open_rooms
from penstock.stores.redis.rooms import store as rooms
from penstock.stores.redis.rooms.watch import RoomWatch
from penstock.time.clock import SystemClock
from systems.servers.redis import RedisServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


@asynccontextmanager
async def process(server: RedisServer, name: str) -> AsyncIterator[RoomStore]:
    """The rooms as one process has them, listening to the others."""
    link = connect(parse_address(server.url))
    serving = Serving(name, serves_all=True)
    rooms = await open_rooms(link, "redis", SystemClock(), 1000, serving)
    try:
        with server.client as client:
            async with asyncio.timeout(300):
                while not client.pubsub_numsub("PENSTOCK_ROOMS_WAKE")[0][1]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        yield rooms.store
    finally:
        await rooms.close()
        await link.close()


async def test_who_is_let_in_by_one_process_is_heard_by_another(server: RedisServer) -> None:
    heard: asyncio.Queue[tuple[str, list[str]]] = asyncio.Queue()
    async with process(server, "other") as other, process(server, "one") as one:
        other.listen_turns(lambda room, users: heard.put_nowait((room, list(users))))
        settings = RoomSettings(capacity=2)
        rooms = ["sale", "empty", "concert"]
        for room in rooms:
            await one.put_room(room, settings, None, one.clock.now())
        joining = [Joining(f"user {n} ü") for n in range(3)]
        await one.join("sale", joining, one.clock.now())
        await one.join("concert", joining[2:], one.clock.now())
        await one.promote(rooms, one.clock.now(), 10)
        async with asyncio.timeout(300):
            told = [await heard.get(), await heard.get()]
    assert told == [("sale", ["user 0 ü", "user 1 ü"]), ("concert", ["user 2 ü"])]


async def test_a_room_another_program_makes_is_heard_of_at_once(server: RedisServer) -> None:
    told: asyncio.Queue[str] = asyncio.Queue()
    with server.client as client:
        client.flushall()
        client.set("PENSTOCK_ROOMS_SCANNED", "1")  # nobody searches
        async with process(server, "one") as one:
            one.listen_rooms(told.put_nowait)
            assert await one.discover(one.clock.now()) == 0
            async with asyncio.timeout(300):
                while not client.pubsub_numsub("__redis__:invalidate")[0][1]:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                client.set("WAITING:text", "no line")
                client.hset("WAITING_QUEUE_INDEX_RECORD:concert", "alice", "{}")
                client.zadd("WAITING:concert", {"alice": 1})
                while await told.get() != "concert":
                    continue  # of "text", too, that it was written is told
                (promotion,) = await one.promote(["concert"], one.clock.now(), 10)
                client.flushall()
                client.zadd("WAITING:concert", {"bob": 1})
                # It has to be heard of again; news of writes before the flush may come first.
                while await one.list_rooms("", 10) != ["concert"]:
                    await told.get()
            assert [ticket.user for ticket in promotion.admitted] == ["alice"]


async def test_who_hears_of_new_rooms_searches_only_now_and_then(server: RedisServer) -> None:
    with server.client as client:
        client.flushall()
        async with process(server, "one") as one:
            searched = []
            for millis in (0, 1, 2, 3, rooms.SCAN_TO_BE_SURE_MS + 2, rooms.SCAN_TO_BE_SURE_MS + 3):
                client.delete("PENSTOCK_ROOMS_SCANNED")
                await one.discover(millis)
                searched.append(client.exists("PENSTOCK_ROOMS_SCANNED"))
                async with asyncio.timeout(300):
                    while not client.pubsub_numsub("__redis__:invalidate")[0][1]:  # noqa: ASYNC110
                        await asyncio.sleep(0.01)
            assert searched == [1, 1, 1, 0, 1, 0]


@pytest.fixture
def by_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a server that does not tell."""

    async def silent(self: RoomWatch) -> None:
        """Hears nothing."""

    monkeypatch.setattr(RoomWatch, "run", silent)


@pytest.mark.usefixtures("by_search")
async def test_a_look_for_new_rooms_goes_through_a_bounded_part_of_a_large_server(
    server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rooms, "SCAN_STEPS", steps := 5)
    with server.client as client:
        client.flushall()
        foreign = int(2.5 * rooms.SCAN_COUNT * steps)
        client.eval(f"for i = 1, {foreign} do redis.call('SET', 'foreign:' .. i, '') end", 0)
        client.zadd("WAITING:concert", {"alice": 1})
        found = []
        async with process(server, "one") as one:
            for _ in range(4):
                client.config_resetstat()
                client.delete("PENSTOCK_ROOMS_SCANNED")  # as if the time between had passed
                found.append(await one.discover(one.clock.now()))
                assert 0 < client.info("commandstats")["cmdstat_scan"]["calls"] <= steps
            assert sum(filter(None, found)) == 1, "found once, within one pass"
            assert await one.list_rooms("", 10) == ["concert"]


@pytest.mark.usefixtures("by_search")
async def test_a_room_found_before_is_found_again_after_the_server_was_emptied(
    server: RedisServer,
) -> None:
    with server.client as client:
        async with process(server, "one") as one:
            for _ in range(2):
                client.flushall()
                client.zadd("WAITING:concert", {"alice": 1})
                assert await one.discover(one.clock.now()) == 1
