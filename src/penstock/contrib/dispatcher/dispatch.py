"""DISPATCH: every promotion becomes an entry token for the visitor's instance.

If a process dies in between, its entries stay pending, and another process takes them over.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from penstock.flow.observe import Observer
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.ticket import Dispatch, Entry
from penstock.ports.rooms import EntryQueue, RoomStore, TokenSigner
from penstock.rooms.wait import TOKEN_TTL
from penstock.time.clock import Clock

log = logging.getLogger("penstock.rooms")

BATCH = 10
POLL_MS = 2_000
ABANDONED_MS = 30_000
"""Time after which an entry that another consumer holds is taken over."""
TRIM_EVERY_MS = 5_000
TTL_KNOWN_MS = 5_000
"""How long a room's claim_ttl is cached."""
TTLS_KNOWN = 1_000
"""Most rooms in that cache; past it, outdated entries are dropped."""
STORE_AWAY_MS = 1_000


class Dispatcher:
    """One consumer of the promotions."""

    def __init__(
        self,
        store: RoomStore,
        entries: EntryQueue,
        signer: TokenSigner,
        observer: Observer,
        *,
        batch: int = BATCH,
        poll: int = POLL_MS,
        abandoned: int = ABANDONED_MS,
    ) -> None:
        self._store = store
        self._clock: Clock = store.clock
        self._entries = entries
        self._signer = signer
        self._observer = observer
        self._batch = batch
        self._poll = poll
        self._abandoned = abandoned
        self._ttls: dict[str, tuple[int, int]] = {}
        """Room → (known until, claim_ttl)."""
        self._stopping = False
        self.dispatched = 0

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._take_new())
            group.create_task(self._take_over())
            group.create_task(self._trim())
            try:
                await asyncio.Event().wait()
            finally:
                # A driver that swallows a cancellation must not keep a loop alive.
                self._stopping = True

    async def _take_new(self) -> None:
        while not self._stopping:
            try:
                await self.dispatch(await self._entries.take(self._batch, self._poll))
            except PenstockError as exc:
                await self._away(exc)

    async def _take_over(self) -> None:
        while not self._stopping:
            try:
                while taken := await self._entries.take_abandoned(self._abandoned, self._batch):
                    log.warning(
                        "took over %d promotions from a consumer that stopped acknowledging",
                        len(taken),
                    )
                    await self.dispatch(taken)
            except PenstockError as exc:
                await self._away(exc)
            await self._clock.sleep_until(self._clock.now() + self._poll)

    async def _trim(self) -> None:
        while not self._stopping:
            await self._clock.sleep_until(self._clock.now() + TRIM_EVERY_MS)
            try:
                await self._entries.trim()
            except StoreUnavailable as exc:
                log.warning("store away, streams are trimmed later: %s", exc)

    async def dispatch(self, entries: Sequence[Entry]) -> int:
        """Send a token for each entry, and acknowledge it in the same step."""
        if not entries:
            return 0
        for room in {entry.room for entry in entries}:
            await self._learn_ttl(room)
        done = await self._entries.dispatch(
            [Dispatch(entry=entry, token=self._token(entry)) for entry in entries]
        )
        self.dispatched += done
        self._observer.visited("dispatched", len(entries))
        return done

    def _token(self, entry: Entry) -> str:
        issued = entry.promoted // 1000
        ttl = self._ttls[entry.room][1]
        # The entry has whole seconds: add one, so that the slot's own end is decisive.
        expires = issued + 1 + -(-ttl // 1000)
        return self._signer.sign(entry.room, entry.user, entry.id, issued, expires)

    async def _learn_ttl(self, room: str) -> None:
        now = self._clock.now()
        known = self._ttls.get(room)
        if known is None or known[0] <= now:
            if len(self._ttls) >= TTLS_KNOWN:
                self._ttls = {name: one for name, one in self._ttls.items() if one[0] > now}
            (found,) = await self._store.rooms([room])
            ttl = None if found is None else found.settings.claim_ttl
            # If tickets of other programs do not expire, their tokens must not expire too soon.
            if found is None or ttl is None or not found.settings.expire_outside:
                ttl = max(TOKEN_TTL, ttl or 0)
            self._ttls[room] = now + TTL_KNOWN_MS, ttl

    async def _away(self, exc: PenstockError) -> None:
        log.warning("store away, promotions are passed on when it answers: %s", exc)
        await self._clock.sleep_until(self._clock.now() + STORE_AWAY_MS)
