"""FLEET: this process among the others on the same store, by heartbeats written to that store.

Heartbeats fall on whole seconds of the store's clock, so a sum of all processes' figures that is
made half a second later has the same moment of each. A process that is killed loses the figures it
counted after its last heartbeat: at most those of PERIOD_MS.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from penstock.flow.observe import Observer
from penstock.flow.worker import Worker
from penstock.model.errors import StoreUnavailable
from penstock.model.fleet import Heartbeat, LaneState, ProcessName, Role
from penstock.ports.store import Store

log = logging.getLogger("penstock.fleet")

PERIOD_MS = 1_000
"""Between two heartbeats while there are new figures …"""
QUIET_MS = 5_000
"""… and while there are none."""
READ_MS = 500
"""Between two reads of the other processes' heartbeats."""
SHOWN_MS = 60_000
"""A process that is no longer seen is shown for so long."""
ALIVE_MS = 3 * QUIET_MS
"""A process whose last heartbeat is older is taken for dead: none of its work counts as under way.
"""
KEPT_MS = 3_600_000
"""The figures of a process stay in the totals for so long after its last heartbeat."""
FORGET_MS = 60_000
"""Between two deletions of old heartbeats."""


class Fleet:
    """Writes this process's heartbeats while it has joined, and reads those of the others."""

    def __init__(
        self,
        store: Store,
        observer: Observer,
        *,
        name: ProcessName,
        role: Role,
        version: str,
    ) -> None:
        self._clock = store.clock
        self._beats = store.fleet
        self._observer = observer
        self._worker: Worker | None = None
        self._joined = False
        self._written: Heartbeat | None = None
        self._read_at = -READ_MS
        self._read: list[Heartbeat] = []
        self._reading = asyncio.Lock()
        self.facts = Heartbeat(
            id=name.id,
            role=role,
            host=name.host,
            pid=name.pid,
            version=version,
            started=store.clock.now(),
            seen=store.clock.now(),
        )

    @asynccontextmanager
    async def joined(
        self, worker: Worker | None = None, metrics: str | None = None
    ) -> AsyncIterator[None]:
        """Write heartbeats while the block runs, and final figures, marked as such, at the end."""
        self._worker = worker
        self._joined = True
        self.facts = _changed(self.facts, metrics=metrics)
        beating = asyncio.get_running_loop().create_task(self._run())
        try:
            yield
        finally:
            beating.cancel()
            await asyncio.wait([beating])
            if self._written is not None:
                await self._tell(_changed(self.own(), ended=True, routes={}))
            self._joined = False

    def own(self) -> Heartbeat:
        """This process as it is now."""
        observer = self._observer
        counts: dict[str, dict[str, int]] = {}
        for (stage, route), number in observer.counts.items():
            counts.setdefault(route, {})[stage] = number
        policies: dict[str, dict[str, int]] = {}
        for (policy, verdict), number in observer.policies.items():
            policies.setdefault(policy, {})[verdict] = number
        return _changed(
            self.facts,
            seen=self._clock.now(),
            routes={} if self._worker is None else _lanes(self._worker),
            counts=counts,
            lateness=observer.lateness,
            policies=policies,
        )

    async def everyone(self) -> list[Heartbeat]:
        """This process with live figures, then the others as last read, the oldest first."""
        others = [beat for beat in await self._kept() if beat.id != self.facts.id]
        others.sort(key=lambda beat: (beat.started, beat.id))
        return [self.own(), *others]

    def shown(self, everyone: list[Heartbeat]) -> list[Heartbeat]:
        """The processes that are running or were a moment ago, without those that only read."""
        now = self._clock.now()
        return [
            beat
            for beat in everyone
            if (beat.id != self.facts.id or self._joined) and now - beat.seen < SHOWN_MS
        ]

    def alive(self, everyone: list[Heartbeat]) -> list[Heartbeat]:
        now = self._clock.now()
        return [beat for beat in everyone if not beat.ended and now - beat.seen < ALIVE_MS]

    async def _kept(self) -> list[Heartbeat]:
        """Read at most twice a second, however many ask."""
        if self._beats is None:
            return []
        async with self._reading:
            now = self._clock.now()
            if not 0 <= now - self._read_at < READ_MS:
                self._read = await self._beats.heartbeats()
                self._read_at = now
        return [beat for beat in self._read if now - beat.seen < KEPT_MS]

    async def _run(self) -> None:
        clock = self._clock
        if self._beats is None:
            return
        forget_at = clock.now() + FORGET_MS
        while True:
            now = clock.now()
            await clock.sleep_until(now - now % PERIOD_MS + PERIOD_MS)
            beat = self.own()
            if self._is_news(beat):
                await self._tell(beat)
            if beat.seen >= forget_at:
                forget_at = beat.seen + FORGET_MS
                await self._forget(beat.seen - KEPT_MS)

    def _is_news(self, beat: Heartbeat) -> bool:
        written = self._written
        if written is None or not 0 <= beat.seen - written.seen < QUIET_MS:
            return True
        return (beat.counts, beat.routes, beat.policies) != (
            written.counts,
            written.routes,
            written.policies,
        )

    async def _tell(self, beat: Heartbeat) -> None:
        if self._beats is None:
            return
        try:
            await self._beats.beat(beat)
        except StoreUnavailable as exc:
            log.debug("heartbeat not written, other processes do not see this one: %s", exc)
        else:
            self._written = beat

    async def _forget(self, before: int) -> None:
        if self._beats is None:
            return
        try:
            await self._beats.forget_heartbeats(before)
        except StoreUnavailable as exc:
            log.debug("store away, old heartbeats stay: %s", exc)


def _changed(beat: Heartbeat, **changes: object) -> Heartbeat:
    return msgspec.structs.replace(beat, **changes)


def _lanes(worker: Worker) -> dict[str, LaneState]:
    return {
        name: LaneState(
            sink=lane.sink.name,
            in_flight=lane.in_flight,
            capacity=lane.capacity,
            waiting_for_sink=lane.breaker.is_open,
            reached=lane.breaker.reached,
            lag=lane.lag,
            overdue=lane.overdue,
        )
        for name, lane in worker.lanes.items()
    }
