"""Open the rooms of a Redis store: link, streams, and news from other processes."""

from __future__ import annotations

import asyncio

from penstock.model.clock import Clock
from penstock.model.errors import PenstockError
from penstock.ports.rooms import OpenRooms, StoreCalls
from penstock.stores.redis.connect import Server
from penstock.stores.redis.rooms import RedisRooms
from penstock.stores.redis.rooms_entries import RedisEntries
from penstock.stores.redis.rooms_keys import WAKE
from penstock.stores.redis.rooms_link import Link
from penstock.stores.redis.rooms_watch import RoomWatch
from penstock.stores.redis.wake import Wakeups


class RoomNews(Wakeups):
    """What scripts of any process publish: the room in which there is something to do."""

    def __init__(self, server: Server, rooms: RedisRooms) -> None:
        super().__init__(server, WAKE)
        self._rooms = rooms

    def _heard(self, news: bytes) -> None:
        self._rooms.heard(news)


def open_rooms(server: Server, name: str, clock: Clock, capacity: int, consumer: str) -> OpenRooms:
    link = Link(server, name)
    rooms = RedisRooms(link, clock, capacity)
    entries = RedisEntries(link, consumer)
    tasks = [asyncio.create_task(RoomNews(server, rooms).listen(), name="penstock-room-news")]
    if not server.cluster:
        rooms.watch = RoomWatch(server, rooms.learn)
        tasks.append(asyncio.create_task(rooms.watch.run(), name="penstock-room-watch"))

    async def close() -> None:
        while not all(task.done() for task in tasks):
            for task in tasks:
                task.cancel()  # again and again: a connection being made may swallow one
            await asyncio.wait(tasks, timeout=0.05)
        try:
            await entries.close()
        except PenstockError:
            return  # the server is away: another consumer takes over what is left

    def figures() -> StoreCalls:
        calls = sum(number for number, _ in link.script_seconds.values())
        seconds = sum(seconds for _, seconds in link.script_seconds.values())
        return StoreCalls(link.errors, calls, seconds)

    return OpenRooms(rooms, entries, close, away=lambda: link.is_open, figures=figures)
