"""Timers to a fraction of a millisecond, where the system has them.

An event loop waits in whole milliseconds, and libuv counts them from the last whole one: its timer
rings up to one late or early, and what rang early is set again for another. Whatever is due waits
for all of that. Linux has timers that are waited for like a socket and ring within microseconds
(timerfd); Python offers them from 3.13 on, so the C library is asked.
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

_RELATIVE = 0
"""Set for a while, not for a moment: a moment means another one under a faked clock."""
_COUNT = 8
"""Bytes of the number of times it rang, which is what there is to read."""


class _Spec(ctypes.Structure):
    """struct itimerspec: how often, and when first."""

    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class _Due:
    """A callback, until it is called or nobody wants it any more."""

    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def ring(self) -> None:
        if self.callback is not None:
            self.callback()


class FineTimers:
    """Timers of one loop, all on one of the system's. Whoever opens them closes them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, libc: ctypes.CDLL, fd: int) -> None:
        """For `open` to call."""
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
        """For the running loop; None: this system or this loop does not have them."""
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
        """What has not rung by now is left to the loop."""
        self._loop.remove_reader(self._fd)
        os.close(self._fd)
        now = time.monotonic_ns()
        for at, _, due in sorted(self._waiting):
            self._loop.call_later(max(0, at - now) / 1e9, due.ring)
        self._waiting.clear()

    def _arm(self) -> None:
        """Set the system's timer for the first that is still wanted."""
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
        with contextlib.suppress(BlockingIOError):  # it was set anew as it rang
            os.read(self._fd, _COUNT)
        self._armed = 0
        now = time.monotonic_ns()
        waiting = self._waiting
        try:
            while waiting and waiting[0][0] <= now:
                heapq.heappop(waiting)[2].ring()
        finally:  # one that raises must not silence the others
            self._arm()
