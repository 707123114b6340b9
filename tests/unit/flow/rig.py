"""A whole engine in one process on a clock that stands still: SQLite in memory, a fake sink."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TypeAlias

from penstock.flow.control import Control
from penstock.flow.intake import Intake
from penstock.flow.observe import Observer
from penstock.flow.worker import Worker
from penstock.model.backoff import Backoff
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Receipt, SendOutcome
from penstock.model.policy import policy_from
from penstock.model.route import Route
from penstock.model.size import IN_FLIGHT_BYTES
from penstock.model.state import State
from penstock.ports.store import Store
from penstock.sdk.asked import draft
from penstock.testing.clock import ManualClock
from penstock.wiring import policies_of

Behaviour: TypeAlias = Callable[[Message], SendOutcome]


class FakeSink:
    """Records what it gets; does as it is told."""

    name = "fake://"

    def __init__(self, clock: ManualClock, max_batch: int = 100, concurrency: int = 100) -> None:
        self.clock = clock
        self.max_batch = max_batch
        self.concurrency = concurrency
        self.sent: list[tuple[str, int, int]] = []
        """(id, attempt, when)"""
        self.behave: Behaviour = lambda _: DELIVERED
        self.gate: asyncio.Event | None = None
        """While set and not open, sends hang."""

    @property
    def ids(self) -> list[str]:
        return [name for name, _, _ in self.sent]

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        now = self.clock.now()
        self.sent += [(message.id, message.attempt, now) for message in batch]
        if self.gate is not None:
            await self.gate.wait()
        return [self.behave(message) for message in batch]

    async def check(self) -> None: ...

    async def close(self) -> None: ...


class Engine:
    """The stages wired by hand, with handles a test wants."""

    def __init__(self, opened: Store, clock: ManualClock) -> None:
        self.opened = opened
        self.store = opened.messages
        self.clock = clock
        self.observer = Observer()
        self.intake = Intake(self.store, self.observer)
        self.control = Control(self.store, self.observer)
        self.sink = FakeSink(clock)
        self.routes: dict[str, tuple[Route, FakeSink]] = {
            "default": (Route(name="default", backoff=Backoff(1_000, 60_000)), self.sink)
        }
        self.policies = policies_of(opened)
        self.lease = 30_000
        self.gather = 0
        self.batch_size = 100
        self.in_flight_bytes = IN_FLIGHT_BYTES

    def add_route(self, route: Route, sink: FakeSink) -> None:
        self.routes[route.name] = (route, sink)

    async def schedule(self, **fields: object) -> Receipt:
        (outcome,) = await self.intake.schedule([draft(**fields)])  # type: ignore[arg-type] # a test's shorthand
        assert isinstance(outcome, Receipt), outcome
        return outcome

    async def put_policies(self, **written: dict[str, object]) -> None:
        """Names with _ for -; values as a TOML table would have them."""
        assert self.policies is not None
        await self.policies.put(
            {name.replace("_", "-"): policy_from(policy) for name, policy in written.items()}
        )

    async def find(self, message_id: str) -> Message:
        (message,) = await self.store.find([message_id])
        assert message is not None
        return message

    async def state(self, message_id: str) -> State:
        (message,) = await self.store.find([message_id])
        assert message is not None
        return message.state

    def worker(self) -> Worker:
        return Worker(
            self.opened,
            self.routes,
            self.observer,
            batch_size=self.batch_size,
            lease=self.lease,
            gather=self.gather,
            shutdown=5_000,
            policies=self.policies,
            in_flight_bytes=self.in_flight_bytes,
        )

    @asynccontextmanager
    async def working(self) -> AsyncIterator[Worker]:
        worker = self.worker()
        task = asyncio.create_task(worker.run())
        await self.clock.settle()
        try:
            yield worker
        finally:
            worker.stop()
            for _ in range(20):
                if task.done():
                    break
                await self.clock.advance(1_000)
            await task


async def used(engine: Engine, key: str) -> int:
    """Places of every cap that a key has taken."""
    assert engine.policies is not None
    return sum(figure.used for figure in await engine.policies.counters(key))
