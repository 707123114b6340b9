"""Time, as something that is given and never just taken.

Everything in `flow/` and `rooms/` asks a Clock and waits through it, so that a whole fleet can
run in virtual time, and so that "never early" is measured on the store's clock.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import heapq
import itertools
import os
import time
from collections.abc import Callable
from typing import Protocol

EARLY_MS = 2
"""How early a timer may ring: then it is set again. uvloop's may, by one."""

FINE_MS = 1_000
"""A moment further away is left to the loop: a millisecond matters less there, and cancelled timers
are kept until their moment.
"""

_RELATIVE = 0
"""Set for a while, not for a moment: a moment means another one under a faked clock."""
_COUNT = 8
"""Bytes of the number of times it rang, which is all there is to read."""


class Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Epoch milliseconds of the authority on time (the store)."""

    def now(self) -> int: ...

    def call_at(self, when: int, callback: Callable[[], None]) -> Timer:
        """Call back at `when`, perhaps a little early or late: callers look again at now()."""
        ...

    async def sleep_until(self, when: int) -> None:
        """Return when now() has reached `when`, never before.

        A clock that is set back during the wait does not extend it: the requested time is waited,
        not more.
        """
        ...


def reached(now: int, clock: Clock) -> int:
    """`now`, limited by the store's own clock at the moment that a step takes effect.

    A caller read its clock before its call; since then the store's may have been set back. By the
    caller's moment, leases would seem to be over and messages to be due that are not.
    """
    return min(now, clock.now())


def is_ahead(moment: int, now: int, most: int) -> bool:
    """True if a moment that was set at most `most` ahead is still to come.

    One that is further away was set before the clock was set back: waiting for it would stop the
    work for as long as the clock had been wrong.
    """
    return 0 < moment - now <= most


class _Spec(ctypes.Structure):
    """struct itimerspec: how often, and when first."""

    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class _Due:
    """A callback, until it is called or cancelled."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def ring(self) -> None:
        if self.callback is not None:
            self.callback()


class FineTimers:
    """Timers of one loop with sub-millisecond precision, all on one timer of the system.

    An event loop waits in whole milliseconds, and libuv counts them from the last whole one: its
    timer rings up to one late or early, and a timer that rang early is set for another. Linux has
    timers that are waited for like a socket and ring within microseconds (timerfd); Python offers
    them from 3.13 on, so the C library is called. The caller of `open` closes them.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, libc: ctypes.CDLL, fd: int) -> None:
        """Use `open`."""
        self._loop = loop
        self._set = libc.timerfd_settime
        self._fd = fd
        self._spec = _Spec()
        self._waiting: list[tuple[int, int, _Due]] = []
        self._order = itertools.count()
        self._armed = 0
        """The moment that the system's timer is set for; 0: for none."""

    @classmethod
    def open(cls) -> FineTimers | None:
        """The timers of the running loop; None: this system or this loop does not support them."""
        loop = asyncio.get_running_loop()
        if ctypes.sizeof(ctypes.c_long) < 8:  # a moment may be wider there than _Spec says
            return None
        try:
            libc = ctypes.CDLL(None)
            fd: int = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        except (AttributeError, OSError, TypeError):  # not Linux
            return None
        if fd < 0:
            return None
        timers = cls(loop, libc, fd)
        try:
            loop.add_reader(fd, timers._ring)
        except NotImplementedError:
            os.close(fd)
            return None
        return timers

    def call_later(self, seconds: float, callback: Callable[[], None]) -> _Due:
        """Call back after so many seconds, never sooner; the earliest first."""
        due = _Due(callback)
        at = time.monotonic_ns() + int(seconds * 1e9) + 1
        heapq.heappush(self._waiting, (at, next(self._order), due))
        self._arm()
        return due

    def close(self) -> None:
        """Leave the timers that have not rung to the loop."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        now = time.monotonic_ns()
        for at, _, due in sorted(self._waiting):
            self._loop.call_later(max(0, at - now) / 1e9, due.ring)
        self._waiting.clear()

    def _arm(self) -> None:
        """Set the system's timer for the first callback that is not cancelled."""
        waiting = self._waiting
        while waiting and waiting[0][2].callback is None:
            heapq.heappop(waiting)
        at = waiting[0][0] if waiting else 0
        if at != self._armed:
            self._armed = at
            left = max(1, at - time.monotonic_ns()) if at else 0
            self._spec.at_s, self._spec.at_ns = divmod(left, 1_000_000_000)
            self._set(self._fd, _RELATIVE, ctypes.byref(self._spec), None)

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # it was set again as it rang
            os.read(self._fd, _COUNT)
        self._armed = 0
        now = time.monotonic_ns()
        waiting = self._waiting
        try:
            while waiting and waiting[0][0] <= now:
                heapq.heappop(waiting)[2].ring()
        finally:  # one that raises must not silence the others
            self._arm()


