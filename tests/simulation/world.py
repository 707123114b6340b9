"""One run: the fleet, those who ask, what goes wrong, the mending, and what is found in the end."""

from __future__ import annotations

import asyncio
from functools import partial

from penstock.model.state import State
from tests.simulation import checks
from tests.simulation.callers import Callers, is_open
from tests.simulation.faults import Faults
from tests.simulation.fleet import PROGRESS, Fleet
from tests.simulation.loop import VirtualLoop
from tests.simulation.operators import Operators
from tests.simulation.plan import Ask, Asked, Plan, is_away
from tests.simulation.visitors import visit

DRAIN_MS = 90_000
"""How long everything may take to come to its end once nothing goes wrong any more."""
OVERDUE_MS = 10_000
"""A message that could have gone out for this long is late because a worker sleeps."""
FAR_MS = 30_000
"""What is further ahead is asked for now, rather than waited for."""


class World:
    def __init__(self, plan: Plan, loop: VirtualLoop) -> None:
        self.plan = plan
        self.loop = loop
        self.fleet = Fleet(plan, loop)
        self.operators = Operators(self.fleet)
        self.faults = Faults(self.fleet, self.operators.operate)
        self.callers = Callers(plan, self.fleet.clock, self.fleet.journal, self.fleet.broker)
        self._visitors: list[asyncio.Task[None]] = []

    async def run(self) -> None:
        self.fleet.start()
        await asyncio.sleep(0.1)
        await self.operators.prepare()
        for event in self.plan.events:
            self.loop.later(event.at / 1000, partial(self.faults.happen, event))
        if (stays := self.plan.stays) is not None:
            self.loop.later(stays.at / 1000, partial(self.faults.stay, stays))
        for asked in self.plan.asked:
            self.loop.later(asked.at / 1000, partial(self._ask, asked))
        await asyncio.sleep(self.plan.length / 1000)
        await self._mend()
        await self._drain()
        await checks.check(self.fleet, self.callers.answers)

    def _ask(self, asked: Asked) -> None:
        fleet = self.fleet
        if asked.ask in (Ask.PUBLISH, Ask.POISON, Ask.UNSTORABLE):
            self.callers.publish(asked)
        elif asked.ask is Ask.VISIT:
            stream = fleet.server.books.visits.stream
            visiting = visit(asked.number, self.plan, fleet.journal, fleet.room_request, stream)
            self._visitors.append(self.loop.spawn(visiting))
        elif (process := fleet.pick(fleet.chance)) is not None and process.life is not None:
            process.spawn(self.callers.ask(asked, process.life))

    async def _mend(self) -> None:
        """From here on nothing goes wrong, and nothing is held back."""
        self.faults.end()
        self.fleet.start()
        await asyncio.sleep((self._until_calm() + 2 * self.plan.lease) / 1000 + 2)
        await self._until_stopped()
        self.fleet.start()
        await asyncio.sleep(0.5)
        await self.operators.restore()

    async def _until_stopped(self) -> None:
        """A clock that is set back while a process stops lengthens its shutdown by as much."""
        longest = self.fleet.clock.elapsed() + self.fleet.set_back
        while self.fleet.stopping and self.fleet.clock.elapsed() < longest:  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)

    def _until_calm(self) -> int:
        """Milliseconds until the last fault that is under way is over."""
        ends = [trouble.until for trouble in self.fleet.journal.troubles]
        return max(0, max(ends, default=0) - self.fleet.clock.elapsed())

    async def _drain(self) -> None:
        """What is far ahead is asked for now; then everything must come to its end."""
        fleet = self.fleet
        ledger = fleet.server.books.ledger
        end = fleet.clock.elapsed() + DRAIN_MS * (1 if self.plan.stays is None else 2)
        # Leases and sessions that were given before the clock was set back last longer by as much.
        longest = end + fleet.set_back
        overdue: dict[str, int] = {}
        """Message → since when nothing holds it back: its lease may have ended just now."""
        while fleet.clock.elapsed() < longest:
            far = fleet.clock.now() + FAR_MS
            for name, known in list(ledger.known.items()):
                if is_open(known.state) and known.due > far:
                    self.callers.answers.moved.add(name)
                    await self.operators.release(name)
            stuck = self._stuck()
            if not stuck:
                return
            now = fleet.clock.elapsed()
            held_up = [name for name, _ in stuck if self._is_overdue(name)]
            overdue = {name: overdue.get(name, now) for name in held_up}
            if now >= end and any(now - since >= OVERDUE_MS for since in overdue.values()):
                break
            await asyncio.sleep(1)
        for name, told in stuck:
            fleet.journal.fail(PROGRESS, name, told)

    def _is_overdue(self, name: str) -> bool:
        """Whether nothing that takes time holds this message back: no lease, turn or policy."""
        known = self.fleet.server.books.ledger.known.get(name)
        return (
            known is not None
            and known.state is State.SCHEDULED
            and known.due < self.fleet.clock.now() - OVERDUE_MS
            and not any(route.per_key for route in self.plan.routes if route.name == known.route)
        )

    def _stuck(self) -> list[tuple[str, str]]:
        """(What, how it stands) of whatever has not come to its end, and should."""
        fleet = self.fleet
        now = fleet.clock.now()
        stays = self.plan.stays
        stuck = []
        if not is_away(stays, "policies"):  # nothing goes out past rules that cannot be read
            stuck = [
                (name, f"is {known.state}, due {known.due - now} ms")
                for name, known in fleet.server.books.ledger.known.items()
                if is_open(known.state) and (stays is None or known.route != stays.target)
            ]
        stuck += [
            (f"letters/{letter.number}", "was never taken in")
            for letter in fleet.broker.letters
            if not letter.done
        ]
        if is_away(stays, "rooms"):
            return stuck
        if not all(task.done() for task in self._visitors):
            stuck.append(("", "a visitor waits for ever"))
        stream = fleet.server.books.visits.stream
        if stream is not None and (stream.fresh or stream.pending):
            stuck.append(("", "a promotion was never passed on"))
        return stuck
