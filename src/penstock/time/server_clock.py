"""The store's clock is the server's, measured regularly.

Between two measurements this machine's monotonic clock counts, so a wall clock that is wrong, or is
set while we run, changes nothing. In a cluster the slowest primary's clock counts, and every script
also compares `now` with the clock of its own node.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable

from penstock.model.errors import PenstockError
from penstock.time.clock import SystemClock

log = logging.getLogger("penstock.time")

SAMPLES = 5
PERIOD = 5.0
"""Seconds between two measurements."""
SLACK_MS = 0.2
"""The milliseconds by which two clocks may diverge in that time."""


class ServerClock(SystemClock):
    """Epoch milliseconds by the server."""

    def __init__(self, server_time: Callable[[], Awaitable[float]]) -> None:
        super().__init__(time.monotonic_ns)
        self._server_time = server_time
        self._least = -math.inf
        """The lower bound of `offset` at the last measurement."""

    async def measure(self) -> None:
        """Read the server's time a few times and combine the bounds of all answers.

        The server's time was read at some moment between request and answer: it is ahead of our
        monotonic clock by no less than if that was just before the answer, and by no more than if
        it was just after the request. The largest of the lower bounds is taken, so that we are
        behind the server by as little as can be known, and never ahead. The previous bound is a
        lower bound too, less the slack: a moment in which everything is slow makes no message late.
        It is dropped as soon as an answer contradicts it, because the server's clock was set back.
        """
        least, most = self._least - SLACK_MS, math.inf
        for _ in range(SAMPLES):
            asked = time.monotonic_ns() / 1_000_000
            server = await self._server_time()
            answered = time.monotonic_ns() / 1_000_000
            least = max(least, server - answered)
            most = min(most, server - asked)
        self._least = min(least, most)
        self.offset = self._least - SLACK_MS

    async def keep(self) -> None:
        """Measure until cancelled; the last measurement stands while the server does not answer."""
        self.open()
        try:
            while True:
                await asyncio.sleep(PERIOD)
                try:
                    await self.measure()
                except PenstockError as exc:
                    log.debug("could not ask the server for its time: %s", exc)
        finally:
            self.close()
