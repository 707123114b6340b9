"""A clock that moves only when a test advances it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable

from penstock.time.clock import Timer

START = 1_900_000_000_000
"""2030-03-17T17:46:40Z: an arbitrary moment that looks like a real one."""
SETTLE_TURNS = 50
"""Most turns of the event loop for the tasks that a moment has woken."""
IDLE_TURNS = 5
"""Idle turns after which no more work is expected: asyncio's own loop shows its queue, others
(uvloop) do not."""


class _Due:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class ManualClock:
    """Time for tests: sleepers wake, in order, only when `advance` passes their moment."""

    def __init__(self, start: int = START) -> None:
        self._now = start
        self._timers: list[tuple[int, int, _Due]] = []
        self._order = itertools.count()

    def now(self) -> int:
        return self._now

    def call_at(self, when: int, callback: Callable[[], None]) -> Timer:
        due = _Due(callback)
        heapq.heappush(self._timers, (when, next(self._order), due))
        return due

    async def sleep_until(self, when: int) -> None:
        if when <= self._now:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        timer = self.call_at(when, lambda: None if woken.done() else woken.set_result(None))
        try:
            await woken
        finally:
            timer.cancel()

    async def advance(self, millis: int = 0) -> None:
        """Advance by `millis`, stopping at each moment that a task waits for."""
        end = self._now + millis
        await self.settle()
        while self._timers and self._timers[0][0] <= end:
            when, _, due = heapq.heappop(self._timers)
            if due.callback is not None:
                self._now = max(self._now, when)
                due.callback()
                await self.settle()
        self._now = end
        await self.settle()

    def jump(self, millis: int) -> None:
        """Set the wall clock: the time changes and no sleeper wakes."""
        self._now += millis

    async def settle(self) -> None:
        """Run every task that can run now."""
        ready = getattr(asyncio.get_running_loop(), "_ready", None)
        idle = 0
        for _ in range(SETTLE_TURNS):
            await asyncio.sleep(0)
            idle = 0 if ready or ready is None else idle + 1
            if idle == IDLE_TURNS:
                return
