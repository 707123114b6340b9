"""The store's clock is the server's: its TIME, measured again and again.

Between two measurements time goes on by this machine's monotonic clock, so a wall clock that is
wrong, or is set while we run, changes nothing. In a cluster the slowest primary's clock counts,
and every script holds `now` against the clock of its own node besides.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable

from penstock.model.clock import SystemClock
from penstock.model.errors import PenstockError

log = logging.getLogger("penstock.stores.redis")

SAMPLES = 5
PERIOD = 5.0
"""Seconds between two measurements."""
SLACK_MS = 0.2
"""What two clocks may come apart by in that time."""


class ServerClock(SystemClock):
    """Epoch milliseconds by the server."""

    def __init__(self, server_time: Callable[[], Awaitable[float]]) -> None:
        super().__init__()
        self._server_time = server_time
        self._base = 0.0
        """Milliseconds to add to the monotonic clock."""

    def now(self) -> int:
        return int(time.monotonic() * 1000 + self._base)

    def exact(self) -> float:
        return time.monotonic() * 1000 + self._base

    async def measure(self) -> None:
        """Ask a few times and believe the quickest answer.

        The server's time was read some moment between asking and the answer. We take it to be
        just before the answer, so that we are behind it by at most the way back, never ahead; the
        slack is for clocks that go at different speeds until the next measurement.
        """
        best: tuple[float, float] | None = None
        for _ in range(SAMPLES):
            asked = time.monotonic() * 1000
            server = await self._server_time()
            answered = time.monotonic() * 1000
            if best is None or answered - asked < best[0]:
                best = answered - asked, server - answered
        if best is not None:
            self._base = best[1] - SLACK_MS

    async def keep(self) -> None:
        """Measure for ever; while the server is away the last measurement stands."""
        while True:
            await asyncio.sleep(PERIOD)
            try:
                await self.measure()
            except PenstockError as exc:
                log.debug("could not ask the server for its time: %s", exc)
