"""A circuit breaker towards Redis: while it is away, callers are answered at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

TRIP_AFTER = 3
"""Calls in a row that failed."""
FIRST_WAIT = 0.1
LONGEST_WAIT = 2.0


class Breaker:
    """Closed: every call passes. Open: none until the wait is over, then one to try."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.failures = 0
        """Calls in a row that failed."""
        self.is_closed = True
        self._retry_at = 0.0
        self.reason = "does not answer"
        """What the last call failed by, for callers that are not let through."""

    def wait(self) -> float:
        """Seconds until a call may be tried; 0: now."""
        if self.is_closed:
            return 0.0
        wait = self._retry_at - self._clock()
        if wait > 0:
            return wait
        # This caller tries; the others wait for what comes of it.
        self._retry_at = self._clock() + self._pause()
        return 0.0

    def succeeded(self) -> None:
        self.failures = 0
        self.is_closed = True

    def failed(self) -> float:
        """Learn of a failure; seconds after which it is worth trying again."""
        self.failures += 1
        self.is_closed = self.failures < TRIP_AFTER
        pause = self._pause()
        self._retry_at = self._clock() + pause
        return pause

    def _pause(self) -> float:
        growth = max(0, self.failures - TRIP_AFTER)
        longest = min(LONGEST_WAIT, FIRST_WAIT * float(1 << min(growth, 10)))
        return longest * random.uniform(0.75, 1.0)
