"""The streams ENTRY and DISPATCH and the group between them."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from penstock.model.errors import StoreCorrupt, StoreUnavailable
from penstock.model.ticket import Dispatch, Entry
from penstock.redis_kit.connect import Argument, Reply
from penstock.redis_kit.errors import GROUP_EXISTS
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.rooms.keys import DISPATCH, ENTRY, GROUP, RoomRunner, decode, encode

_DISPATCH = Script("stores/redis/rooms/dispatch.lua")
_TRIM = Script("stores/redis/rooms/trim.lua")

log = logging.getLogger("penstock.rooms.redis")

KEEP = 100_000
"""Entries of a stream that are never trimmed."""
LONGEST_WAIT = 3_000
"""Longest blocked read: it must end before the connection's own time-out."""
CLUSTER_STEP = 0.2
"""Seconds between reads of a cluster's room streams, which no single call can wait on."""
CLAIM_PAGES = 20


class RedisEntries:
    """An EntryQueue: this process is one consumer of the group ENTRY_QUEUE.

    Without `serves_all` it takes part only if rooms were PUT and no process that serves all rooms
    signs with a key of its settings.
    """

    def __init__(self, runner: RoomRunner, consumer: str, *, serves_all: bool = True) -> None:
        self._runner = runner
        self._consumer = consumer
        self._serves_all = serves_all
        self._grouped: set[bytes] = set()

    async def _takes_part(self) -> bool:
        if self._serves_all:
            return True
        names = self._runner.names
        if await self._runner.call("EXISTS", names.signer):
            return False
        return bool(await self._runner.call("EXISTS", names.put))

    async def take(self, limit: int, wait: int) -> list[Entry]:
        if not await self._takes_part():
            await asyncio.sleep(wait / 1000)
            return []
        if not self._runner.cluster:
            return await self._read(
                self._runner.names.stream(ENTRY, ""), limit, min(wait, LONGEST_WAIT)
            )
        taken = await self._read_rooms(limit)
        if not taken and wait:
            await asyncio.sleep(min(wait / 1000, CLUSTER_STEP))
            taken = await self._read_rooms(limit)
        return taken

    async def take_abandoned(self, idle: int, limit: int) -> list[Entry]:
        found: list[Entry] = []
        if not await self._takes_part():
            return found
        for name in await self._streams(ENTRY):
            found += await self._claim(name, idle, limit - len(found))
            if len(found) >= limit:
                break
        return found

    async def dispatch(self, dispatches: Sequence[Dispatch]) -> int:
        by_room: dict[str, list[Dispatch]] = {}
        if not await self._takes_part():
            return 0  # they stay pending: a process that signs with the right key claims them
        for one in dispatches:
            by_room.setdefault(one.entry.room if self._runner.cluster else "", []).append(one)
        done = 0
        for room, some in by_room.items():
            keys = [self._runner.names.stream(name, room) for name in (ENTRY, DISPATCH)]
            arguments: list[Argument] = [GROUP]
            for one in some:
                entry = one.entry
                arguments += (entry.id, encode(entry.user), encode(entry.room))
                arguments += (encode(entry.instance), one.token)
            done += int(await self._runner.execute(_DISPATCH, keys, arguments))
        return done

    async def trim(self) -> int:
        gone = 0
        if not await self._takes_part():
            return gone
        for name in (*await self._streams(ENTRY), *await self._streams(DISPATCH)):
            gone += int(await self._runner.execute(_TRIM, (name,), (KEEP,)))
        return gone

    async def depth(self) -> int:
        total = 0
        for name in await self._streams(ENTRY):
            await self._ensure_group(name)
            pending = await self._runner.call("XPENDING", name, GROUP)
            total += int(pending["pending"] if isinstance(pending, dict) else pending[0])
        return total

    async def close(self) -> None:
        """Leave the group, unless entries are pending here: another consumer claims those."""
        with contextlib.suppress(StoreUnavailable):  # the group then removes it after a while
            for name in list(self._grouped):
                summary = await self._runner.call("XPENDING", name, GROUP, retry=False)
                if self._consumer.encode() not in _consumers(summary):
                    await self._runner.call(
                        "XGROUP", "DELCONSUMER", name, GROUP, self._consumer, retry=False
                    )

    async def _read(self, name: bytes, limit: int, wait: int) -> list[Entry]:
        await self._ensure_group(name)
        block: tuple[Argument, ...] = ("BLOCK", wait) if wait else ()
        try:
            reply = await self._runner.call(
                "XREADGROUP", "GROUP", GROUP, self._consumer, "COUNT", limit, *block,
                "STREAMS", name, ">",
            )  # fmt: skip
        except StoreCorrupt as exc:
            if "NOGROUP" not in exc.message:
                raise
            self._grouped.discard(name)  # the stream was deleted: its group is created again
            return []
        return [] if not reply else _entries(reply[0][1])

    async def _read_rooms(self, limit: int) -> list[Entry]:
        taken: list[Entry] = []
        for name in await self._streams(ENTRY):
            taken += await self._read(name, limit - len(taken), 0)
            if len(taken) >= limit:
                break
        return taken

    async def _claim(self, name: bytes, idle: int, limit: int) -> list[Entry]:
        await self._ensure_group(name)
        found: list[Entry] = []
        cursor: Argument = "0-0"
        for _ in range(CLAIM_PAGES):
            reply = await self._runner.call(
                "XAUTOCLAIM", name, GROUP, self._consumer, idle, cursor, "COUNT", limit
            )
            cursor = reply[0]
            found += _entries(reply[1])
            if cursor == b"0-0" or len(found) >= limit:
                break
        return found

    async def _streams(self, name: str) -> list[bytes]:
        if not self._runner.cluster:
            return [self._runner.names.stream(name, "")]
        rooms = await self._runner.call("ZRANGE", self._runner.names.rooms, 0, -1)
        return [self._runner.names.stream(name, decode(room)) for room in rooms]

    async def _ensure_group(self, name: bytes) -> None:
        if name in self._grouped:
            return
        try:
            await self._runner.call("XGROUP", "CREATE", name, GROUP, "0", "MKSTREAM")
        except StoreCorrupt as exc:
            if GROUP_EXISTS not in exc.message:
                raise
        self._grouped.add(name)


def _entries(replies: Reply) -> list[Entry]:
    """Entries added by Penstock, and by other programs with the same fields."""
    entries = []
    for entry_id, flat in replies:
        if flat is None:
            continue  # deleted while it was pending
        # redis-py converts known answers of streams to dicts, but not the others.
        fields = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
        name = entry_id.decode()
        entries.append(
            Entry(
                id=name,
                user=decode(fields.get(b"userId", b"")),
                room=decode(fields.get(b"eventId", b"")),
                instance=decode(fields.get(b"instanceId", b"unknown")),
                promoted=int(name.partition("-")[0]),
            )
        )
    return entries


def _consumers(summary: Reply) -> set[bytes]:
    """The consumers with pending entries, from XPENDING's summary, parsed by redis-py or raw."""
    if isinstance(summary, dict):
        return {bytes(one["name"]) for one in summary["consumers"]}
    return {bytes(name) for name, _ in summary[3] or ()}
