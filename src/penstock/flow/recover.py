"""RECOVER: keep the leases of slow sends alive, and return messages whose lease ran out."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from penstock.flow.observe import Contact, Observer
from penstock.model.errors import StoreUnavailable
from penstock.model.outcome import Reaped
from penstock.ports.store import MessageStore

log = logging.getLogger("penstock.recover")

REAP = 500
MAX_PERIOD_MS = 1_000


async def extend_leases(
    store: MessageStore, contact: Contact, observer: Observer, tokens: Sequence[int], lease: int
) -> tuple[int, int]:
    """Extend these leases by their whole time; return when the store had answered and when they
    end.
    """
    now = await contact.ensure()
    with observer.asking("extend"):
        await store.extend(tokens, now + lease)
    contact.answered(now)
    return store.clock.now(), now + lease


class Recover:
    """Recovers expired leases. Runs in every worker; any may return another's messages."""

    def __init__(
        self,
        store: MessageStore,
        observer: Observer,
        contact: Contact,
        held: Callable[[], Iterable[int]],
        *,
        lease: int,
        extended: Callable[[Sequence[int], int, int], None] = lambda _tokens, _now, _until: None,
    ) -> None:
        """`extended`: called with the leases that were, when, and until when."""
        self._store = store
        self._observer = observer
        self._contact = contact
        self._held = held
        self._extended = extended
        self._lease = lease
        self._period = max(1, min(MAX_PERIOD_MS, lease // 4))
        self._extend_at = 0
        self._unextended_since: int | None = None
        """Since when extending has failed each time."""

    async def run(self) -> None:
        clock = self._store.clock
        while True:
            try:
                await self.step()
            except StoreUnavailable as exc:
                log.warning("store away, expired leases are recovered when it answers: %s", exc)
            await clock.sleep_until(clock.now() + self._period)

    async def step(self) -> None:
        """Extend first: after a clock's jump our own leases must not look abandoned."""
        now = self._store.clock.now()
        # Sooner too when the clock went back: then the last moment noted lies ahead.
        if now >= self._extend_at or now < self._extend_at - self._lease:
            await self._try_to_extend(now)
        while reaped := await self._reap(now):
            for (route, state), number in Counter((r.route, r.state) for r in reaped).items():
                self._observer.count("recovered", route, number)
                log.warning(
                    "%d messages of route %s lost their lease (not settled in time): they are %s",
                    number,
                    route,
                    state,
                )
            if len(reaped) < REAP:
                break

    async def _try_to_extend(self, now: int) -> None:
        """Extend our leases; raise while they may still run, after that reaping need not wait for
        them.

        A part of the store that stays unavailable (one node of a cluster) fails every extension,
        and messages of dead workers in the other parts must be recovered all the same.
        """
        try:
            await self._extend()
        except StoreUnavailable as exc:
            if self._unextended_since is None or now < self._unextended_since:
                self._unextended_since = now
            if now - self._unextended_since < self._lease:
                raise
            await self._contact.ensure()
            log.warning(
                "leases of this worker cannot be extended, other workers may repeat its sends: %s",
                exc,
            )
            return
        self._extend_at = now + self._lease // 3
        self._unextended_since = None

    async def extend(self) -> None:
        """Extend every lease of this process by its whole time, as the last act before it stops."""
        try:
            await self._extend()
        except StoreUnavailable as exc:
            log.warning(
                "store away, leases are not extended once more before this worker stops: %s", exc
            )

    async def _extend(self) -> None:
        if tokens := list(self._held()):
            now, until = await extend_leases(
                self._store, self._contact, self._observer, tokens, self._lease
            )
            self._extended(tokens, now, until)

    async def _reap(self, now: int) -> list[Reaped]:
        with self._observer.asking("reap"):
            reaped = await self._store.reap(now, REAP)
        self._contact.answered(now)
        return reaped
