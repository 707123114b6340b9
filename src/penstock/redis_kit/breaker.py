"""A circuit breaker for a server: while it does not answer, callers are refused at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import NamedTuple


class Patience(NamedTuple):
    """How long a caller keeps trying a server that fails."""

    waits: tuple[float, ...] = (0.02, 0.1, 0.25)
    """Seconds before each repetition of a call that could not be made or lost its connection."""
    retries_slow: bool = False
    """Whether to repeat calls that timed out or that the server refused for the moment."""
    trip_after: int = 3
    """Consecutive failures that open the breaker."""
    first_open: float = 0.1
    """Seconds the breaker stays open at first; doubled by every failed probe."""
    longest_open: float = 2.0


PROMPT = Patience()
"""For callers that retry by themselves, as the flow does."""


class Breaker:
    """Closed: every call passes.

    Open: calls are refused until the wait is over, then one probes.
    """

    def __init__(
        self, patience: Patience = PROMPT, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._patience = patience
        self._clock = clock
        self.failures = 0
        """Consecutive failed calls."""
        self.is_closed = True
        self._retry_at = 0.0
        self.reason = "does not answer"
        """The last error, shown to refused callers."""

    @property
    def refuses(self) -> bool:
        """Whether a call would be refused now, without using up the probe."""
        return not self.is_closed and self._retry_at > self._clock()

    def wait(self) -> float:
        """Seconds until a call may be tried; 0 if it may be tried now."""
        if self.is_closed:
            return 0.0
        wait = self._retry_at - self._clock()
        if wait > 0:
            return wait
        # This caller probes; the others wait for its result.
        self._retry_at = self._clock() + self._pause()
        return 0.0

    def succeeded(self) -> None:
        self.failures = 0
        self.is_closed = True

    def failed(self) -> float:
        """Count a failure; the answer is the seconds until another call is worth trying."""
        self.failures += 1
        self.is_closed = self.failures < self._patience.trip_after
        pause = self._pause()
        self._retry_at = self._clock() + pause
        return pause

    def _pause(self) -> float:
        patience = self._patience
        growth = max(0, self.failures - patience.trip_after)
        longest = min(patience.longest_open, patience.first_open * float(1 << min(growth, 10)))
        return longest * random.uniform(0.75, 1.0)
