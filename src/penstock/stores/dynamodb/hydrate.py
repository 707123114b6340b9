"""HYDRATE: copy ids of messages due soon from the table to Redis, repeatedly.

The index lags behind the table, a process may die between its two writes, and Redis may lose
everything: so a bucket is never done. Buckets that come near are read entirely; the open one and
past ones are read again, up to the messages now due, until they are past and empty. One process at
a time does this, and no harm is done if several do, or if one dies in the middle.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence

from penstock.model.errors import PenstockError
from penstock.model.message import DEFAULT_PRIORITY
from penstock.model.state import State
from penstock.stores.dynamodb.buckets import MARGIN_MS, Bucket
from penstock.stores.dynamodb.items import Item, before, bucket_key, read_order
from penstock.stores.dynamodb.near import Hint
from penstock.stores.dynamodb.session import Session, log
from penstock.stores.dynamodb.table import DUE, Range

STEP_SECONDS = 1.0
"""Seconds between checks for due reads."""
REREAD_SECONDS = 5.0
"""Seconds between reads of the open bucket and the one before it."""
PAST_SECONDS = 30.0
"""Seconds between reads of older buckets that are not empty."""
AHEAD_SECONDS = 60.0
"""Seconds between reads of near buckets that are not open yet."""
SHARE = 20
"""After a read, a bucket rests for this many times the read's duration."""
AT_ONCE = 8
"""Shards read at the same time."""
LOOK_AHEAD_MS = 6_000
"""Messages due within this are read again too."""


class Hydrator:
    """A task that runs from the first claim on."""

    def __init__(self, session: Session, reopen: Callable[[], Awaitable[None]]) -> None:
        self._session = session
        self._reopen = reopen
        self._name = secrets.token_hex(8)
        self._read: dict[tuple[int, int], tuple[float, float]] = {}
        """Bucket → when it was read and how long that took, by the monotonic clock."""
        self._hurry = asyncio.Event()
        self._mark = secrets.token_hex(8)
        self._opened_at = 0.0

    def hurry(self) -> None:
        """Run at once: Redis has lost its data."""
        self._read.clear()
        self._hurry.set()

    async def run(self) -> None:
        while True:
            try:
                await self.step()
            except PenstockError as exc:
                self._read.clear()  # a Redis that answers again may have lost everything
                log.warning(
                    "messages due soon were not copied into Redis, the next pass retries: %s",
                    exc,
                )
            try:
                async with asyncio.timeout(STEP_SECONDS):
                    await self._hurry.wait()
            except TimeoutError:
                pass  # the ordinary case: time for the next round
            self._hurry.clear()

    async def step(self) -> int:
        """Read the due buckets if this process leads; the answer is the number of ids copied."""
        session = self._session
        if not await session.near.lead(self._name):
            self._read.clear()
            return 0
        if not await session.near.ensure_epoch(self._mark):
            self._read.clear()
        if time.monotonic() - self._opened_at > REREAD_SECONDS:
            await self._reopen()
            self._opened_at = time.monotonic()
        now = session.clock.now()
        brought = 0
        buckets = await session.buckets.registered(now + session.near_ms)
        for bucket in buckets:
            if self._is_time(bucket, now):
                brought += await self._sweep(bucket, now)
                await session.near.lead(self._name)
        return brought

    async def fill(self) -> None:
        """Read everything near, whichever process leads."""
        now = self._session.clock.now()
        for bucket in await self._session.buckets.registered(now + self._session.near_ms):
            self._read.pop((bucket.width, bucket.number), None)
            await self._sweep(bucket, now)

    async def stop(self) -> None:
        await self._session.near.give_way(self._name)

    def _is_time(self, bucket: Bucket, now: int) -> bool:
        last = self._read.get((bucket.width, bucket.number))
        if last is None:
            return True
        read_at, took = last
        if bucket.start > now + LOOK_AHEAD_MS:
            wait = AHEAD_SECONDS
        elif bucket.end + bucket.width > now:
            wait = REREAD_SECONDS
        else:
            wait = PAST_SECONDS
        return time.monotonic() - read_at >= max(wait, took * SHARE)

    async def _sweep(self, bucket: Bucket, now: int) -> int:
        """Read a bucket: entirely at first and while it is ahead, later only what is due."""
        session = self._session
        place = bucket.width, bucket.number
        whole = place not in self._read or bucket.start > now + LOOK_AHEAD_MS
        high = None if whole else before(now + LOOK_AHEAD_MS)
        began = time.monotonic()
        gate = asyncio.Semaphore(AT_ONCE)

        async def read(shard: int) -> int:
            key = bucket_key(bucket.width, bucket.number, shard)
            number = 0
            async with gate:
                async for page in session.table.pages(Range(DUE, key, before=high)):
                    await self._bring(page)
                    number += len(page)
            return number

        found = sum(await asyncio.gather(*map(read, range(session.shape.shards))))
        self._read[place] = time.monotonic(), time.monotonic() - began
        long_past = now - MARGIN_MS
        if not found and bucket.end < long_past and bucket.vouched < long_past:
            await session.buckets.drop(bucket)
            del self._read[place]
        return found

    async def _bring(self, page: Sequence[Item]) -> None:
        keyed = self._session.keyed
        await self._session.near.add([_hint(i) for i in page if i["r"]["S"] not in keyed])
        ids = [read_order(i["o"]["S"])[1] for i in page if i["r"]["S"] in keyed]
        if ids:  # the index has no keys
            await self._line_up(ids)

    async def _line_up(self, ids: Sequence[str]) -> None:
        """Line these messages up after a second read: the first may be outdated."""
        session = self._session
        waiting = [
            loaded.message
            for loaded in (await session.look(ids)).values()
            if loaded.message.state is State.SCHEDULED
        ]
        await session.turns.line_up(waiting)
        found = await session.look([message.id for message in waiting])
        changed = [m for m in waiting if m.id not in found or found[m.id].message.ref != m.ref]
        await session.turns.step_out(changed)
        again = [found[m.id].message for m in changed if m.id in found]
        await session.turns.line_up(m for m in again if m.state is State.SCHEDULED)


def _hint(item: Item) -> Hint:
    due, message_id = read_order(item["o"]["S"])
    priority = int(item["pr"]["N"]) if "pr" in item else DEFAULT_PRIORITY
    return Hint(message_id, item["r"]["S"], priority, due)
