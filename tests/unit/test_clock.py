"""The machine's clock, set while somebody sleeps by it, or keeps a moment in mind."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from penstock.flow.breaker import TRIP_AFTER, Breaker
from penstock.flow.observe import Observer
from penstock.flow.reuse import Reuse
from penstock.model.outcome import Retry
from penstock.model.room import RoomSettings
from penstock.model.ticket import Joining, TicketState
from penstock.rooms.promote import Promoter
from penstock.stores.memory.rooms import MemoryRooms
from penstock.testing.clock import ManualClock
from penstock.time.clock import Alarm, SystemClock, Timer
from tests.simulation.clocks import ProcessClock, ServerClock
from tests.simulation.loop import VirtualLoop

HOUR = 3_600_000


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
    assert _slept(-HOUR) == 3


def test_a_clock_set_forward_ends_a_sleep_within_a_second() -> None:
    assert _slept(HOUR) <= 1.5


def test_a_moment_set_while_the_clock_is_back_does_not_stop_a_wait() -> None:
    """It seems sooner than the end of the wait, which was reckoned by the clock as it was."""
    loop = VirtualLoop()
    clock = ProcessClock(ServerClock(loop))
    alarm = Alarm(clock)

    def set_back() -> None:
        clock.offset = -HOUR
        alarm.ring_by(clock.now() + HOUR // 2)
        clock.offset = 0

    async def wait() -> None:
        loop.later(0.5, set_back)
        await alarm.wait(clock.now() + 2_000)

    try:
        loop.run_until_complete(wait())
        assert loop.time() <= 2.01
    finally:
        loop.close()


def test_a_breaker_does_not_stay_open_for_as_long_as_the_clock_is_set_back() -> None:
    clock = ManualClock()
    breaker = Breaker(random.Random(1))
    for _ in range(TRIP_AFTER):
        breaker.record([Retry("nobody there", unreachable=True)], clock.now())
    assert breaker.allowance(100, clock.now()) == 0
    clock.jump(-HOUR)
    assert breaker.allowance(100, clock.now()) == 1


async def test_figures_are_found_anew_when_the_clock_is_set_back() -> None:
    clock = ManualClock()
    found = iter(range(10))

    async def find() -> int:
        return next(found)

    figures = Reuse(clock, find, at_least=1_000)
    assert [await figures.get(), await figures.get()] == [0, 0]
    clock.jump(-HOUR)
    assert await figures.get() == 1


async def test_figures_that_were_slow_only_once_do_not_serve_for_long() -> None:
    clock = ManualClock()
    found = iter(range(10))
    takes = iter((2_000, 10, 2_000, 2_000, 0))

    async def find() -> int:
        clock.jump(next(takes))
        return next(found)

    figures = Reuse(clock, find)
    assert [await figures.get() for _ in range(6)] == [0, 1, 2, 3, 3, 3]


async def test_figures_do_not_serve_longer_than_they_may_however_slow_they_are() -> None:
    clock = ManualClock()
    found = iter(range(10))

    async def find() -> int:
        clock.jump(2_000)
        return next(found)

    figures = Reuse(clock, find, at_most=0)
    assert [await figures.get() for _ in range(4)] == [0, 1, 2, 3]


def test_a_slot_is_given_on_in_time_though_the_clock_was_set_back() -> None:
    loop = VirtualLoop()
    clock = ProcessClock(ServerClock(loop), offset=HOUR)
    rooms = MemoryRooms(clock)

    async def wait() -> TicketState:
        promoter = Promoter(rooms, Observer(), workers=1, queue=5)
        promoting = asyncio.create_task(promoter.run())
        await asyncio.sleep(1)
        clock.offset = 0
        await asyncio.sleep(1)
        now = clock.now()
        await rooms.put_room("r", RoomSettings(capacity=1, claim_ttl=5_000), None, now)
        await rooms.join("r", [Joining("a"), Joining("b")], now)
        await asyncio.sleep(60)
        promoting.cancel()
        await asyncio.gather(promoting, return_exceptions=True)
        looked = await rooms.look("r", ["b"], clock.now())
        assert looked is not None
        assert looked.tickets[0] is not None
        return looked.tickets[0].state

    try:
        assert loop.run_until_complete(wait()) is not TicketState.WAITING
    finally:
        loop.close()


async def test_an_alarm_whose_timer_was_a_little_early_rings_when_it_is_time() -> None:
    """As uvloop's may be, by a millisecond."""

    class Early(ManualClock):
        def call_at(self, when: int, callback: Callable[[], None]) -> Timer:
            return super().call_at(when - 1 if when - self.now() > 1 else when, callback)

    clock = Early()
    alarm = Alarm(clock)
    start = clock.now()
    waiting = asyncio.ensure_future(alarm.wait(start + 5))
    await clock.advance(4)
    assert not waiting.done()
    await clock.advance(1)
    await waiting
