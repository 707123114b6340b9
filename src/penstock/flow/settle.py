"""SETTLE: end leases in batches; what piles up while one call is under way is the next batch."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from penstock.flow.conclude import committed, sent, unsent
from penstock.flow.contact import Contact
from penstock.flow.decide import HOLD_MARGIN_MS
from penstock.flow.observe import Observer
from penstock.flow.policies import Policies
from penstock.model.errors import PartlyUnavailable, StoreFailed, StoreUnavailable
from penstock.model.outcome import Settlement
from penstock.model.state import State
from penstock.ports.store import Store
from penstock.time.clock import Alarm

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
        self,
        store: Store,
        observer: Observer,
        contact: Contact,
        policies: Policies | None = None,
    ) -> None:
        self._store = store.messages
        self._counted = store.counted
        self._observer = observer
        self._contact = contact
        self._policies = policies
        self._alarm = Alarm(store.clock)
        self._queue: list[_Queued] = []
        self._under_way = 0
        self._late: list[_Queued] = []
        """What the store, or a part of it, could not take: tried again together, beside others."""
        self._failed = Alarm(store.clock)
        self._retrying = False
        self._ended = Alarm(store.clock)
        self._give_up_at: int | None = None

    def add(self, settlements: list[Settlement], done: Done) -> None:
        """Settle these soon and call back with the state of each (None: the lease was lost)."""
        if settlements:
            self._queue.append((settlements, done))
            self._alarm.ring()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._settle_late())
            while True:
                await self._alarm.wait()
                while self._may_begin():
                    group.create_task(self._settle_these(self._take()))

    async def drain(self, deadline: int) -> None:
        """Settle everything queued; past the deadline leave it to the leases to run out."""
        self._give_up_at = deadline
        while self._queue or self._under_way or self._late or self._retrying:
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
        taken, self._queue = _first(self._queue)
        self._under_way += 1
        return taken

    async def _settle_these(self, taken: list[_Queued]) -> None:
        try:
            left = await self._try(taken)
        finally:
            self._under_way -= 1
            self._alarm.ring()
            self._ended.ring()
        if left:
            self._late += left
            self._failed.ring()

    async def _settle_late(self) -> None:
        """Until the store takes them: a lease lost meanwhile is for the store to tell."""
        clock = self._store.clock
        tries = 0
        while True:
            if not self._late:
                tries = 0
                await self._failed.wait()
                continue
            await clock.sleep_until(clock.now() + RETRY_MS[min(tries, len(RETRY_MS) - 1)])
            taken, self._late = _first(self._late)
            self._retrying = True
            try:
                left = await self._try(taken, again=True)
            finally:
                self._retrying = False
            tries = tries + 1 if left else 0
            self._late += left  # behind the others, which may be for a part that answers
            self._ended.ring()

    async def _try(self, taken: list[_Queued], *, again: bool = False) -> list[_Queued]:
        """Settle, and call back; what the store could not take now is left."""
        batch = [settlement for settlements, _ in taken for settlement in settlements]
        try:
            states = await self._settle(batch)
            self._contact.answered()
        except StoreUnavailable as exc:
            if not self._late and not again:
                log.warning("store away while settling: %s", exc)
            left = taken
            if isinstance(exc, PartlyUnavailable):
                self._contact.answered()
                left = _answered(taken, exc.answers)
            # It takes no more before the process is restarted, or there is no time to wait for it.
            if not isinstance(exc, StoreFailed) and not self._gives_up():
                return left
            taken, states = left, [None] * len(batch)
        start = 0
        for settlements, done in taken:
            end = start + len(settlements)
            done(settlements, states[start:end])
            start = end
        return []

    def _gives_up(self) -> bool:
        return self._give_up_at is not None and self._store.clock.now() >= self._give_up_at

    async def _settle(self, batch: list[Settlement]) -> SettledStates:
        if self._policies is not None and self._policies.active:
            return await self._settle_counted(self._policies, batch)
        with self._observer.asking("settle"):
            return await self._store.settle(batch, self._store.clock.now())

    async def _settle_counted(self, policies: Policies, batch: list[Settlement]) -> SettledStates:
        """In one step, or counted first: should it fail, saying it again changes nothing."""
        store, clock = self._store, self._store.clock
        counted = sent(batch)
        if counted and self._counted is not None:
            with self._observer.asking("settle"):
                states: SettledStates = await self._counted.settle_counted(
                    batch, counted, clock.now()
                )
        else:
            await policies.conclude(committed(counted), clock.now())
            try:
                with self._observer.asking("settle"):
                    states = await store.settle(batch, clock.now())
            except PartlyUnavailable as exc:
                places = sorted(exc.answers)
                await self._conclude_unsent(
                    policies, [batch[i] for i in places], [exc.answers[i] for i in places]
                )
                raise
        await self._conclude_unsent(policies, batch, states)
        return states

    async def _conclude_unsent(
        self, policies: Policies, batch: Sequence[Settlement], states: SettledStates
    ) -> None:
        try:
            now = self._store.clock.now()
            await policies.conclude(unsent(batch, states, HOLD_MARGIN_MS), now)
        except StoreUnavailable as exc:
            log.warning("places of unsent messages stay held for a while: %s", exc)


def _first(queued: list[_Queued]) -> tuple[list[_Queued], list[_Queued]]:
    """What makes a batch, and the rest."""
    number = size = 0
    for settlements, _ in queued:
        size += len(settlements)
        number += 1
        if size >= BATCH:
            break
    return queued[:number], queued[number:]


def _answered(taken: list[_Queued], answers: Mapping[int, State | None]) -> list[_Queued]:
    """Call back with the answers there are, by place in the batch; those without one are left."""
    left: list[_Queued] = []
    start = 0
    for settlements, done in taken:
        places = range(start, start + len(settlements))
        start = places.stop
        known = [place for place in places if place in answers]
        if known:
            done([settlements[i - places.start] for i in known], [answers[i] for i in known])
        rest = [one for i, one in zip(places, settlements, strict=True) if i not in answers]
        if rest:
            left.append((rest, done))
    return left
