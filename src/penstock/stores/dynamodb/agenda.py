"""Moments at which items of the table are due, in Redis: who looks often need not read the table.

As all of Redis here it is only an index. Now and then one process reads the table and adds what is
missing; an id that is wrong is detected when its item is read. An id that was taken is held back
from other processes for a moment, so that two of them do not do the same work at the same time; a
process that dies with it delays it by that moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from penstock.redis_kit.runner import Runner
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.keys import PartitionKeys

_TAKE = Script("stores/dynamodb/lua/agenda.lua")

SWEEP_MS = 10_000
"""Milliseconds between two reads of the table, of all processes together."""
AHEAD_MS = 9 * SWEEP_MS
"""How far ahead moments are in Redis."""
HOLD_MS = 1_000
"""How long others do not get the ids that were taken, unless the taker says otherwise."""
MOST = 1_000
"""Ids of one call of Redis."""


class Entries(NamedTuple):
    """What `take` found."""

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

    async def rest(self, millis: int) -> None:
        """No process is to read the table for so long."""
        await self._runner.call("PEXPIRE", self._keys[2], millis)

    async def unknow(self) -> None:
        """The table could not be read: the next `take` is to do it."""
        await self._runner.call("DEL", self._keys[2])


def _parts(ids: Iterable[str]) -> list[list[str]]:
    everything = list(ids)
    return [everything[i : i + MOST] for i in range(0, len(everything), MOST)]
