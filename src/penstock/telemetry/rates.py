"""One log line per second with the number of messages delivered, while there are any."""

from __future__ import annotations

import logging

from penstock.flow.observe import Observer
from penstock.time.clock import Clock

log = logging.getLogger("penstock.rates")

PERIOD_MS = 1_000
DELIVERED = "Delivered"


class Rates:
    """Logs `Delivered/s: N` for every second in which messages were delivered.

    Each message counts once, when its sink has confirmed it; failed attempts do not count.
    """

    def __init__(
        self,
        observer: Observer,
        clock: Clock,
        *,
        stage: str = "delivered",
        what: str = DELIVERED,
    ) -> None:
        self._observer = observer
        self._clock = clock
        self._stage = stage
        self._what = what

    async def run(self) -> None:
        """Run until cancelled."""
        before, since = self._observer.total(self._stage), self._clock.now()
        while True:
            await self._clock.sleep_until(since + PERIOD_MS)
            total, now = self._observer.total(self._stage), self._clock.now()
            if total > before:
                # A late wake covers more than a second; after a clock jump the rate is unknown.
                elapsed = max(now - since, PERIOD_MS)
                log.info("%s/s: %d", self._what, round((total - before) * 1000 / elapsed))
            before, since = total, now
