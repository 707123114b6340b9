"""Growing partitions under faults: the real layout, put and find of the Redis store.

Only the scripts are stood in for, step by step as their Lua says. Processes with more and more
partitions start, die between any two awaits and start again, while all of them put and look up
the same few ids.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from penstock.model.errors import ConfigError, StoreUnavailable
from penstock.model.message import NewMessage
from penstock.redis_kit.breaker import Breaker
from penstock.redis_kit.runner import Group, Prepared
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.keys import Widths
from penstock.stores.redis.layout import FORMAT, Layout
from penstock.stores.redis.messages.put import put
from penstock.stores.redis.messages.records import pack_id
from penstock.stores.redis.session import Session
from tests.simulation.loop import VirtualLoop

IDS = tuple(f"id{number}" for number in range(30))
LENGTH = 40
"""Seconds in which things go wrong."""
NOW = 1_900_000_000_000


@dataclass(slots=True)
class PartitionServer:
    """What Redis keeps; each method is one script or command."""

    totals: list[int] = field(default_factory=list)
    pending: int | None = None
    format: int | None = None
    """Of what is stored; noted with the first totals."""
    marks: dict[int, int] = field(default_factory=dict)
    """Partition → the generation it is under."""
    records: dict[int, dict[bytes, tuple[bytes, int]]] = field(default_factory=dict)
    """Partition → id → (record, the generation that put it)."""
    broken: list[str] = field(default_factory=list)
    """Promises that did not hold."""

    def layout(self, step: str, value: int | str, store_format: int) -> list[bytes | int | None]:
        told = ",".join(map(str, self.totals))
        if step == "grow" and self.pending is None:
            if int(value) > (self.totals[-1] if self.totals else 0):
                self.pending = int(value)
        elif step == "publish" and self.pending == value:
            if self.totals and self.pending < self.totals[-1]:
                self.broken.append(f"{self.totals[-1]} partitions became {self.pending}")
            if not self.totals:
                self.format = store_format
            self.totals.append(self.pending)
            self.pending = None
        elif step == "forget" and told == value and self.pending is None:
            self.totals[:-1] = [0] * (len(self.totals) - 1)
        told = ",".join(map(str, self.totals))
        pending = None if self.pending is None else b"%d" % self.pending
        return [told.encode() or None, pending, None, self.format]

    def mark(self, partition: int, generation: int) -> int:
        self.marks[partition] = max(generation, self.marks.get(partition, 0))
        return self.marks[partition]

    def put(self, partition: int, group: Group) -> list[Any]:
        generation, number, id_lengths, record_lengths = group.plan[:4]
        if self.marks.get(partition, 0) != generation:
            return [b"layout"]
        joined_ids, joined_records = (group.arguments or ())[:2]
        held = self.records.setdefault(partition, {})
        ids = _cut(joined_ids, id_lengths, number)
        if any(one in held for one in ids):
            return [b"known", [held[i][0] if i in held else None for i in ids], [None] * number]
        for one, record in zip(ids, _cut(joined_records, record_lengths, number), strict=True):
            elsewhere = [p for p, others in self.records.items() if one in others]
            if elsewhere:
                self.broken.append(f"{one!r} is in {elsewhere} and was put into {partition}")
            held[one] = record, generation
        return [b"kept"]

    def put_one(self, partition: int, generation: int, member: bytes, record: bytes) -> int:
        known = self.records.get(partition, {}).get(member)
        if known is not None:
            return int(known[0] == record and self.marks.get(partition, 0) == generation)
        one = Group(partition, (), (generation, 1, len(member), len(record)), (member, record))
        return int(self.put(partition, one) == [b"kept"])

    def find(self, partition: int, group: Group) -> list[Any]:
        held = self.records.get(partition, {})
        ids = group.arguments or ()
        records = [held[i][0] if i in held else None for i in ids]
        return [records, [None] * len(ids), self.marks.get(partition, 0)]

    def counts(self, partition: int, fields: Sequence[str]) -> list[bytes]:
        """How many of each generation a partition holds."""
        held = [generation for _, generation in self.records.get(partition, {}).values()]
        return [b"%d" % held.count(int(name[1:])) for name in fields]

    def forget(self, message_id: str) -> None:
        """It was settled and its time is over."""
        for held in self.records.values():
            held.pop(pack_id(message_id), None)


def _cut(joined: bytes, lengths: int | list[int], number: int) -> list[bytes]:
    ends = list(accumulate([lengths] * number if isinstance(lengths, int) else lengths))
    return [joined[first:end] for first, end in zip([0, *ends], ends, strict=False)]


class SimRunner:
    """A Runner of one process: late, lossy, and silent once the process is dead."""

    def __init__(self, server: PartitionServer, chance: random.Random, *, cluster: bool) -> None:
        self._server = server
        self._chance = chance
        self._cluster = cluster
        """Every partition is a call of its own, with its own fate."""
        self.dead = False
        self.loss = 0.1

    async def run(
        self, script: Script, groups: Sequence[Group], common: Sequence[Any] = (), **_: object
    ) -> list[Any]:
        replies = await self.try_run(script, groups, common)
        for reply in replies:
            if isinstance(reply, StoreUnavailable):
                raise reply
        return replies

    async def try_run(
        self, script: Script, groups: Sequence[Group], common: Sequence[Any] = (), **_: object
    ) -> list[Any]:
        steps = [self._step(script.name, group, common) for group in groups]
        if self._cluster and len(steps) > 1:
            return list(await asyncio.gather(*(self._try(step) for step in steps)))
        answers = await self._try(lambda: [step() for step in steps])
        return answers if isinstance(answers, list) else [answers] * len(steps)

    async def _try(self, step: Callable[[], Any]) -> Any:
        """Its answer, or the error in its place."""
        try:
            return await self._fare(step)
        except StoreUnavailable as exc:
            return exc

    async def single(
        self, script: Script, group: Group, common: Sequence[Any] = (), **_: object
    ) -> Any:
        return await self._fare(self._step(script.name, group, common))

    def prepare(
        self, script: Script, partition: int, keys: Sequence[bytes], *arguments: Any
    ) -> Prepared:
        assert script.name == "put_one"
        return Prepared(partition, keys, arguments, script, b"", Breaker())

    async def call_prepared(self, call: Prepared, member: bytes, record: bytes, *_: bytes) -> Any:
        server, partition, generation = self._server, call.partition, call.arguments[0]
        assert isinstance(generation, int)
        return await self._fare(lambda: server.put_one(partition, generation, member, record))

    async def call(self, *command: Any, partition: int = 0) -> Any:
        server = self._server
        match command:
            case ("SMEMBERS", *_):
                return []
            case ("HMGET", _, *fields):
                return await self._fare(lambda: server.counts(partition, fields))
            case ("HGET", _, "totals"):
                return await self._fare(lambda: server.layout("read", "", FORMAT)[0])
        raise AssertionError(command)

    def _step(self, name: str, group: Group, common: Sequence[Any]) -> Callable[[], Any]:
        server, at = self._server, group.partition
        match name:
            case "layout":
                return lambda: server.layout(common[0], common[1], common[4])
            case "mark":
                return lambda: server.mark(at, common[0])
            case "put":
                return lambda: server.put(at, group)
            case "find":
                return lambda: server.find(at, group)
        raise AssertionError(name)

    async def _fare(self, effect: Callable[[], Any]) -> Any:
        """Its request, its reply or both are late or lost; what is late may still take effect."""
        chance = self._chance
        await asyncio.sleep(chance.choice((0, 0.001, 0.03, 0.4)))
        if self.dead:
            raise asyncio.CancelledError
        fate = chance.random() / self.loss if self.loss else 9
        if fate < 0.3:
            raise StoreUnavailable("simulated: lost request")
        if fate < 0.6:
            late = chance.choice((0.05, 1.0, 5.0))
            asyncio.get_running_loop().call_later(late, effect)
            raise StoreUnavailable("simulated: late write")
        answer = effect()
        await asyncio.sleep(chance.choice((0, 0.001, 0.03)))
        if self.dead:
            raise asyncio.CancelledError
        if fate < 1:
            raise StoreUnavailable("simulated: lost reply")
        return answer


class _Quiet:
    """Wake-ups that nobody listens to."""

    channel = "none"

    def tell(self, route: str, due: int) -> None:
        """Nobody waits here."""

    def tell_earliest(self, messages: Sequence[NewMessage]) -> None:
        """Nor here."""


class SimSession(Session):
    """The real one, with chance that is given."""

    def __init__(self, runner: SimRunner, chance: random.Random) -> None:
        layout = Layout(runner, "sim")  # type: ignore[arg-type]  # what it needs of one
        super().__init__(
            runner,  # type: ignore[arg-type]
            layout,
            Widths(60_000),
            _Quiet(),  # type: ignore[arg-type]
            retention=1,
            retention_count=1,
        )
        self._chance = chance

    def edition(self) -> int:
        return self._chance.getrandbits(16)


class Growing:
    """One run."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(f"{seed}:partitions")
        self._cluster = self._chance.random() < 0.5
        self.server = PartitionServer()
        self.kept: set[str] = set()
        """Ids whose put was answered, and that nobody has forgotten since."""
        self.forgotten = dict.fromkeys(IDS, 0)
        """How often each was."""
        self.wanted = 2
        self.lives = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(3):
                group.create_task(self._process(number))
        runner = SimRunner(self.server, self._chance, cluster=self._cluster)
        runner.loss = 0
        session = SimSession(runner, self._chance)
        await session.layout.open(max((*self.server.totals, self.server.pending or 2)))
        await put(session, _news(IDS), NOW)
        self.kept.update(IDS)
        await self._look(session, list(IDS))

    async def _process(self, number: int) -> None:
        """Life after life."""
        clock = asyncio.get_running_loop()
        while clock.time() < LENGTH:
            self.lives += 1
            chance = random.Random(f"{self._chance.random()}:{number}")
            if chance.random() < 0.3:
                self.wanted *= 2
            wanted = min(64, chance.choice((self.wanted, self.wanted * 2)))
            runner = SimRunner(self.server, chance, cluster=self._cluster)
            task = clock.create_task(self._live(SimSession(runner, chance), wanted, chance))
            await asyncio.wait([task], timeout=chance.choice((0.05, 1, 4, 15)))
            runner.dead = True
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error

    async def _live(self, session: SimSession, wanted: int, chance: random.Random) -> None:
        while True:
            try:
                await session.layout.open(wanted)
                break
            except StoreUnavailable:
                await asyncio.sleep(0.1)
            except ConfigError:
                wanted = session.layout.total  # as an operator would mend the setting
        while True:
            try:
                await self._do(session, chance)
            except StoreUnavailable:
                await asyncio.sleep(0.1)
            await asyncio.sleep(chance.choice((0, 0.01, 0.5)))

    async def _do(self, session: SimSession, chance: random.Random) -> None:
        match chance.choice(("put", "put", "put", "look", "tidy", "forget")):
            case "put":
                ids = chance.sample(IDS, chance.randint(1, 3))
                before = {i: self.forgotten[i] for i in ids}
                receipts = await put(session, _news(ids), NOW)
                ids = [receipt.id for receipt in receipts]
                self.kept.update(i for i in ids if self.forgotten[i] == before[i])
            case "look" if self.kept:
                await self._look(session, [chance.choice(sorted(self.kept))])
            case "tidy":
                await session.layout.forget_older()
            case "forget" if self.kept:
                gone = chance.choice(sorted(self.kept))
                self.kept.discard(gone)
                self.forgotten[gone] += 1
                self.server.forget(gone)

    async def _look(self, session: SimSession, ids: list[str]) -> None:
        found = await session.find(ids)
        lost = [i for i, held in zip(ids, found, strict=True) if held is None]
        if any(one in self.kept for one in lost):
            there = {
                i: [p for p, held in self.server.records.items() if pack_id(i) in held]
                for i in lost
            }
            totals = self.server.totals
            told = f"{there} not found by generation {session.layout.generation} of {totals}"
            self.server.broken.append(told)
        reach = {key.number for key in session.layout.all_keys()}
        if session.layout.generation == len(self.server.totals):
            missed = [p for p, held in self.server.records.items() if held and p not in reach]
            if missed:
                self.server.broken.append(f"nobody claims from partitions {missed}")


def _news(ids: Sequence[str]) -> list[NewMessage]:
    return [NewMessage(id=one, route="r", key=one, payload=b"", due=NOW) for one in ids]


def grow(seed: int) -> Growing:
    """Run it; what was broken is in its server."""
    loop = VirtualLoop()
    growing = Growing(seed)
    try:
        loop.run_until_complete(loop.spawn(growing.run()))
    finally:
        loop.close()
    return growing
