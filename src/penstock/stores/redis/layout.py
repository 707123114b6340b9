"""How many partitions there are: kept in the store, only ever growing, by generations.

To grow, the new total is noted, every partition is marked with the new generation (from then on
puts of an older one are refused there and re-read the layout), and only then the total is
published. An id lives where the generation of its put says: a put or look-up checks its home and,
while older generations still hold messages, where those would have put it. Older generations take
no new ids, so a look followed by a put cannot miss one.

Routes that keep turns (turns.py) are part of the layout: one that becomes such a route is a new
generation too, so that no process goes on putting its messages where turns are not kept. They live
by key, in as many partitions as there were then: a key's place never changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from zlib import crc32

from penstock.model.errors import ConfigError
from penstock.model.identity import DEFAULT_PARTITIONS
from penstock.redis_kit.connect import Argument
from penstock.redis_kit.runner import Group, Runner
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.keys import PAUSED, PartitionKeys

_MARK = Script("stores/redis/mark.lua")
_LAYOUT = Script("stores/redis/layout.lua")
_PAUSE = Script("stores/redis/pause.lua")

PATIENCE = 20
"""Reads of a change under way before it is taken over: its process may have died."""
PAUSE = 0.02
"""Seconds between two looks."""
MAX_GENERATION = 255
FORMAT = 1
"""Version of everything this store writes (docs/internals/formats.md): another one is refused."""


class Layout:
    """The layout as this process knows it, and the steps that change it."""

    def __init__(self, runner: Runner, prefix: str) -> None:
        self._runner = runner
        self._prefix = prefix
        self._key = f"{prefix}:layout".encode()
        self._paused_key = f"{prefix}:paused".encode()
        self._keys: dict[int, PartitionKeys] = {}
        self._lock = asyncio.Lock()
        self._wanted = 1
        self.generation = 0
        self.seen = 0
        """The newest generation that any partition was found under."""
        self.total = 0
        self.older: tuple[int, ...] = ()
        """Other totals, of older generations that may still hold messages."""
        self.keyed: dict[str, int] = {}
        """Routes that keep turns, with the number of partitions their keys are spread over."""

    async def open(self, wanted: int | None) -> None:
        """Take part in the layout, growing it to `wanted`; ConfigError if it is larger.

        None: keep its size.
        """
        self._wanted = DEFAULT_PARTITIONS if wanted is None else wanted
        await self.refresh()
        if wanted is None:
            self._wanted = wanted = self.total
        if self.total < wanted:
            async with self._lock:
                while self.total < wanted:
                    if self.generation >= MAX_GENERATION:
                        raise ConfigError("store: its partitions were grown too many times")
                    await self._grow(wanted)
        if wanted < self.total:
            raise ConfigError(
                f"worker.total_partitions: the store has {self.total} partitions and they cannot"
                f" be reduced to {wanted}; set it to {self.total} or more"
            )

    async def keep_turns(self, routes: Iterable[str]) -> None:
        """Have these routes keep turns from now on, in every process."""
        wanted = set(routes)
        while wanted - self.keyed.keys():
            async with self._lock:
                new = sorted(wanted - self.keyed.keys())
                if self.generation >= MAX_GENERATION:
                    raise ConfigError("store: its partitions were changed too many times")
                pending = await self._step("promise", self.total, ",".join(new))
                if pending is not None:
                    await self._finish(pending)

    async def refresh(self) -> None:
        """Read the layout again; finish a change that another process left half done."""
        async with self._lock:
            pending = await self._step("read")
            for _ in range(PATIENCE):
                if pending is None:
                    break
                await asyncio.sleep(PAUSE)
                pending = await self._step("read")
            if pending is not None:
                await self._finish(pending)
            if self.total == 0:
                await self._grow(self._wanted)

    async def _grow(self, wanted: int) -> None:
        pending = await self._step("grow", wanted)
        if pending is not None:
            await self._finish(pending)

    async def renew(self, refused: Iterable[int]) -> None:
        """Puts were refused by these partitions: reread the layout, or restore their lost
        generation.
        """
        before = self.generation
        await self.refresh()
        if self.generation == before:  # a server that forgot its data knows no generation
            await self._mark([p for p in refused if p < self.total], self.generation)

    async def _finish(self, pending: int) -> None:
        await self._mark(range(pending), self.generation + 1)
        await self._step("publish", pending)

    async def _mark(self, partitions: Iterable[int], generation: int) -> None:
        paused = await self._runner.call("SMEMBERS", self._paused_key)
        fields = [PAUSED.encode() + route for route in paused]
        groups = [
            Group(p, (keys.generation, keys.leases, keys.tokens, keys.grants, keys.counters))
            for p in partitions
            for keys in (self.keys(p),)
        ]
        if groups:
            await self._runner.run(_MARK, groups, [generation, *fields])

    async def _step(self, step: str, value: int | str = "", routes: str = "") -> int | None:
        """The total that is under way, if one is."""
        group = Group(0, (self._key,))
        asked: list[Argument] = [step, value, routes, self.generation, FORMAT]
        reply = await self._runner.single(_LAYOUT, group, asked)
        totals, pending, keyed, found = reply
        if totals is not None:
            self._check_format(int(found or 0))
        self._learn(totals, keyed)
        return None if pending is None else int(pending)

    def _check_format(self, found: int) -> None:
        if found != FORMAT:
            newer = "upgrade Penstock" if found > FORMAT else "it was written before 0.2"
            raise ConfigError(
                f"store: {self._prefix}:* has format {found}, this Penstock knows {FORMAT}:"
                f" {newer}, or name another prefix (?prefix=…)"
            )

    def _learn(self, totals: bytes | None, keyed: bytes | None) -> None:
        counts = [] if totals is None else [int(total) for total in totals.split(b",")]
        self.generation = len(counts)
        self.total = counts[-1] if counts else 0
        self.older = tuple(total for total in counts[:-1] if total and total != self.total)
        spread = [] if keyed is None else keyed.decode().split(",")
        self.keyed = {route: int(over) for route, _, over in (one.partition("=") for one in spread)}

    async def forget_older(self) -> None:
        """Drop the totals of generations that have no messages left."""
        if not self.older:
            return
        fields = [f"g{number}" for number in range(1, self.generation)]
        generation = self.generation
        for keys in self.all_keys():
            counts = await self._runner.call("HMGET", keys.counters, *fields, partition=keys.number)
            if any(int(number or 0) > 0 for number in counts):
                return
        totals = await self._runner.call("HGET", self._key, "totals")
        if totals is not None and totals.count(b",") + 1 == generation:
            async with self._lock:
                await self._step("forget", totals.decode())

    def keys(self, partition: int) -> PartitionKeys:
        keys = self._keys.get(partition)
        if keys is None:
            keys = self._keys[partition] = PartitionKeys(self._prefix, partition)
        return keys

    def all_keys(self) -> list[PartitionKeys]:
        return [self.keys(partition) for partition in range(self.total)]

    def home(self, message_id: str) -> int:
        """The partition a new id is put into."""
        return crc32(message_id.encode()) % self.total

    def homes(self, ids: Iterable[str]) -> list[int]:
        """The same of many."""
        total = self.total
        return [crc32(message_id.encode()) % total for message_id in ids]

    def place(self, route: str, key: str, message_id: str) -> int:
        """The partition of a new message: that of its key, where turns are kept."""
        over = self.keyed.get(route)
        return self.home(message_id) if over is None else crc32(key.encode()) % over

    def elsewhere(self, message_id: str) -> list[int]:
        """Other partitions the id may be in since an older generation."""
        number = crc32(message_id.encode())
        home = number % self.total
        return sorted({number % total for total in self.older} - {home})

    async def pause(self, route: str, paused: bool) -> None:
        """Record the pause for future partitions, then in every existing one."""
        await self._runner.call("SADD" if paused else "SREM", self._paused_key, route)
        generation = 0
        while generation != self.generation:  # again if the layout grows in between
            await self.refresh()
            generation = self.generation
            groups = [Group(keys.number, (keys.counters,)) for keys in self.all_keys()]
            await self._runner.run(_PAUSE, groups, [PAUSED + route, "1" if paused else "0"])
            await self.refresh()

    async def paused(self) -> frozenset[str]:
        routes = await self._runner.call("SMEMBERS", self._paused_key)
        return frozenset(route.decode() for route in routes)
