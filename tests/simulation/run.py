"""Simulate one plan from its beginning to its end, and tell what it came to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.simulation.fleet import PROGRESS
from tests.simulation.journal import Failure
from tests.simulation.loop import BusyLoop, Stuck, VirtualLoop
from tests.simulation.plan import Plan
from tests.simulation.world import World


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


def simulate(plan: Plan) -> Outcome:
    """Run it. The same plan gives the same outcome, down to the digest of every step."""
    loop = VirtualLoop()
    world = World(plan, loop)
    loop.set_exception_handler(lambda _, context: _unhandled(world, context))
    try:
        main = loop.spawn(world.run())
        with _silence():
            try:
                loop.run_until_complete(main)
            except (BusyLoop, Stuck) as exc:
                world.fleet.journal.fail(PROGRESS, "", str(exc))
            _unwind(loop, world)
    finally:
        world.fleet.server.close()
        loop.close()
    return _outcome(world)


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


def _unwind(loop: VirtualLoop, world: World) -> None:
    """End every task, quietly: what they do now reaches nobody."""
    loop.calm_down()
    journal = world.fleet.journal
    lines, failures = len(journal.lines), len(journal.failures)
    for process in world.fleet.processes.values():
        process.abandon()

    async def settle() -> None:
        for _ in range(200):
            left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            if not left:
                return
            for task in left:
                task.cancel()
            await asyncio.sleep(0)

    loop.run_until_complete(loop.spawn(settle()))
    del journal.lines[lines:], journal.failures[failures:]


def _unhandled(world: World, context: dict[str, object]) -> None:
    error = context.get("exception")
    if not isinstance(error, asyncio.CancelledError):
        told = f"{context.get('message')}: {error!r}"
        world.fleet.journal.fail("no exception is lost", "", told)


def _outcome(world: World) -> Outcome:
    fleet = world.fleet
    journal, books = fleet.journal, fleet.server.books
    failures = tuple(journal.failures)
    arrivals = sum(
        send.arrived is not None for one in fleet.receivers.values() for send in one.sends
    )
    about = [name for failure in failures[:3] for name in (failure.about, *failure.others)]
    return Outcome(
        plan=world.plan,
        failures=failures,
        digest=journal.digest(),
        millis=fleet.clock.elapsed(),
        messages=len(books.ledger.known) + len(books.ledger.forgotten),
        arrivals=arrivals,
        faults=len(journal.troubles),
        admitted=len(books.visits.passes),
        story=tuple(journal.story(about)) if failures else (),
    )
