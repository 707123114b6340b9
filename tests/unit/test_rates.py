"""A line a second while something is delivered, in virtual time."""

import asyncio
import logging
from collections.abc import Callable

import pytest

from penstock.flow.observe import Observer
from penstock.telemetry.rates import Rates
from penstock.time.clock import Timer


class SteppedClock:
    """Each sleep takes a planned number of milliseconds, after something happened; then it ends."""

    def __init__(self, *steps: tuple[int, Callable[[], None]]) -> None:
        self._steps = list(steps)
        self._now = 0

    def now(self) -> int:
        return self._now

    def call_at(self, when: int, callback: Callable[[], None]) -> Timer:
        raise NotImplementedError

    async def sleep_until(self, when: int) -> None:
        if not self._steps:
            raise asyncio.CancelledError
        assert when == self._now + 1_000
        took, happened = self._steps.pop(0)
        happened()
        self._now += took


async def logged(
    observer: Observer, clock: SteppedClock, caplog: pytest.LogCaptureFixture
) -> list[str]:
    caplog.set_level(logging.INFO, logger="penstock.rates")
    with pytest.raises(asyncio.CancelledError):
        await Rates(observer, clock).run()
    return caplog.messages


def deliver(observer: Observer, number: int) -> Callable[[], None]:
    return lambda: observer.count("delivered", "push", number)


async def test_seconds_with_deliveries_are_logged_and_others_are_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    observer = Observer()
    observer.count("delivered", "push", 1_000)  # before it was looked at
    clock = SteppedClock(
        (1_000, deliver(observer, 7)), (1_000, deliver(observer, 0)), (1_000, deliver(observer, 5))
    )
    assert await logged(observer, clock, caplog) == ["Delivered/s: 7", "Delivered/s: 5"]


async def test_a_late_wake_is_still_a_rate(caplog: pytest.LogCaptureFixture) -> None:
    observer = Observer()
    clock = SteppedClock((2_000, deliver(observer, 100)))
    assert await logged(observer, clock, caplog) == ["Delivered/s: 50"]
