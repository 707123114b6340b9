"""The fleet and everything around it that can be asked, and that can go wrong."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable

from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.rooms.parts import RoomParts
from tests.simulation.broker import Broker
from tests.simulation.clocks import ServerClock
from tests.simulation.journal import Journal
from tests.simulation.loop import VirtualLoop
from tests.simulation.plan import Plan
from tests.simulation.process import FleetProcess, Life
from tests.simulation.receiver import Receiver
from tests.simulation.server import Server

PROGRESS = "progress: nothing is stuck when faults stop"


class Fleet:
    """Processes, the store they share, and whom they send to and read from."""

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
        self.jumped = False
        self.set_back = 0
        """Milliseconds by which the store's clock was set back, in all."""
        """Clocks were set: what was measured before and after cannot be compared."""
        self.chance = random.Random(f"{plan.seed}:picks")

    def start(self) -> None:
        """Whoever is not up."""
        for process in self.processes.values():
            process.start()

    @property
    def stopping(self) -> bool:
        """Whether a process is on its way out and not gone yet."""
        lives = [process.life for process in self.processes.values()]
        return any(life is not None and life.stopping for life in lives)

    def pick(self, chance: random.Random) -> FleetProcess | None:
        """One that answers callers; None: nobody does."""
        serving = [process for process in self.processes.values() if process.serving]
        return chance.choice(serving) if serving else None

    async def request(
        self, chance: random.Random, work: Callable[[Life], Awaitable[object]]
    ) -> object:
        """Ask a process that is up: its answer, the error it told, or None: it never answered."""
        process = self.pick(chance)
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

    async def room_request(
        self, chance: random.Random, work: Callable[[RoomParts], Awaitable[object]]
    ) -> object:
        async def ask(life: Life) -> object:
            return None if life.rooms is None else await work(life.rooms)

        return await self.request(chance, ask)

    async def insist(self, work: Callable[[Life], Awaitable[object]]) -> object:
        """As an operator would: until somebody says it is done, or why it cannot be."""
        for _ in range(200):
            answer = await self.request(self.chance, work)
            if answer is not None and not isinstance(answer, StoreUnavailable):
                return answer
            await asyncio.sleep(0.2)
        self.journal.fail(PROGRESS, "", "nobody answers an operator")
        return None
