"""SETTLE: end leases in batches; settlements that arrive during one call form the next batch."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeAlias

from penstock.flow.coalesce import Coalescer
from penstock.flow.conclude import committed, sent, unsent
from penstock.flow.decide import HOLD_MARGIN_MS
from penstock.flow.observe import Contact, Observer
from penstock.flow.policies import Policies
from penstock.model.errors import PartlyUnavailable, StoreFailed, StoreUnavailable
from penstock.model.outcome import Settlement
from penstock.model.state import State
from penstock.ports.store import Store
from penstock.time.clock import Alarm

log = logging.getLogger("penstock.settle")

SettledStates: TypeAlias = Sequence[State | None]
"""The state of each; None: its lease was lost."""
_Settlements: TypeAlias = Sequence[Settlement]

BATCH = 1_000
AT_ONCE, MANY = 2, 500
"""Batches under way at once, while so many wait to be settled: with policies a batch is settled in
two steps, and the store need not be idle between them. Few wait for the next batch."""
RETRY_MS = (50, 100, 250, 500, 1_000)


class Settler:
    """Shared by all lanes of a worker. Bounded, because the messages in flight are."""

    def __init__(
        self,
        store: Store,
        observer: Observer,
        contact: Contact,
        policies: Policies | None = None,
    ) -> None:
        self._store = store.messages
        self._clock = store.clock
        self._counted = store.counted
        self._observer = observer
        self._contact = contact
        self._policies = policies
        self._first: Coalescer[_Settlements, SettledStates] = Coalescer(
            self._settle_these, max_items=BATCH, max_calls=AT_ONCE, beside=MANY, weigh=len
        )
        self._again: Coalescer[_Settlements, SettledStates] = Coalescer(
            self._settle_these, max_items=BATCH, weigh=len
        )
        """Settlements that the store did not take: repeated together, apart from new ones."""
        self._unsettled = 0
        """Calls of settle() that wait for the store …"""
        self._late = 0
        """… and settlements that have failed once."""
        self._one_settled = Alarm(store.clock)
        self._give_up_at: int | None = None

    async def settle(self, settlements: _Settlements) -> SettledStates:
        """Settle, waiting until the store has answered; the store reports leases that were lost."""
        if not settlements:
            return ()
        self._unsettled += 1
        try:
            return await self._first.ask_alone(settlements)
        except StoreUnavailable as exc:
            self._late += 1
            try:
                return await self._settle_late(settlements, exc)
            finally:
                self._late -= 1
        finally:
            self._unsettled -= 1
            if self._give_up_at is not None:  # drain() waits
                self._one_settled.ring()

    async def drain(self, deadline: int) -> None:
        """Settle everything; past the deadline leave it to the leases to run out."""
        self._give_up_at = deadline
        while self._unsettled:
            await self._one_settled.wait()

    async def _settle_late(
        self, settlements: _Settlements, failed: StoreUnavailable
    ) -> SettledStates:
        """Repeat unanswered settlements; None for the rest if the store recovers too late."""
        clock = self._clock
        states: dict[int, State | None] = {}
        left = list(range(len(settlements)))
        tries = 0
        while left:
            if isinstance(failed, PartlyUnavailable):
                states |= {left[place]: state for place, state in failed.answers.items()}
                left = [place for place in left if place not in states]
            # The store accepts nothing before a restart of the process, or no time is left to wait.
            if isinstance(failed, StoreFailed) or self._gives_up():
                break
            await clock.sleep_until(clock.now() + RETRY_MS[min(tries, len(RETRY_MS) - 1)])
            tries += 1
            try:
                answers = await self._again.ask([settlements[place] for place in left])
            except StoreUnavailable as exc:
                failed = exc
            else:
                states |= dict(zip(left, answers, strict=True))
                break
        return [states.get(place) for place in range(len(settlements))]

    async def _settle_these(
        self, some: Sequence[_Settlements]
    ) -> Sequence[SettledStates | Exception]:
        """Settle all groups in one call of the store; return each group's states or its failure."""
        batch = [settlement for settlements in some for settlement in settlements]
        ends = accumulate(map(len, some))
        now = self._clock.now()
        try:
            states = await self._settle(batch, now)
        except PartlyUnavailable as exc:
            self._contact.answered(now)
            self._tell(exc)
            return [
                _answered(exc, range(end - len(part), end))
                for part, end in zip(some, ends, strict=True)
            ]
        except StoreUnavailable as exc:
            self._tell(exc)
            raise
        self._contact.answered(now)
        return [states[end - len(part) : end] for part, end in zip(some, ends, strict=True)]

    def _tell(self, exc: StoreUnavailable) -> None:
        if not self._late:
            log.warning("store away, settling is repeated until it answers: %s", exc)

    def _gives_up(self) -> bool:
        return self._give_up_at is not None and self._clock.now() >= self._give_up_at

    async def _settle(self, batch: list[Settlement], now: int) -> SettledStates:
        if self._policies is not None and self._policies.active:
            return await self._settle_counted(self._policies, batch, now)
        with self._observer.asking("settle"):
            return await self._store.settle(batch, now)

    async def _settle_counted(
        self, policies: Policies, batch: list[Settlement], now: int
    ) -> SettledStates:
        """Count and settle in one step, or count first: repeating the count changes nothing."""
        counted = sent(batch)
        try:
            if counted and self._counted is not None:
                with self._observer.asking("settle"):
                    states: SettledStates = await self._counted.settle_counted(batch, counted, now)
            else:
                await policies.conclude(committed(counted), now)
                with self._observer.asking("settle"):
                    states = await self._store.settle(batch, self._clock.now())
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
            now = self._clock.now()
            await policies.conclude(unsent(batch, states, HOLD_MARGIN_MS), now)
        except StoreUnavailable as exc:
            log.warning(
                "cap reservations of undelivered messages were not released, expire in %d min: %s",
                HOLD_MARGIN_MS // 60_000,
                exc,
            )


def _answered(failed: PartlyUnavailable, places: range) -> SettledStates | PartlyUnavailable:
    """The answered settlements at these indexes of a batch."""
    answers = {
        place - places.start: failed.answers[place] for place in places if place in failed.answers
    }
    if len(answers) < len(places):
        return PartlyUnavailable(failed.message, answers)
    return list(answers.values())
