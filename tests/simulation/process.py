"""A process of the fleet: the real parts, wired as the composition root does, life after life."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from contextvars import copy_context
from typing import Any

from penstock.contrib.dispatcher.dispatch import Dispatcher
from penstock.flow.control import Control
from penstock.flow.formats import MESSAGE
from penstock.flow.ingest import Ingest
from penstock.flow.intake import Intake
from penstock.flow.observe import Observer
from penstock.flow.policies import Policies
from penstock.flow.worker import Worker
from penstock.model.backoff import Backoff
from penstock.model.identity import IdMaker
from penstock.model.route import KeyLimit
from penstock.model.route import Route as FlowRoute
from penstock.ports.store import Store
from penstock.rooms.enter import Enter
from penstock.rooms.join import Join
from penstock.rooms.leave import Leave
from penstock.rooms.operate import Operate
from penstock.rooms.parts import RoomParts
from penstock.rooms.promote import Promoter
from penstock.rooms.wait import Wait
from tests.simulation import plan as plans
from tests.simulation.broker import Broker, Grave, SimSource
from tests.simulation.clocks import ProcessClock, ServerClock
from tests.simulation.journal import Journal
from tests.simulation.link import Line
from tests.simulation.link_rooms import LinkedEntries, LinkedRooms
from tests.simulation.link_store import LinkedStore
from tests.simulation.loop import OWNER, Owner, VirtualLoop
from tests.simulation.receiver import Receiver, SimSink
from tests.simulation.server import Server
from tests.simulation.signer import PlainSigner
from tests.simulation.weather import Weather

SHUTDOWN_MS = 1_500
ABANDONED_MS = 3_000


class Life:
    """One incarnation: everything in it is gone when it ends."""

    def __init__(self, fleet_process: FleetProcess, number: int) -> None:
        process = fleet_process
        plan = process.plan
        self.name = f"{process.name}.{number}"
        self.owner = Owner()
        self.clock = ProcessClock(process.server_clock, process.offset)
        self.observer = Observer()
        self.stopping = False
        self._process = process
        self._chance = random.Random(f"{plan.seed}:life:{self.name}")
        self.line = Line(
            self.name,
            self.owner,
            process.loop,
            process.server_clock,
            self.clock,
            process.weather,
            process.journal,
            process.server.books,
            plan.lease,
            clamps=plan.skewed,
        )
        self.store: LinkedStore
        self.intake: Intake
        self.control: Control
        self.policies: Policies
        self.rooms: RoomParts | None = None
        self.worker: Worker | None = None
        self.ready = False

    async def run(self) -> None:
        process = self._process
        backend, rooms = await process.server.open()
        self.store = LinkedStore(self.line, backend)
        process.server.attach(self.store)
        self.policies = Policies(self.store.policies, self.clock)
        self.intake = Intake(
            self.store,
            self.observer,
            routes=frozenset(route.name for route in process.plan.routes),
            ids=IdMaker(self._chance),
        )
        self.control = Control(self.store, self.observer)
        if process.plan.rooms:
            self.rooms = self._room_parts(LinkedRooms(self.line, rooms))
        self.ready = True
        async with asyncio.TaskGroup() as group:
            if process.config.worker:
                self.worker = self._make_worker()
                working = group.create_task(self.worker.run())
                group.create_task(self._ingest().run())
                if self.rooms is not None:
                    group.create_task(self.rooms.run())
                await working
                raise _Stopped

    def _make_worker(self) -> Worker:
        plan = self._process.plan
        lanes = {}
        for route in plan.routes:
            per_key = KeyLimit(route.per_key, ordered=route.ordered) if route.per_key else None
            flow_route = FlowRoute(
                name=route.name,
                max_attempts=route.attempts,
                backoff=Backoff(100, 2_000),
                semaphore_limit=route.capacity,
                per_key=per_key,
            )
            receiver = self._process.receivers[route.name]
            lanes[route.name] = (flow_route, SimSink(receiver, self.name, self.owner))
        return Worker(
            Store(messages=self.store, policies=self.store.policies, keyed=self.store),
            lanes,
            self.observer,
            batch_size=10,
            lease=plan.lease,
            poll=plan.poll,
            gather=plan.gather,
            shutdown=SHUTDOWN_MS,
            chance=self._chance,
            policies=self.policies,
        )

    def _ingest(self) -> Ingest:
        process = self._process
        return Ingest(
            "letters",
            SimSource(process.broker, self.name, self.owner),
            MESSAGE.read,
            self.intake,
            self.clock,
            self.observer,
            route=process.plan.routes[0].name,
            dead_letter=Grave(process.broker, self.owner),
            batch=5,
            chance=self._chance,
        )

    def _room_parts(self, store: LinkedRooms) -> RoomParts:
        signer = PlainSigner()
        return RoomParts(
            store=store,
            join=Join(store, signer, self.observer, self.name),
            wait=Wait(store, signer),
            enter=Enter(store, signer, self.observer),
            leave=Leave(store, self.observer),
            operate=Operate(store, make_seed=lambda: "seed"),
            promoter=Promoter(store, self.observer, workers=2, queue=10),
            dispatcher=self._dispatcher(store, signer),
        )

    def _dispatcher(self, store: LinkedRooms, signer: PlainSigner) -> Dispatcher | None:
        stream = self._process.server.books.visits.stream
        if stream is None:
            return None
        entries = LinkedEntries(self.line, stream)
        return Dispatcher(store, entries, signer, self.observer, poll=1_000, abandoned=ABANDONED_MS)


class _Stopped(Exception):
    """A worker that was asked to stop has stopped."""


class FleetProcess:
    """Starts, freezes, kills and restarts one process."""

    def __init__(
        self,
        plan: plans.Plan,
        config: plans.Process,
        loop: VirtualLoop,
        server_clock: ServerClock,
        journal: Journal,
        server: Server,
        receivers: dict[str, Receiver],
        broker: Broker,
    ) -> None:
        self.plan = plan
        self.config = config
        self.name = config.name
        self.loop = loop
        self.server_clock = server_clock
        self.journal = journal
        self.server = server
        self.receivers = receivers
        self.broker = broker
        self.offset = config.offset
        self.weather = Weather(
            server_clock, random.Random(f"{plan.seed}:weather:{self.name}"), config.delay
        )
        self.lives = 0
        self.life: Life | None = None
        self.on_death: Callable[[str], None] = lambda _life: None

    @property
    def serving(self) -> bool:
        life = self.life
        return life is not None and life.ready and not life.stopping and self.config.api

    def start(self) -> None:
        if self.life is not None:
            return
        self.lives += 1
        life = self.life = Life(self, self.lives)
        life.owner.blow = self.kill
        self.journal.note(life.name, "starts")
        self.spawn(self._main(life))

    async def _main(self, life: Life) -> None:
        try:
            await life.run()
        except* _Stopped:
            self.journal.note(life.name, "stopped")
            self.loop.call_soon(self._end, life, context=self.loop.world.copy())

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """A task of this process; one that fails is a fault of the product."""
        life = self.life
        if life is None:
            work.close()
            raise AssertionError("nobody runs")
        context = copy_context()
        context.run(OWNER.set, life.owner)
        task = self.loop.create_task(work, context=context)
        task.add_done_callback(lambda done: self._ended(life, done))
        return task

    def kill(self) -> None:
        """As kill -9: from this moment on nothing of it reaches anybody."""
        life = self.life
        if life is not None:
            self.journal.trouble("crash", life.name)
            self._end(life)

    def abandon(self) -> None:
        """The run is over."""
        if self.life is not None:
            self._end(self.life)

    def _end(self, life: Life) -> None:
        if life.owner.dead:
            return
        life.owner.dead = True
        life.owner.fuse = 0
        if life.ready:
            self.server.detach(life.store)
        if life.owner.frozen:
            self.loop.thaw(life.owner)
        for task in list(life.owner.tasks):
            task.cancel()
        if self.life is life:
            self.life = None
        self.on_death(life.name)

    def stop(self) -> None:
        """In good order; it ends by itself."""
        life = self.life
        if life is None or not life.ready or life.stopping:
            return
        life.stopping = True
        self.journal.trouble("stop", life.name, SHUTDOWN_MS)
        if life.worker is not None:
            life.worker.stop()
        else:
            self._end(life)

    def set_offset(self, offset: int) -> None:
        """How wrong its clock is from now on."""
        self.offset = offset
        if self.life is not None:
            self.life.clock.offset = offset

    def freeze(self, span: int) -> None:
        life = self.life
        if life is not None and not life.owner.frozen:
            self.journal.trouble("freeze", life.name, span)
            life.owner.frozen = True
            self.loop.later(span / 1000, lambda: self._thaw(life))

    def _thaw(self, life: Life) -> None:
        if life.owner.frozen:
            self.journal.note(life.name, "goes on")
            self.loop.thaw(life.owner)

    def _ended(self, life: Life, task: asyncio.Task[None]) -> None:
        if task.cancelled() or life.owner.dead:
            if not task.cancelled():
                task.exception()  # whatever a dead process ends with is nobody's business
            return
        error = task.exception()
        if error is not None:
            told = f"{error!r}"
            if isinstance(error, BaseExceptionGroup):
                told += f": {error.exceptions!r}"
            self.journal.fail("a process does not fall over", life.name, told)
            self._end(life)
