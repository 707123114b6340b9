"""One run: the fleet, those who ask, what goes wrong, the mending, and what is found in the end."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.policy import Suppression, policy_from
from penstock.model.room import RoomState
from penstock.rooms.parts import RoomParts
from tests.simulation import checks
from tests.simulation.broker import Broker
from tests.simulation.callers import Callers, is_open
from tests.simulation.clocks import ServerClock
from tests.simulation.journal import Failure, Journal
from tests.simulation.loop import BusyLoop, Stuck, VirtualLoop
from tests.simulation.plan import Ask, Asked, Event, Kind, Plan
from tests.simulation.process import FleetProcess, Life
from tests.simulation.receiver import Receiver
from tests.simulation.server import Server
from tests.simulation.visitors import ROOM, room_draft, visit

POLICIES: dict[str, dict[str, object]] = {
    "cap": {"kind": "cap", "scope": ["key"], "limit": 2, "window": "10s"},
    "interval": {"kind": "cap", "scope": ["key"], "min_interval": "1s"},
    "pace": {"kind": "pace", "rate": "4/s", "burst": 2},
    "cross": {"kind": "pace", "rate": "4/s", "burst": 1, "applies_to": {"class": ["promo"]}},
    "quiet": {"kind": "quiet", "from": "17:00", "to": "17:47", "zone": "UTC", "spread": "5s"},
}
"""The run begins at 17:46:40 UTC."""
DRAIN_MS = 90_000
"""How long everything may take to come to its end once nothing goes wrong any more."""
MEASURE_MS = 5_000
"""How long a process does not notice that its clock is wrong."""
PROGRESS = "progress: nothing is stuck when faults stop"


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run came to."""

    plan: Plan
    failures: tuple[Failure, ...]
    digest: str
    millis: int
    """Of simulated time."""
    messages: int
    arrivals: int
    faults: int
    admitted: int
    story: tuple[str, ...]
    """What happened to whatever the failures are about."""


