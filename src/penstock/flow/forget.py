"""FORGET: purge settled and dead messages whose retention is over, in small steps."""

from __future__ import annotations

import logging

from penstock.flow.erase import Erase
from penstock.flow.observe import Observer
from penstock.model.errors import StoreUnavailable
from penstock.model.outcome import Action, Amendment, Answer
from penstock.model.query import Cursor, Filter
from penstock.model.state import State
from penstock.ports.store import MessageStore

log = logging.getLogger("penstock.forget")

STEP = 500
REST_MS = 5_000
BREATH_MS = 20
"""Pause between two steps, so that a large purge never delays due messages."""
DEAD_STEP = 100
"""Dead messages of one step: they are read with their payloads."""
LOOK_MS = 30_000
"""Between two looks for dead messages whose retention is over, and for other processes' erasures.
"""


class Forget:
    """Settled messages after `retention` (the store knows it), dead ones after `dead_retention`
    (milliseconds; None: they stay), and erasures that had to wait for a lease."""

    def __init__(
        self,
        store: MessageStore,
        observer: Observer,
        *,
        erase: Erase | None = None,
        dead_retention: int | None = None,
    ) -> None:
        self._store = store
        self._observer = observer
        self._erase = erase
        self._dead_retention = dead_retention
        self._look_at = 0
        self._dead_seen: Cursor | None = None
        """Cursor of the scan of dead messages; None: from the oldest."""

    async def run(self) -> None:
        clock = self._store.clock
        while True:
            more = False
            try:
                more = await self.step()
            except StoreUnavailable as exc:
                log.warning("store away, purging goes on when it answers: %s", exc)
            await clock.sleep_until(clock.now() + (BREATH_MS if more else REST_MS))

    async def step(self) -> bool:
        """Purge one step; True if more can be purged at once."""
        now = self._store.clock.now()
        purged = await self._store.purge(now, STEP)
        self._observer.count("purged", "", purged)
        looks = not 0 < self._look_at - now <= LOOK_MS  # also when the clock was set back
        if looks:
            self._look_at = now + LOOK_MS
        if self._erase is not None and (looks or self._erase.has_pending):
            await self._erase.sweep()
        if self._dead_retention is not None and (looks or self._dead_seen is not None):
            await self._delete_dead(now - self._dead_retention)
        return purged >= STEP or self._dead_seen is not None

    async def _delete_dead(self, before: int) -> None:
        """Delete one page of messages that died before that moment; none of them was due later."""
        where = Filter(state=State.DEAD, due_to=before + 1)
        page = await self._store.search(where, self._dead_seen, DEAD_STEP)
        self._dead_seen = page.next
        over = [
            Amendment(action=Action.DELETE, id=message.id, version=message.version)
            for message in page.items
            if message.settled is not None and message.settled <= before
        ]
        if not over:
            return
        for answer in await self._store.amend(over, self._store.clock.now()):
            if answer.answer is Answer.DONE and answer.message is not None:
                self._observer.count("delete", answer.message.route)
