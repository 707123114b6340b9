"""The machine's clock, set while somebody sleeps by it."""

from __future__ import annotations

from penstock.model.clock import SystemClock
from tests.simulation.clocks import ProcessClock, ServerClock
from tests.simulation.loop import VirtualLoop


def _slept(jump: int) -> float:
    """Seconds that a sleep of three seconds takes when the clock is set after half a second."""
    loop = VirtualLoop()
    server = ServerClock(loop)
    clock: SystemClock = ProcessClock(server)

    def set_clock() -> None:
        server.set_by += jump

    async def sleep() -> None:
        loop.later(0.5, set_clock)
        await clock.sleep_until(clock.now() + 3_000)

    try:
        loop.run_until_complete(sleep())
        return loop.time()
    finally:
        loop.close()


def test_a_sleep_lasts_as_long_as_it_was_asked_to() -> None:
    assert _slept(0) == 3


def test_a_clock_set_back_makes_nobody_sleep_longer() -> None:
    assert _slept(-3_600_000) == 3


def test_a_clock_set_forward_ends_a_sleep_within_a_second() -> None:
    assert _slept(3_600_000) <= 1.5
