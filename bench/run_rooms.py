"""Waiting rooms: promotions, joins and looks a second, what a long line costs, and memory."""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import psutil
import uvloop

from bench.load import get, hammer, post
from bench.report import Report
from penstock.model.room import RoomSettings
from penstock.model.ticket import Joining
from penstock.ports.rooms import RoomStore
from penstock.rooms.parts import RoomParts
from penstock.rooms.promote import ROOMS_A_TASK
from penstock.sdk.async_client import AsyncClient
from penstock.settings import given
from penstock.wiring import open_parts, open_rooms
from systems.servers.redis import RedisServer
from tests.servers.penstock import run_penstock

BATCH = 500
ROOMS = 10_000
LONG, SHORT = 1_000_000, 100
LOOKED = 5_000
"""Visitors of the web room who ask for their place, again and again."""


@asynccontextmanager
async def _rooms(url: str) -> AsyncIterator[RoomParts]:
    async with open_parts(given(store=url)) as parts, open_rooms(parts) as rooms:
        assert rooms is not None
        yield rooms


def _settings(capacity: int) -> RoomSettings:
    return RoomSettings(capacity=capacity, wait_grace=None)


async def _fill(store: RoomStore, room: str, count: int, start: int = 0) -> float:
    """Joins a second."""
    begun = time.perf_counter()
    for first in range(start, start + count, BATCH):
        last = min(first + BATCH, start + count)
        joining = [Joining(f"user-{n}") for n in range(first, last)]
        await store.join(room, joining, store.clock.now())
    return count / (time.perf_counter() - begun)


async def _one_room(store: RoomStore, count: int) -> tuple[float, float]:
    """Promotions a second in one room, and the p99 of a batch in milliseconds."""
    await store.put_room("one", _settings(count), None, store.clock.now())
    await _fill(store, "one", count)
    took, done = [], 0
    begun = time.perf_counter()
    while done < count:
        before = time.perf_counter()
        (promotion,) = await store.promote(["one"], store.clock.now(), BATCH)
        took.append(time.perf_counter() - before)
        done += len(promotion.admitted)
    rate = count / (time.perf_counter() - begun)
    return rate, statistics.quantiles(took, n=100)[98] * 1000


async def _many_rooms(parts: RoomParts, each: int) -> tuple[float, float]:
    """Promotions a second over all rooms, and this process's memory with them.

    As the promoter's own workers do it: so many tasks, each taking the next few rooms when it has
    done the ones before.
    """
    store = parts.store
    names = [f"room-{n}" for n in range(ROOMS)]
    for first in range(0, ROOMS, 100):
        await asyncio.gather(*(_open(store, name, each) for name in names[first : first + 100]))
    tasks = iter([names[first : first + ROOMS_A_TASK] for first in range(0, ROOMS, ROOMS_A_TASK)])

    async def work() -> int:
        return sum([await parts.promoter.promote(task) for task in tasks])

    begun = time.perf_counter()
    done = sum(await asyncio.gather(*(work() for _ in range(parts.promoter.workers))))
    assert done == ROOMS * each
    rate = done / (time.perf_counter() - begun)
    return rate, psutil.Process(os.getpid()).memory_info().rss / 1e6


async def _open(store: RoomStore, name: str, visitors: int) -> None:
    await store.put_room(name, _settings(visitors), None, store.clock.now())
    await store.join(name, [Joining(f"user-{n}") for n in range(visitors)], store.clock.now())


async def _step(store: RoomStore, room: str, steps: int) -> float:
    """Milliseconds of a promotion of 10, the median."""
    took = []
    for _ in range(steps):
        before = time.perf_counter()
        (promotion,) = await store.promote([room], store.clock.now(), 10)
        took.append(time.perf_counter() - before)
        await store.leave(room, [t.user for t in promotion.admitted], store.clock.now())
        joining = [Joining(t.user) for t in promotion.admitted]
        await store.join(room, joining, store.clock.now())
    return statistics.median(took) * 1000


async def _line(store: RoomStore, long: int) -> tuple[float, float]:
    """The cost of a step with few and with many waiting, measured in turn."""
    for room, count in (("short", SHORT), ("long", long)):
        await store.put_room(room, _settings(10), None, store.clock.now())
        await _fill(store, room, count)
    rounds = [(await _step(store, "short", 100), await _step(store, "long", 100)) for _ in range(5)]
    return statistics.median(r[0] for r in rounds), statistics.median(r[1] for r in rounds)


async def _looks(store: RoomStore, room: str, users: Sequence[str]) -> float:
    begun = time.perf_counter()
    for first in range(0, len(users), 200):
        await store.look(room, users[first : first + 200], store.clock.now(), alive=True)
    return len(users) / (time.perf_counter() - begun)


async def _measure(report: Report, what: str, url: str, one: int, each: int, long: int) -> None:
    async with _rooms(url) as parts:
        store = parts.store
        rate, p99 = await _one_room(store, one)
        report.add(f"{what}: promotions, one room", rate, "/s", aim="≥ 50,000")
        report.add(f"{what}: a batch of {BATCH}, p99", p99, "ms", aim="< 50")
        rate, memory = await _many_rooms(parts, each)
        report.add(f"{what}: promotions, {ROOMS:,} rooms", rate, "/s", aim="≥ 50,000")
        report.add(f"{what}: memory with {ROOMS:,} rooms", memory, "MB", aim="< 200")
        short, far = await _line(store, long)
        report.add(
            f"{what}: a promotion of 10 with {long:,} waiting",
            far,
            "ms",
            baseline=short,
            against=f"{SHORT} waiting",
            aim="≤ 1.3 x",
        )
        await store.put_room("joins", _settings(0), None, store.clock.now())
        report.add(f"{what}: joins", await _fill(store, "joins", 50_000), "/s")
        users = [f"user-{n}" for n in range(0, 50_000, 2)]
        report.add(f"{what}: places looked up", await _looks(store, "joins", users), "/s")


async def _http(report: Report, what: str, url: str, folder: Path) -> None:
    """Joins and looks over HTTP against `penstock serve`, which promotes meanwhile."""
    config = f'store = "{url}"\n[api]\nhttp = "127.0.0.1:@PORT@"\n'
    async with run_penstock(folder, config) as server, AsyncClient(server.url) as client:
        await client.rooms.put("web", capacity=1000, wait_grace=None)
        join = post("/v1/rooms/web/join", b'{"user":"user-@SERIAL@"}')
        rate = await asyncio.to_thread(hammer, server.port, join)
        report.add(f"{what}: joins over HTTP", rate, "/s")
        look = get("/v1/rooms/web/tickets/user-@SERIAL@")
        # The last ones of each connection may not have come through.
        there = (await client.rooms.get("web")).joined - 64
        rate = await asyncio.to_thread(hammer, server.port, look, serials=min(LOOKED, there))
        report.add(f"{what}: places looked up over HTTP", rate, "/s")


async def _run(report: Report) -> None:
    with RedisServer("--appendfsync", "everysec", aof=True) as server:
        await _measure(report, "Redis", server.url, 100_000, 10, LONG)
        with tempfile.TemporaryDirectory() as folder:
            await _http(report, "Redis", f"redis://127.0.0.1:{server.port}/1", Path(folder))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rooms.db"
        await _measure(report, "SQLite", f"sqlite:///{path}", 50_000, 5, LONG)
        await _http(report, "SQLite", "sqlite:///web.db", Path(folder))


def main() -> None:
    report = Report("rooms", "waiting rooms in the library and over HTTP, one process")
    uvloop.run(_run(report))
    report.finish()
