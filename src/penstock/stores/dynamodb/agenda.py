"""Due times of items of the table, in Redis: processes that look often need not read the table.

As all of Redis here it is only an index. Now and then one process reads the table and adds what is
missing; an id that is wrong is detected when its item is read. An id that was taken is held back
from other processes for a moment, so that two of them do not do the same work at the same time; a
process that dies with it delays it by that moment.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from penstock.model.errors import PenstockError
from penstock.redis_kit.runner import Runner
from penstock.redis_kit.scripts import Script
from penstock.stores.dynamodb.items import before, read_order
from penstock.stores.dynamodb.table import LIST, Range, Table
from penstock.stores.redis.keys import PartitionKeys
from penstock.time.clock import Clock

_TAKE = Script("stores/dynamodb/lua/agenda.lua")

SWEEP_MS = 10_000
"""Milliseconds between two reads of the table, of all processes together."""
AHEAD_MS = 9 * SWEEP_MS
"""How far ahead moments are in Redis."""
SHARE, LONGEST_REST_MS = 20, 60_000
"""After a sweep the table rests for this many times the sweep's duration, and at most so long."""
SWEPT = 100_000
"""Approximate most ids that a sweep puts on the agenda, the nearest first."""
AT_ONCE = 8
"""Partitions of the index read at the same time."""
HOLD_MS = 1_000
"""How long other processes do not get ids that one has taken, unless that one says otherwise."""
MOST = 1_000
"""Ids of one call of Redis."""


class Entries(NamedTuple):
    """The answer of `take`."""

    ids: list[str]
    next_moment: int | None
    """When it is worth looking again."""
    known: bool
    """False: Redis may lack some, and this process is the one to read the table now."""


class Agenda:
    """Ids by moment. Every call raises StoreUnavailable while Redis is unavailable."""

    def __init__(self, runner: Runner, prefix: str, kind: str) -> None:
        keys = PartitionKeys(f"{prefix}:near", 0)
        self._runner = runner
        self._keys = [keys.agenda(kind, part) for part in ("due", "held", "known")]
        self._taken: set[str] = set()
        """Ids taken by this process and not put or dropped since."""

    async def take(self, now: int, limit: int, hold: int = HOLD_MS) -> Entries:
        """Take due ids, the earliest first. Ids of the `take` before are free again."""
        free = sorted(self._taken)
        self._taken.clear()
        known, next_moment, ids = await self._runner.execute(
            _TAKE, self._keys, (now, limit, hold, SWEEP_MS, *free)
        )
        found = [one.decode() for one in ids]
        self._taken.update(found)
        return Entries(found, int(next_moment) if next_moment else None, bool(known))

    async def put(self, moments: Mapping[str, int], *, exact: bool = True) -> None:
        """Note these moments; unless they are `exact`, a known, earlier one stays."""
        due, held, _ = self._keys
        mode = () if exact else ("LT",)
        for ids in _parts(moments):
            entries = [part for one in ids for part in (moments[one], one)]
            await self._runner.call("ZADD", due, *mode, *entries)
            if exact:
                await self._runner.call("ZREM", held, *ids)
        if exact:
            self._taken.difference_update(moments)

    async def hold(self, until: int) -> bool:
        """Hold the ids that were taken for longer, if they still are; False: there are none."""
        for ids in _parts(self._taken):
            entries = [part for one in ids for part in (until, one)]
            await self._runner.call("ZADD", self._keys[1], "XX", "GT", *entries)
        return bool(self._taken)

    async def drop(self, ids: Iterable[str]) -> None:
        due, held, _ = self._keys
        for some in _parts(ids):
            await self._runner.call("ZREM", due, *some)
            await self._runner.call("ZREM", held, *some)
            self._taken.difference_update(some)

    async def sweep(self, table: Table, partitions: Sequence[str], now: int, clock: Clock) -> None:
        """Add what partitions of the list have and Redis may lack; their orders are `order` texts.

        If that fails the next `take` is to do it. What took long is not done again soon.
        """
        began = clock.now()
        until = before(now + AHEAD_MS)
        most = SWEPT // len(partitions) + 1
        gate = asyncio.Semaphore(AT_ONCE)

        async def read(partition: str) -> None:
            number = 0
            async with gate:
                async for items in table.pages(Range(LIST, partition, before=until)):
                    entries = [read_order(item["o"]["S"]) for item in items]
                    await self.put({name: moment for moment, name in entries}, exact=False)
                    number += len(items)
                    if number >= most:
                        return  # these are done with before the next sweep comes to the others

        _, _, known = self._keys
        try:
            await asyncio.gather(*map(read, partitions))
        except PenstockError:
            await self._runner.call("DEL", known)
            raise
        rest = min(max(SWEEP_MS, SHARE * (clock.now() - began)), LONGEST_REST_MS)
        await self._runner.call("PEXPIRE", known, rest)


def _parts(ids: Iterable[str]) -> list[list[str]]:
    everything = list(ids)
    return [everything[i : i + MOST] for i in range(0, len(everything), MOST)]