class World:
    def __init__(self, plan: Plan, loop: VirtualLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.clock = ServerClock(loop)
        self.journal = Journal(self.clock)
        self.server = Server(plan, loop, self.clock, self.journal)
        self.receivers = {
            route.name: Receiver(
                route,
                loop,
                self.clock,
                self.journal,
                random.Random(f"{plan.seed}:sink:{route.name}"),
                plan.lease,
            )
            for route in plan.routes
        }
        self.broker = Broker(self.clock, self.journal, random.Random(f"{plan.seed}:broker"))
        self.processes = {
            config.name: FleetProcess(
                plan,
                config,
                loop,
                self.clock,
                self.journal,
                self.server,
                self.receivers,
                self.broker,
            )
            for config in plan.processes
        }
        self.callers = Callers(plan, self.clock, self.journal, self.broker)
        self.jumped = False
        """Clocks were set: what was measured before and after cannot be compared."""
        self._chance = random.Random(f"{plan.seed}:picks")
        self._visitors: list[asyncio.Task[None]] = []
        self._calm = False

    async def run(self) -> None:
        for process in self.processes.values():
            process.start()
        await asyncio.sleep(0.1)
        await self._prepare()
        for event in self.plan.events:
            self.loop.later(event.at / 1000, partial(self._happen, event))
        for asked in self.plan.asked:
            self.loop.later(asked.at / 1000, partial(self._ask, asked))
        await asyncio.sleep(self.plan.length / 1000)
        await self._mend()
        await self._drain()
        await checks.check(self)

    # --- what is asked ---

    def _ask(self, asked: Asked) -> None:
        if asked.ask is Ask.PUBLISH:
            self.callers.publish(asked)
        elif asked.ask is Ask.VISIT:
            task = self.loop.spawn(visit(asked.number, self.plan, self.journal, self._room_request))
            self._visitors.append(task)
        elif (process := self._pick(self._chance)) is not None and process.life is not None:
            process.spawn(self.callers.ask(asked, process.life))

    def _pick(self, chance: random.Random) -> FleetProcess | None:
        serving = [process for process in self.processes.values() if process.serving]
        return chance.choice(serving) if serving else None

    async def request(
        self, chance: random.Random, work: Callable[[Life], Awaitable[object]]
    ) -> object:
        """Ask a process that is up: its answer, the error it told, or None: it never answered."""
        process = self._pick(chance)
        if process is None or process.life is None:
            return None
        life = process.life
        answered: asyncio.Future[object] = self.loop.create_future()

        async def serve() -> None:
            try:
                answer: object = await work(life)
            except PenstockError as exc:
                answer = exc
            if not answered.done():
                answered.set_result(answer)

        def gone(_: object) -> None:
            if not answered.done():
                answered.set_result(None)

        process.spawn(serve()).add_done_callback(gone)
        return await answered

    async def _room_request(
        self, chance: random.Random, work: Callable[[RoomParts], Awaitable[object]]
    ) -> object:
        async def ask(life: Life) -> object:
            return None if life.rooms is None else await work(life.rooms)

        return await self.request(chance, ask)

    async def insist(self, work: Callable[[Life], Awaitable[object]]) -> object:
        """As an operator would: until somebody says it is done."""
        for _ in range(200):
            answer = await self.request(self._chance, work)
            if answer is not None and not isinstance(answer, StoreUnavailable):
                return answer
            await asyncio.sleep(0.2)
        self.journal.fail(PROGRESS, "", "nobody answers an operator")
        return None

    # --- what goes wrong ---

    async def _prepare(self) -> None:
        for name in self.plan.policies:
            await self._set_policy(name, put=True)
        if self.plan.rooms:
            await self._set_room(2)

    def _happen(self, event: Event) -> None:
        if self._calm:
            return
        process = self.processes.get(event.target)
        match event.kind:
            case Kind.CRASH if process is not None:
                self._crash(process, event)
            case Kind.RESTART if process is not None:
                process.stop()
                self.loop.later((event.span + 3_000) / 1000, process.start)
            case Kind.FREEZE if process is not None:
                process.freeze(event.span)
            case Kind.AWAY | Kind.LOSSY:
                self._bad_weather(event)
            case Kind.SINK:
                self._mood(event.target, event.detail, event.span)
            case Kind.JUMP:
                self._jump(event)
            case Kind.GROW:
                self.server.partitions *= 2
            case Kind.BROKER:
                self.broker.away = True
                self.loop.later(event.span / 1000, self._broker_back)
            case _:
                self.loop.spawn(self._operate(event))

    def _crash(self, process: FleetProcess, event: Event) -> None:
        if process.life is not None:
            if event.value:
                process.life.owner.fuse = event.value
            else:
                process.kill()
        self.loop.later((event.span + 500) / 1000, process.start)

    def _bad_weather(self, event: Event) -> None:
        for process in self.processes.values():
            if event.target in ("", process.name):
                if event.kind is Kind.AWAY:
                    process.weather.away(event.span)
                else:
                    process.weather.lossy(event.span, event.value / 100)

    def _mood(self, route: str, mood: str, span: int) -> None:
        receiver = self.receivers[route]
        self.journal.note(route, "mood", "", mood)
        receiver.mood = mood

        def better() -> None:
            receiver.mood = ""

        self.loop.later(span / 1000, better)

    def _jump(self, event: Event) -> None:
        told = f"clock {event.target or 'of the store'} {event.value:+} ms"
        self.journal.trouble(told, span=MEASURE_MS + 2 * self.plan.lease)
        self.jumped = True
        if not event.target or not self.plan.skewed:
            self.clock.set_by += event.value
            return
        process = self.processes[event.target]
        process.offset += event.value
        if process.life is not None:
            process.life.clock.offset = process.offset
        # Measured against the store's clock again before long.
        self.loop.later(MEASURE_MS / 1000, lambda: self._measure(process))

    def _measure(self, process: FleetProcess) -> None:
        process.offset = process.config.offset
        if process.life is not None:
            process.life.clock.offset = process.offset

    def _broker_back(self) -> None:
        self.broker.away = False

    async def _operate(self, event: Event) -> None:
        match event.kind:
            case Kind.PAUSE:
                await self.request(
                    self._chance, lambda life: life.control.pause(event.target, True)
                )
                await asyncio.sleep(event.span / 1000)
                await self.request(
                    self._chance, lambda life: life.control.pause(event.target, False)
                )
            case Kind.POLICY:
                await self._set_policy(event.detail, put=bool(event.value))
            case Kind.CAPACITY:
                await self._set_room(event.value)
            case Kind.SHUT:
                await self._set_room_state(RoomState.PAUSED)
                await asyncio.sleep(event.span / 1000)
                await self._set_room_state(RoomState.OPEN)

    async def _set_policy(self, name: str, *, put: bool) -> None:
        async def work(life: Life) -> object:
            if name == "suppress" and put:
                await life.policies.put_suppression("list", Suppression(keys=("k4",)))
            elif name == "suppress":
                await life.policies.drop_suppression("list")
            elif put:
                await life.policies.put({name: policy_from(POLICIES[name])})
            else:
                await life.policies.drop(name)
            return True

        await self.request(self._chance, work)

    async def _set_room(self, capacity: int) -> None:
        draft = room_draft(self.plan, capacity)
        await self._room_request(self._chance, lambda parts: parts.operate.put(ROOM, draft))

    async def _set_room_state(self, state: RoomState) -> None:
        await self._room_request(self._chance, lambda parts: parts.operate.set_state(ROOM, state))

    # --- the end ---

    async def _mend(self) -> None:
        """From here on nothing goes wrong, and nothing is held back."""
        self._calm = True
        self.journal.note("world", "MENDED")
        self.broker.away = False
        for receiver in self.receivers.values():
            receiver.mood = ""
        for process in self.processes.values():
            process.weather.clear()
            process.start()
        await asyncio.sleep(4 * self.plan.lease / 1000 + 5)
        for process in self.processes.values():
            process.start()
        await asyncio.sleep(0.5)
        for route in self.plan.routes:
            await self.insist(partial(_resume, route.name))
        for name in POLICIES:
            await self.insist(partial(_drop, name))
        await self.insist(lambda life: _done(life.policies.drop_suppression("list")))
        if self.plan.rooms:
            draft = room_draft(self.plan, 3)
            await self.insist(lambda life: _done(_rooms(life).operate.put(ROOM, draft)))
            opened = RoomState.OPEN
            await self.insist(lambda life: _done(_rooms(life).operate.set_state(ROOM, opened)))

    async def _drain(self) -> None:
        """What is far ahead is asked for now; then everything must come to its end."""
        ledger = self.server.books.ledger
        end = self.clock.elapsed() + DRAIN_MS
        while self.clock.elapsed() < end:
            far = self.clock.now() + 30_000
            for name, known in list(ledger.known.items()):
                if is_open(known.state) and known.due > far:
                    self.callers.answers.moved.add(name)
                    await self.insist(partial(_release, name))
            left = [n for n, known in ledger.known.items() if is_open(known.state)]
            undone = [one for one in self.broker.letters if not one.done]
            visiting = [task for task in self._visitors if not task.done()]
            if not left and not undone and not visiting:
                return
            await asyncio.sleep(1)
        for name in left:
            known = ledger.known[name]
            self.journal.fail(
                PROGRESS, name, f"is {known.state}, due {known.due - far + 30_000} ms"
            )
        for one in undone:
            self.journal.fail(PROGRESS, f"letters/{one.number}", "was never taken in")
        if visiting:
            self.journal.fail(PROGRESS, "", "a visitor waits for ever")


async def _done(work: Awaitable[object]) -> object:
    """True, or the error that is an answer too."""
    try:
        await work
    except StoreUnavailable:
        raise
    except PenstockError as exc:
        return exc
    return True


async def _resume(route: str, life: Life) -> object:
    return await _done(life.control.pause(route, False))


async def _drop(policy: str, life: Life) -> object:
    return await _done(life.policies.drop(policy))


async def _release(message_id: str, life: Life) -> object:
    return await _done(life.control.release(message_id))


def _rooms(life: Life) -> RoomParts:
    assert life.rooms is not None
    return life.rooms


@contextmanager
def _silence() -> Iterator[None]:
    """What the fleet logs of its faults is expected, and the journal has it."""
    logger = logging.getLogger("penstock")
    before = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(before)


def simulate(plan: Plan) -> Outcome:
    """Run it. The same plan gives the same outcome, down to the digest of every step."""
    loop = VirtualLoop()
    world = World(plan, loop)
    loop.set_exception_handler(lambda _, context: _unhandled(world, context))
    try:
        main = loop.spawn(world.run())
        try:
            with _silence():
                loop.run_until_complete(main)
        except (BusyLoop, Stuck) as exc:
            world.journal.fail(PROGRESS, "", str(exc))
        _unwind(loop, world)
    finally:
        world.server.close()
        loop.close()
    return _outcome(world)


def _unwind(loop: VirtualLoop, world: World) -> None:
    """End every task, quietly: what they do now reaches nobody."""
    loop.calm_down()
    lines, failures = len(world.journal.lines), len(world.journal.failures)
    for process in world.processes.values():
        if process.life is not None:
            process._end(process.life)

    async def settle() -> None:
        for _ in range(200):
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.sleep(0)

    loop.run_until_complete(loop.spawn(settle()))
    del world.journal.lines[lines:], world.journal.failures[failures:]


def _unhandled(world: World, context: dict[str, object]) -> None:
    error = context.get("exception")
    if not isinstance(error, asyncio.CancelledError):
        world.journal.fail("no exception is lost", "", f"{context.get('message')}: {error!r}")


def _outcome(world: World) -> Outcome:
    journal = world.journal
    failures = tuple(journal.failures)
    arrivals = sum(
        send.arrived is not None for one in world.receivers.values() for send in one.sends
    )
    about = [failure.about for failure in failures[:3]]
    return Outcome(
        plan=world.plan,
        failures=failures,
        digest=journal.digest(),
        millis=world.clock.elapsed(),
        messages=len(world.server.books.ledger.known) + len(world.server.books.ledger.forgotten),
        arrivals=arrivals,
        faults=len(journal.troubles),
        admitted=world.server.books.visits.admitted,
        story=tuple(journal.story(about)) if failures else (),
    )
