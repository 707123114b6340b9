"""RECOVER: keep the leases of slow sends alive, and return messages whose lease ran out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable

from penstock.flow.observe import Observer
from penstock.model.errors import StoreUnavailable
from penstock.model.outcome import Reaped
from penstock.ports.store import MessageStore

log = logging.getLogger("penstock.recover")

REAP = 500
MAX_PERIOD_MS = 1_000


class Recover:
    """Runs in every worker; any of them may return what another one lost."""

    def __init__(
        self,
        store: MessageStore,
        observer: Observer,
        held: Callable[[], Iterable[int]],
        *,
        lease: int,
    ) -> None:
        self._store = store
        self._observer = observer
        self._held = held
        self._lease = lease
        self._period = max(1, min(MAX_PERIOD_MS, lease // 4))
        self._extend_at = 0

    async def run(self) -> None:
        clock = self._store.clock
        while True:
            try:
                await self.step()
            except StoreUnavailable as exc:
                log.warning("store away while recovering: %s", exc)
            await clock.sleep_until(clock.now() + self._period)

    async def step(self) -> None:
        """Extend first: after a clock's jump our own leases must not look abandoned."""
        now = self._store.clock.now()
        # Sooner too when the clock went back: then the last moment noted lies ahead.
        if now >= self._extend_at or now < self._extend_at - self._lease:
            if tokens := list(self._held()):
                with self._observer.asking("extend"):
                    await self._store.extend(tokens, now + self._lease)
            self._extend_at = now + self._lease // 3
        while reaped := await self._reap(now):
            for (route, state), number in Counter((r.route, r.state) for r in reaped).items():
                self._observer.count("recovered", route, number)
                log.warning("%d messages of %s lost their lease: %s", number, route, state)
            if len(reaped) < REAP:
                break

    async def _reap(self, now: int) -> list[Reaped]:
        with self._observer.asking("reap"):
            return await self._store.reap(now, REAP)
