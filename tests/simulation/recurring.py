"""Recurring rules under faults: the real planter and the real changes of rules, in virtual time.

Processes die between any two awaits, freeze, have wrong clocks and lose answers of the store, while
people put, change, pause, trigger, backfill and delete rules; sometimes everybody is away for a
month. The store tells of every message and every row as it is written. Whatever was planned, each
moment of each rule has exactly one message, or is counted as missed or skipped.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from dataclasses import dataclass, field
from typing import Any, TypeVar

from penstock.flow.intake import Intake
from penstock.flow.observe import Observer
from penstock.flow.recur import FRESH_MS, Plant, Planter
from penstock.flow.recurring import Recurring
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.message import NewMessage
from penstock.model.outcome import Amended, Amendment, Receipt, Settlement
from penstock.model.recurrence import (
    AHEAD_MS,
    Moments,
    Overlap,
    Rule,
    RuleRow,
    occurrence_id,
    overdue,
    rule_from,
)
from penstock.model.state import State
from penstock.model.times import format_moment, parse_moment
from penstock.ports.recurring import LOOK_MS, DueRules, RuleListener, Swap
from penstock.ports.store import Store
from penstock.stores.memory import MemoryStore
from penstock.stores.memory.recurring import MemoryRecurring
from tests.simulation.clocks import ProcessClock, ServerClock
from tests.simulation.loop import OWNER, Owner, VirtualLoop
from tests.simulation.weather import Fate, Weather

T = TypeVar("T")

LENGTH = 60
"""Seconds in which things go wrong."""
CALM = 80
"""Seconds after that in which everything must catch up."""
MONTH_MS = 30 * 86_400_000
START = parse_moment("2027-10-30T23:59:30Z")
"""Some minutes before Berlin sets its clocks back."""
ROUTE = "default"
JUMPS = (-20_000, 20_000, 600_000)
IDS = ("one", "two", "three")


@dataclass(slots=True)
class Written:
    """A row as it was written: over which one, and when by the store's clock."""

    at: int
    before: RuleRow | None
    after: RuleRow | None


