"""Timers to a fraction of a millisecond, on a real loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import pytest
import uvloop

from penstock.time.clock import FineTimers, SystemClock
from tests.simulation.loop import VirtualLoop

LOOPS: list[Callable[[], asyncio.AbstractEventLoop]] = [
    asyncio.new_event_loop,
    uvloop.new_event_loop,
]


@pytest.fixture(params=LOOPS, ids=["asyncio", "uvloop"])
def runner(request: pytest.FixtureRequest) -> Iterator[asyncio.Runner]:
    with asyncio.Runner(loop_factory=request.param) as runner:
        yield runner


def _opened() -> FineTimers:
    timers = FineTimers.open()
    assert timers is not None
    return timers


def test_they_ring_in_order_and_never_early(runner: asyncio.Runner) -> None:
    waits = (70, 10, 30, 0, 50)

    async def ring() -> tuple[list[int], list[int], list[bool]]:
        timers, set_for, rang, in_time = _opened(), [], [], []
        done = asyncio.get_running_loop().create_future()
        for millis in waits:
            at = time.monotonic_ns() + millis * 1_000_000
            set_for.append(at)

            def note(at: int = at) -> None:
                rang.append(at)
                in_time.append(time.monotonic_ns() >= at)
                if len(rang) == len(waits):
                    done.set_result(None)

            timers.call_later(millis / 1000, note)
        await done
        timers.close()
        return set_for, rang, in_time

    set_for, rang, in_time = runner.run(ring())
    assert rang == sorted(set_for)
    assert all(in_time)


def test_one_that_is_cancelled_does_not_ring(runner: asyncio.Runner) -> None:
    async def ring() -> list[str]:
        timers, rang = _opened(), []
        done = asyncio.Event()
        first = timers.call_later(0.001, lambda: rang.append("first"))
        timers.call_later(0.002, done.set)
        first.cancel()
        await done.wait()
        timers.close()
        return rang

    assert runner.run(ring()) == []


def test_one_that_raises_silences_no_other(runner: asyncio.Runner) -> None:
    async def ring() -> list[object]:
        timers, told = _opened(), []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        done, error = asyncio.Event(), ValueError("mine")

        def fail() -> None:
            raise error

        timers.call_later(0.0, fail)
        timers.call_later(0.0, done.set)
        await done.wait()
        timers.close()
        return [one is error for one in told]

    assert runner.run(ring()) == [True]


def test_what_has_not_rung_when_they_are_closed_still_does(runner: asyncio.Runner) -> None:
    async def ring() -> None:
        timers, done = _opened(), asyncio.Event()
        timers.call_later(0.001, done.set)
        timers.close()
        await done.wait()

    runner.run(ring())


def test_a_clock_has_them_while_it_is_open_and_the_loops_own_otherwise(
    runner: asyncio.Runner,
) -> None:
    async def wait(clock: SystemClock) -> bool:
        done = asyncio.Event()
        when = clock.now() + 3
        clock.call_at(when, done.set)
        await done.wait()
        return clock.now() >= when

    async def ring() -> list[bool]:
        clock = SystemClock()
        clock.open()
        kept = [await wait(clock), await wait(clock)]
        clock.close()
        clock.close()
        await wait(clock)  # as early as the loop's own timers may be
        return kept

    assert runner.run(ring()) == [True, True]


def test_a_loop_that_cannot_wait_for_files_has_none() -> None:
    loop = VirtualLoop()

    async def opened() -> FineTimers | None:
        return FineTimers.open()

    try:
        assert loop.run_until_complete(opened()) is None
    finally:
        loop.close()
