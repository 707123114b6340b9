"""FORGET: purge settled messages after the retention time, in small steps."""

from __future__ import annotations

import logging

from penstock.flow.observe import Observer
from penstock.model.errors import StoreUnavailable
from penstock.ports.store import MessageStore

log = logging.getLogger("penstock.forget")

STEP = 500
REST_MS = 5_000
BREATH_MS = 20
"""Between two steps, so that a large purge never holds up what is due."""


class Forget:
    def __init__(self, store: MessageStore, observer: Observer) -> None:
        self._store = store
        self._observer = observer

    async def run(self) -> None:
        clock = self._store.clock
        while True:
            purged = 0
            try:
                purged = await self._store.purge(clock.now(), STEP)
                self._observer.count("purged", "", purged)
            except StoreUnavailable as exc:
                log.warning("store away while purging: %s", exc)
            await clock.sleep_until(clock.now() + (BREATH_MS if purged >= STEP else REST_MS))
