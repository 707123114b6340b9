"""Opens the rooms of a Redis store: runner, streams, and publications of other processes."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from penstock.model.errors import PenstockError
from penstock.ports.rooms import OpenRooms, StoreCalls
from penstock.redis_kit.address import PREFIX
from penstock.redis_kit.connect import Server
from penstock.stores.redis.rooms.entries import RedisEntries
from penstock.stores.redis.rooms.keys import RoomRunner
from penstock.stores.redis.rooms.store import RedisRooms
from penstock.stores.redis.rooms.watch import RoomNews, RoomWatch
from penstock.time.clock import Clock

__all__ = ["RedisRooms", "RoomRunner", "Serving", "open_rooms"]


class Serving(NamedTuple):
    """The work that a process does for the rooms of its store."""

    consumer: str
    """The process's name in the group ENTRY_QUEUE."""
    serves_all: bool = False
    """True: it also promotes rooms that other programs created."""
    signs: str = ""
    """The id of the signing key in its settings."""


async def open_rooms(
    server: Server,
    name: str,
    clock: Clock,
    capacity: int,
    serving: Serving,
    prefix: str = PREFIX,
) -> OpenRooms:
    runner = RoomRunner(server, name, prefix)
    rooms = RedisRooms(runner, clock, capacity, serves_all=serving.serves_all)
    entries = RedisEntries(runner, serving.consumer, serves_all=serving.serves_all)
    if serving.serves_all and serving.signs:
        await runner.call("SET", runner.names.signer, serving.signs)
    news = RoomNews(server, runner.names.wake, rooms.heard)
    tasks = [asyncio.create_task(news.listen(), name="penstock-room-news")]
    if serving.serves_all and not server.cluster:
        rooms.watch = RoomWatch(server, runner.names, rooms.learn, rooms.written)
        tasks.append(asyncio.create_task(rooms.watch.run(), name="penstock-room-watch"))

    async def close() -> None:
        while not all(task.done() for task in tasks):
            for task in tasks:
                task.cancel()  # repeatedly: a connection that is being opened may swallow one
            await asyncio.wait(tasks, timeout=0.05)
        try:
            await entries.close()
        except PenstockError:
            return  # the server is unavailable: another consumer takes over the rest

    def figures() -> StoreCalls:
        return StoreCalls(runner.errors, runner.times, runner.seconds)

    return OpenRooms(rooms, entries, close, away=lambda: runner.is_open, figures=figures)