class SystemClock:
    """The machine's wall clock, or another of its clocks plus an offset to the store's own."""

    def __init__(self, nanoseconds: Callable[[], int] = time.time_ns) -> None:
        self._nanoseconds = nanoseconds
        self.offset = 0.0
        """Milliseconds to add to this machine's clock to get the store's."""
        self._fine: FineTimers | None = None

    def open(self) -> None:
        """Use fine timers on the running loop from now on, where there are any."""
        if self._fine is None:
            self._fine = FineTimers.open()

    def close(self) -> None:
        """Close the timers that were opened; later ones are left to the loop."""
        if self._fine is not None:
            self._fine.close()
            self._fine = None

    def now(self) -> int:
        return int(self._nanoseconds() / 1_000_000 + self.offset)

    def exact(self) -> float:
        """now() with its fraction of a millisecond."""
        return self._nanoseconds() / 1_000_000 + self.offset

    def call_at(self, when: int, callback: Callable[[], None]) -> Timer:
        wait = when - self.exact()
        if self._fine is not None and wait <= FINE_MS:
            return self._fine.call_later(max(0.0, wait) / 1000, callback)
        # Half of one more: timers of whole milliseconds round to the nearest.
        return asyncio.get_running_loop().call_later(max(0.0, wait + 0.5) / 1000, callback)

    async def sleep_until(self, when: int) -> None:
        now = self.now()
        while (wait := when - now) > 0:
            # A wall clock that jumps forward must not leave us asleep: look again now and then.
            step = min(wait, 1000)
            await asyncio.sleep(step / 1000)
            before, now = now, self.now()
            if now < before:  # set back: the remaining wait is unchanged
                when -= before + step - now


class Alarm:
    """Waits until it is rung, or until the clock rings it at a moment."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rung = False
        self._waiter: asyncio.Future[None] | None = None
        self._timer: Timer | None = None
        """While waiting: rings at the moment that the wait was begun with."""
        self._sooner: Timer | None = None
        """While waiting: rings at a moment set since. The first timer keeps going: if the clock was
        set back since it was started, this one may take longer."""
        self.set_for: int | None = None
        """While waiting: the moment set."""

    @property
    def is_waiting(self) -> bool:
        """True if a task waits for it that has not been rung."""
        return self._waiter is not None and not self._waiter.done()

    def ring(self) -> None:
        self._rung = True
        if self._waiter is not None and self.is_waiting:
            self._waiter.set_result(None)

    def ring_by(self, moment: int) -> None:
        """While a task waits: ring at `moment` if that is sooner than the moment set."""
        if self._waiter is None or (self.set_for is not None and self.set_for <= moment):
            return
        if moment <= self._clock.now():
            self.ring()
            return
        self._set(moment)

    def _set(self, moment: int) -> None:
        self.set_for = moment
        if self._sooner is not None:
            self._sooner.cancel()
        self._sooner = self._clock.call_at(moment, self._due)

    async def wait(self, until: int | None = None) -> None:
        """Return once rung, or about `until`; a ring before the wait counts."""
        if self._rung:
            self._rung = False
            return
        self._waiter = asyncio.get_running_loop().create_future()
        self.set_for = until
        if until is not None:
            self._timer = self._clock.call_at(until, self._due)
        try:
            await self._waiter
        finally:
            self._waiter = None
            self.set_for = None
            self._rung = False
            for timer in (self._timer, self._sooner):
                if timer is not None:
                    timer.cancel()
            self._timer = self._sooner = None

    def _due(self) -> None:
        until = self.set_for
        if until is not None and is_ahead(until, self._clock.now(), EARLY_MS):
            self._set(until)
        else:
            self.ring()
