"""SETTLE: end leases in batches; what piles up while one call is under way is the next batch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TypeAlias

from penstock.flow.conclude import committed, sent, unsent
from penstock.flow.decide import HOLD_MARGIN_MS
from penstock.flow.observe import Observer
from penstock.flow.policies import Policies
from penstock.model.clock import Alarm
from penstock.model.errors import StoreUnavailable
from penstock.model.outcome import Settlement
from penstock.model.state import State
from penstock.ports.policies import CountedSettle
from penstock.ports.store import MessageStore

log = logging.getLogger("penstock.settle")

SettledStates: TypeAlias = Sequence[State | None]
Done: TypeAlias = Callable[[Sequence[Settlement], SettledStates], None]
_Queued: TypeAlias = tuple[list[Settlement], Done]

BATCH = 1_000
AT_ONCE, MANY = 2, 500
"""Batches under way at once, while so many wait to be settled: with policies a batch is settled in
two steps, and the store need not be idle between them. Few wait for the next batch."""
RETRY_MS = (50, 100, 250, 500, 1_000)


class Settler:
    """Shared by all lanes of a worker. Bounded, because what is in flight is."""

    def __init__(
        self, store: MessageStore, observer: Observer, policies: Policies | None = None
    ) -> None:
        self._store = store
        self._observer = observer
        self._policies = policies
        self._alarm = Alarm(store.clock)
        self._queue: list[_Queued] = []
        self._under_way = 0
        self._ended = Alarm(store.clock)
        self._give_up_at: int | None = None

    def add(self, settlements: list[Settlement], done: Done) -> None:
        """Settle these soon and call back with the state of each (None: the lease was lost)."""
        if settlements:
            self._queue.append((settlements, done))
            self._alarm.ring()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            while True:
                await self._alarm.wait()
                while self._may_begin():
                    group.create_task(self._settle_these(self._take()))

    async def drain(self, deadline: int) -> None:
        """Settle everything queued; past the deadline leave it to the leases to run out."""
        self._give_up_at = deadline
        while self._queue or self._under_way:
            if self._queue:
                await self._settle_these(self._take())
            else:
                await self._ended.wait()

    def _may_begin(self) -> bool:
        if not self._under_way or not self._queue:
            return bool(self._queue)
        return self._under_way < AT_ONCE and sum(len(some) for some, _ in self._queue) >= MANY

    def _take(self) -> list[_Queued]:
        """The next batch, to be settled now."""
        number = size = 0
        for settlements, _ in self._queue:
            size += len(settlements)
            number += 1
            if size >= BATCH:
                break
        taken, self._queue = self._queue[:number], self._queue[number:]
        self._under_way += 1
        return taken

    async def _settle_these(self, taken: list[_Queued]) -> None:
        batch = [settlement for settlements, _ in taken for settlement in settlements]
        try:
            states = await self._settle(batch)
        finally:
            self._under_way -= 1
            self._alarm.ring()
            self._ended.ring()
        start = 0
        for settlements, done in taken:
            end = start + len(settlements)
            done(settlements, states[start:end])
            start = end

    async def _settle(self, batch: list[Settlement]) -> SettledStates:
        """Until the store takes it: a lease lost meanwhile is for the store to tell."""
        tries = 0
        clock = self._store.clock
        while True:
            try:
                if self._policies is not None and self._policies.active:
                    return await self._settle_counted(self._policies, batch)
                with self._observer.asking("settle"):
                    return await self._store.settle(batch, clock.now())
            except StoreUnavailable as exc:
                wait = RETRY_MS[min(tries, len(RETRY_MS) - 1)]
                if tries == 0:
                    log.warning("store away while settling: %s", exc)
                tries += 1
                if self._give_up_at is not None and clock.now() >= self._give_up_at:
                    return [None] * len(batch)
                await clock.sleep_until(clock.now() + wait)

    async def _settle_counted(self, policies: Policies, batch: list[Settlement]) -> SettledStates:
        """In one step, or counted first: should it fail, saying it again changes nothing."""
        store, clock = self._store, self._store.clock
        counted = sent(batch)
        if counted and isinstance(store, CountedSettle):
            with self._observer.asking("settle"):
                states: SettledStates = await store.settle_counted(batch, counted, clock.now())
        else:
            await policies.conclude(committed(counted), clock.now())
            with self._observer.asking("settle"):
                states = await store.settle(batch, clock.now())
        try:
            await policies.conclude(unsent(batch, states, HOLD_MARGIN_MS), clock.now())
        except StoreUnavailable as exc:
            log.warning("places of unsent messages stay held for a while: %s", exc)
        return states