@dataclass(slots=True)
class RecurringServer:
    """The store that all processes share, and everything that it was told."""

    clock: ServerClock
    memory: MemoryStore = field(init=False)
    rows: dict[str, list[Written]] = field(default_factory=dict)
    made: Counter[str] = field(default_factory=Counter)
    """Message → how often it was new."""
    planted: dict[str, list[int]] = field(default_factory=dict)
    """Rule → the moments of its messages."""
    asked_for: set[str] = field(default_factory=set)
    """Messages that somebody triggered or backfilled, or may have."""
    broken: list[str] = field(default_factory=list)
    set_by: int = 0

    def __post_init__(self) -> None:
        self.memory = MemoryStore(ProcessClock(self.clock), retention=1_000 * MONTH_MS)

    def put(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        receipts = self.memory.book.put(messages, now)
        for receipt in receipts:
            if not receipt.duplicate:
                rule_id, _, text = receipt.id.partition("@")
                self.made[receipt.id] += 1
                self.planted.setdefault(rule_id, []).append(parse_moment(text))
        return receipts

    def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        return [self._swap(swap) for swap in swaps]

    def _swap(self, swap: Swap) -> bool:
        rules = self.memory.recurring
        before = rules._rows.get(swap.id)
        done = rules._swap(swap)
        if done:
            written = Written(self.clock.now(), before, swap.row)
            self.rows.setdefault(swap.id, []).append(written)
            self._check(written)
        return done

    def _check(self, written: Written) -> None:
        """Every moment that a row has passed is planted, missed or skipped."""
        before, after = written.before, written.after
        if before is None or after is None:
            return
        if after.version == before.version:
            self._check_advance(before, after)
        else:
            self._check_change(before, after)

    def _check_advance(self, before: RuleRow, after: RuleRow) -> None:
        passed = Moments(before.rule).count(before.cursor, after.cursor)
        planted = after.planted - before.planted
        counted = after.missed - before.missed + after.skipped - before.skipped
        if planted + counted != passed and not _at_limit(after):
            self.broken.append(f"{after.id}: {passed} passed, {planted} + {counted} counted")
        stored = sum(
            before.cursor < moment <= after.cursor for moment in self.planted.get(after.id, ())
        )
        if stored < planted:
            self.broken.append(f"{after.id}: {planted} planted, {stored} in the store")
        if before.rule.paused and planted:
            self.broken.append(f"{after.id}: planted while it was paused")
        if before.rule.limit is not None and planted and after.planted > before.rule.limit:
            self.broken.append(f"{after.id}: {after.planted} planted, {before.rule.limit} allowed")
        if planted and before.before is not None:
            self._check_overlap(before, before.before)

    def _check_overlap(self, row: RuleRow, moment: int) -> None:
        """Of a rule whose occurrences may not overlap the one before waits no more."""
        message = self.memory.book.find(occurrence_id(row.id, moment))
        if message is None or row.rule.overlap is Overlap.ALLOW:
            return
        waits = {
            Overlap.SKIP: message.state in (State.SCHEDULED, State.LEASED),
            Overlap.REPLACE: message.state is State.SCHEDULED,
        }
        if waits[row.rule.overlap]:
            self.broken.append(f"{row.id}: planted while {message.id} was {message.state}")

    def _check_change(self, before: RuleRow, after: RuleRow) -> None:
        """Nothing that the old rule had is left out, and the new one begins behind it."""
        left = 0
        if not before.rule.paused and before.next is not None:
            left = Moments(before.rule).count(before.cursor, after.changed)
        if left:  # whoever changes a rule plants what it has due
            self.broken.append(f"{after.id}: a change left out {left} moments")
        if after.cursor != max(before.cursor, after.changed):
            self.broken.append(f"{after.id}: a change begins at {format_moment(after.cursor)}")
        coming = Moments(after.rule).first_after(after.cursor)
        if after.next != coming and not _at_limit(after):
            self.broken.append(f"{after.id}: a change left out {coming}")

    def check_in_the_end(self) -> None:
        for name, number in self.made.items():
            if number > 1:
                self.broken.append(f"{name} was planted {number} times")
        for row in self.memory.recurring._rows.values():
            if overdue(row, self.clock.now() - AHEAD_MS) and row.error is None:
                self.broken.append(f"{row.id}: nobody plants it")
        for name in self.made:
            if name not in self.asked_for and "." not in name:  # triggered, that is
                self._check_in_force(name)

    def _check_in_force(self, name: str) -> None:
        """The moment is one of a rule that was in force about then."""
        rule_id, _, text = name.partition("@")
        moment = parse_moment(text)
        history = self.rows.get(rule_id, [])
        ends = [*(one.at for one in history[1:]), 1 << 62]
        slack = AHEAD_MS + FRESH_MS + self.set_by
        for written, end in zip(history, ends, strict=True):
            row = written.after
            if row is None or row.rule.paused or end + slack < moment:
                continue
            if row.cursor <= moment and Moments(row.rule).has(moment):
                return
        self.broken.append(f"{name}: no rule had this moment")


def _at_limit(row: RuleRow) -> bool:
    return row.rule.limit is not None and row.planted >= row.rule.limit


class Away:
    """One process's way to the store."""

    def __init__(self, loop: VirtualLoop, owner: Owner, weather: Weather) -> None:
        self._loop = loop
        self._owner = owner
        self._weather = weather

    async def call(self, work: Callable[[], T]) -> T:
        if self._owner.dead:
            raise asyncio.CancelledError
        fate = self._weather.fate()
        await asyncio.sleep(self._weather.way())
        if fate in (Fate.AWAY, Fate.LOST_REQUEST):
            await asyncio.sleep(self._weather.timeout())
            raise StoreUnavailable(f"simulated: {fate}")
        if fate is Fate.LATE_WRITE:
            self._loop.later(self._weather.late(2_000), lambda: _ignore(work))
            await asyncio.sleep(self._weather.timeout())
            raise StoreUnavailable(f"simulated: {fate}")
        answer = work()
        if fate is Fate.LOST_REPLY:
            await asyncio.sleep(self._weather.timeout())
            raise StoreUnavailable(f"simulated: {fate}")
        if fate is Fate.LATE_REPLY:
            await asyncio.sleep(self._weather.late(2_000))
        await asyncio.sleep(self._weather.way())
        return answer


def _ignore(work: Callable[[], object]) -> None:
    work()


class LinkedMessages(MemoryStore):
    """As much of a message store as planting needs."""

    def __init__(self, server: RecurringServer, clock: ProcessClock, away: Away) -> None:
        super().__init__(clock)
        self._server = server
        self._away = away
        self.book = server.memory.book

    async def put(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        return await self._away.call(lambda: self._server.put(messages, now))

    async def find(self, ids: Sequence[str]) -> list[Any]:
        return await self._away.call(lambda: [self.book.find(name) for name in ids])

    async def amend(self, amendments: Sequence[Amendment], now: int) -> list[Amended]:
        return await self._away.call(lambda: self.book.amend(amendments, now))


class LinkedRules:
    """A RecurringStore over the network."""

    def __init__(self, server: RecurringServer, away: Away) -> None:
        self._server = server
        self._away = away
        self._to: MemoryRecurring = server.memory.recurring
        self._listeners: list[RuleListener] = []

    @property
    def look_ms(self) -> int:
        return LOOK_MS

    async def rules(self, ids: Sequence[str]) -> list[RuleRow | None]:
        return await self._away.call(lambda: [self._to._rows.get(name) for name in ids])

    async def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        done = await self._away.call(lambda: self._server.swap(swaps))
        for swap in swaps:
            if swap.row is not None and swap.row.wake is not None:
                for listener in self._listeners:
                    listener(swap.row.wake)
        return done

    async def due(self, now: int, limit: int) -> DueRules:
        await self._away.call(lambda: None)
        return await self._to.due(now, limit)

    async def page(self, after: str | None, limit: int) -> list[RuleRow]:
        raise AssertionError(f"nobody lists rules here: {after} {limit}")

    async def managed(self) -> list[str]:
        raise AssertionError("nobody has settings here")

    def listen(self, listener: RuleListener) -> None:
        self._listeners.append(listener)


class Process:
    """A worker that plants, or an API, life after life."""

    def __init__(self, world: World, number: int) -> None:
        self._world = world
        self._chance = random.Random(f"{world.seed}:process:{number}")
        self.weather = Weather(world.server.clock, self._chance, self._chance.choice((0, 5, 40)))
        self.offset = self._chance.choice((0, 0, 30, -30, 400, -400))
        self._plants = number == 0 or self._chance.random() < 0.5
        """Others only answer people: a planter does not hear of what they write."""
        self.owner = Owner()
        self.recurring: Recurring | None = None

    def start(self) -> None:
        if self.recurring is not None and not self.owner.dead:
            return
        world = self._world
        self.owner = Owner()
        self.owner.blow = self.kill
        clock = ProcessClock(world.server.clock, self.offset)
        away = Away(world.loop, self.owner, self.weather)
        store = Store(messages=LinkedMessages(world.server, clock, away))
        rules = LinkedRules(world.server, away)
        observer = Observer()
        intake = Intake(store.messages, observer)
        plant = Plant(rules, store, intake, observer)
        self.recurring = Recurring(rules, store, intake, plant)
        if self._plants:
            self.spawn(Planter(rules, store, plant, chance=self._chance).run())

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        context = copy_context()
        context.run(OWNER.set, self.owner)
        task = self._world.loop.create_task(work, context=context)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.owner.dead:
            self._world.server.broken.append(f"a process fell over: {error!r}")

    def kill(self) -> None:
        self.owner.dead = True
        self.owner.fuse = 0
        if self.owner.frozen:
            self._world.loop.thaw(self.owner)
        for task in list(self.owner.tasks):
            task.cancel()
        self.recurring = None

    def freeze(self, seconds: float) -> None:
        owner = self.owner
        owner.frozen = True
        self._world.loop.later(seconds, lambda: self._world.loop.thaw(owner))


class World:
    """One run of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.chance = random.Random(f"{seed}:recurring")
        self.loop = VirtualLoop()
        self.server = RecurringServer(ServerClock(self.loop, START))
        self.processes = [Process(self, n) for n in range(self.chance.choice((1, 2, 3)))]

    async def run(self) -> None:
        self._start_all()
        delivering = asyncio.ensure_future(self._deliver())
        for at in sorted(self.chance.uniform(0, LENGTH) for _ in range(30)):
            self.loop.later(at, self._happen)
        for at in sorted(self.chance.uniform(0, LENGTH) for _ in range(25)):
            self.loop.later(at, self._ask)
        await asyncio.sleep(LENGTH)
        if self.chance.random() < 0.3:
            await self._be_away_for_a_month()
        for process in self.processes:
            process.weather.clear()
            process.owner.fuse = 0
        await asyncio.sleep(8)
        self._start_all()
        await asyncio.sleep(CALM)
        delivering.cancel()
        self.server.check_in_the_end()
        for process in self.processes:
            process.kill()
        await asyncio.sleep(1)

    def _start_all(self) -> None:
        for process in self.processes:
            process.start()

    async def _be_away_for_a_month(self) -> None:
        for process in self.processes:
            process.kill()
        await asyncio.sleep(3)
        self.server.clock.set_by += MONTH_MS
        self.server.set_by += MONTH_MS

    async def _deliver(self) -> None:
        """Somebody sends; slowly enough that some occurrences overlap."""
        book = self.server.memory.book
        while True:
            await asyncio.sleep(self.chance.choice((0.2, 1, 7)))
            now = self.server.clock.now()
            claim = book.claim(ROUTE, 1_000, 60_000, now)
            book.settle(
                [Settlement(m, claim.token, State.DELIVERED, "delivered") for m in claim.messages],
                now,
            )

    def _happen(self) -> None:
        process = self.chance.choice(self.processes)
        match self.chance.choice(("crash", "crash", "crash", "freeze", "lossy", "away", "jump")):
            case "crash":
                process.owner.fuse = self.chance.choice((1, 2, 3, 5, 8, 13))
                self.loop.later(self.chance.choice((0.5, 2, 6)), process.start)
            case "freeze":
                process.freeze(self.chance.choice((0.5, 3, 12)))
            case "lossy":
                process.weather.lossy(4_000, 0.5)
            case "away":
                process.weather.away(self.chance.choice((1_000, 6_000)))
            case _:
                by = self.chance.choice(JUMPS)
                self.server.clock.set_by += by
                self.server.set_by += abs(by)

    def _ask(self) -> None:
        process = self.chance.choice(self.processes)
        if process.recurring is not None:
            process.spawn(self._do(process.recurring))

    async def _do(self, recurring: Recurring) -> None:
        rule_id = self.chance.choice(IDS)
        asked = self.chance.choice(
            ("put", "put", "put", "put", "pause", "resume", "trigger", "backfill", "delete")
        )
        try:
            await self._asked(recurring, rule_id, asked)
        except PenstockError:
            return  # unknown, away, or another version

    async def _asked(self, recurring: Recurring, rule_id: str, asked: str) -> None:
        now = self.server.clock.now()
        match asked:
            case "put":
                await recurring.put(rule_id, self._rule())
            case "pause" | "resume":
                await recurring.pause(rule_id, paused=asked == "pause")
            case "trigger":
                for jump in (0, *JUMPS):  # by the clock of the process, which may freeze first
                    own = (now + jump) // 1_000 * 1_000
                    near = range(own - 3_000, own + 20_000, 1_000)
                    self.server.asked_for.update(occurrence_id(rule_id, at) for at in near)
                await recurring.trigger(rule_id)
            case "backfill":
                first = now - self.chance.choice((5_000, 200_000))
                seconds = range(first // 1_000 * 1_000, now + 60_000, 1_000)
                self.server.asked_for.update(occurrence_id(rule_id, at) for at in seconds)
                await recurring.backfill(rule_id, format_moment(first), format_moment(now - 500))
            case _:
                await recurring.delete(rule_id)

    def _rule(self) -> Rule:
        chance = self.chance
        fields: dict[str, Any] = {
            "misfire": chance.choice(("latest", "latest", "skip", "all")),
            "catch_up": chance.choice(("10s", "5m")),
            "overlap": chance.choice(("allow", "allow", "skip", "replace")),
            "payload": chance.randint(0, 9),
        }
        if chance.random() < 0.2:
            fields["limit"] = chance.choice((1, 5))
        if chance.random() < 0.2:
            fields["expires_after"] = "20s"
        if chance.random() < 0.2:
            fields["jitter"] = "2s"
        if chance.random() < 0.6:
            return rule_from({"every": chance.choice(("1s", "2s", "5s", "1m")), **fields})
        text = chance.choice(("* * * * *", "*/2 * * * *", "*/10 * * * * *", "59 1 * * *"))
        return rule_from({"cron": text, "zone": "Europe/Berlin", **fields})


def recur(seed: int) -> RecurringServer:
    """One run; `broken` is empty when every promise held."""
    world = World(seed)
    try:
        world.loop.run_until_complete(world.loop.spawn(world.run()))
    finally:
        world.loop.close()
    return world.server
