"""One process's way to the store: the port as the product sees it, through the weather.

Whatever takes effect is told to the books the moment it does, in the store's own order. A process
that is dead reaches nothing any more.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from penstock.model.errors import StoreUnavailable
from penstock.stores.memory import MemoryStore
from penstock.stores.sqlite import SqliteStore
from tests.simulation.clocks import ProcessClock, ServerClock
from tests.simulation.journal import Journal
from tests.simulation.ledger import Ledger
from tests.simulation.loop import Owner, VirtualLoop
from tests.simulation.rulings import Rulings
from tests.simulation.visits import Visits
from tests.simulation.weather import Fate, Weather

T = TypeVar("T")


class Step(Generic[T]):
    """One call of the store; `applied` is told the answer when it has taken effect."""

    __slots__ = ("_applied", "_told")

    def __init__(self, applied: Callable[[T], None]) -> None:
        self._applied = applied
        self._told = False

    def took_effect(self, answer: T) -> None:
        if not self._told:
            self._told = True
            self._applied(answer)


STEP: contextvars.ContextVar[Step[Any] | None] = contextvars.ContextVar("step", default=None)


@dataclass(slots=True)
class Books:
    """Everything that is told of what the store does."""

    ledger: Ledger
    rulings: Rulings
    visits: Visits
    away: str = ""
    """The part of the store that is away for ever: rooms, policies, or a route's messages."""
    refuses: str = ""
    """How the ids begin of messages that the store can never take; empty: it takes all."""


@dataclass(slots=True)
class Line:
    """What every call of one process goes through."""

    who: str
    owner: Owner
    loop: VirtualLoop
    server: ServerClock
    clock: ProcessClock
    weather: Weather
    journal: Journal
    books: Books
    lease: int
    clamps: bool = True
    """The server holds every `now` against its own clock, as a Redis script does."""
    part: str = ""
    """Of the store, if this way leads to one part only."""

    def now(self, given: int) -> int:
        """Held against the server's clock when it is sent."""
        return min(given, self.server.now()) if self.clamps else given

    def reached(self, given: int) -> int:
        """As the store itself holds it against its clock, when a step takes effect."""
        return min(given, self.server.now())

    def of(self, part: str) -> Line:
        """The way to one part of the store."""
        return replace(self, part=part)

    async def call(self, work: Callable[[], Awaitable[T]], applied: Callable[[T], None]) -> T:
        if self.owner.dead:
            raise asyncio.CancelledError
        if self.part and self.part == self.books.away:
            await asyncio.sleep(self.weather.timeout())
            raise StoreUnavailable(f"simulated: {self.part} away")
        step = Step(applied)
        fate = self.weather.fate()
        if fate is Fate.FINE:
            if wait := self.weather.way():
                await asyncio.sleep(wait)
            answer = await run_step(step, work)
            if wait := self.weather.way():
                await asyncio.sleep(wait)
            return answer
        late = self.weather.late(self.lease) if fate in (Fate.LATE_WRITE, Fate.LATE_REPLY) else 0.0
        waits = late if fate is Fate.LATE_REPLY else self.weather.timeout()
        self.journal.trouble(f"store: {fate}", self.who, int(waits * 1000))
        return await self._suffer(fate, step, work, late, waits)

    async def _suffer(
        self, fate: Fate, step: Step[T], work: Callable[[], Awaitable[T]], late: float, waits: float
    ) -> T:
        """`waits`: seconds until the caller has its answer, or hears that there is none."""
        if fate is Fate.LATE_WRITE:
            self.loop.later(late, lambda: _forget(self.loop.spawn(run_step(step, work))))
        elif fate is Fate.LOST_REPLY:
            _forget(self.loop.spawn(run_step(step, work)))
        elif fate is Fate.LATE_REPLY:
            doing = self.loop.spawn(run_step(step, work))
            answer = await asyncio.shield(doing)
            await asyncio.sleep(waits)
            return answer
        await asyncio.sleep(waits)
        raise StoreUnavailable(f"simulated: {fate}")


async def run_step(step: Step[T], work: Callable[[], Awaitable[T]]) -> T:
    STEP.set(step)
    answer = await work()
    step.took_effect(answer)
    return answer


def _forget(task: asyncio.Task[Any]) -> None:
    """Nobody waits for it; a store that was closed meanwhile refuses it."""
    task.add_done_callback(lambda done: done.cancelled() or done.exception())


def trace_group(store: SqliteStore) -> None:
    """Have each step told inside the transaction that makes it.

    A transaction waits one turn of the loop for company, not four: half of all turns went there.
    """
    group = store._group
    submit, linger = group.submit, group._linger
    setattr(group, "_linger", lambda turns: linger(min(turns, 1)))  # noqa: B010 - a method

    def traced(work: Callable[[Any], Any], **how: Any) -> Any:
        step = STEP.get()

        def run(session: Any) -> Any:
            answer = work(session)
            if step is not None:
                step.took_effect(answer)
            return answer

        return submit(run, **how)

    group.submit = traced  # type: ignore[method-assign]


Backend = SqliteStore | MemoryStore
