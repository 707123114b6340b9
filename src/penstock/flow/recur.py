"""RECUR: plant the occurrences of recurring rules, in every worker, with no leader.

Put, then advance: occurrences are put as ordinary messages, whose ids are their moments, and then
each row moves on by compare-and-set. A worker that dies between the two leaves a row that another
one plants again, with ids that are known. Of two workers at the same row one moves it on.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from penstock.flow.intake import Intake
from penstock.flow.observe import Observer
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.message import NewMessage
from penstock.model.outcome import Action, Amendment, Receipt
from penstock.model.recurrence import (
    AHEAD_MS,
    Planting,
    RuleRow,
    failed,
    needs_state,
    occurrence,
    occurrence_id,
    plant,
)
from penstock.model.state import SETTLED
from penstock.ports.recurring import RecurringStore, Swap
from penstock.ports.store import Store
from penstock.time.chance import given_or_fresh
from penstock.time.clock import Alarm

log = logging.getLogger("penstock.recurring")

BATCH = 500
"""Rows planted together."""
MAX_PUT = 2_000
"""Approximate number of occurrences per put: rows that have more due are taken again."""
AWAY_MS = 500
"""Between two attempts while the store does not answer."""
AGAIN_MS = 30_000
"""A rule that cannot be planted is tried again after so long."""
STAND_BACK_MS = 200
"""A worker that lost a race for rows waits at most this much longer next time: others plant."""
FRESH_MS = 10_000
"""Rows read longer ago are read again before anything is put by them."""
NEVER = 1 << 62

ServedRoutes = Callable[[], Awaitable[frozenset[str]]]
"""The routes that some process serves."""


@dataclass(slots=True)
class Planted:
    """The counts of one batch of rows."""

    rows: int = 0
    """Rows that were moved on …"""
    lost: int = 0
    """… and rows that another process had changed."""
    failed: int = 0
    """Rows that cannot be planted now."""


class Plant:
    """Puts the occurrences that rows have due, and advances the rows."""

    def __init__(
        self,
        rules: RecurringStore,
        store: Store,
        intake: Intake,
        observer: Observer,
        *,
        routes: AbstractSet[str] | None = None,
        served: ServedRoutes | None = None,
    ) -> None:
        """`routes`: known in this process (None: any). `served`: routes that others serve."""
        self._rules = rules
        self._messages = store.messages
        self._clock = store.clock
        self._intake = intake
        self._observer = observer
        self._routes = routes
        self._served = served

    async def rows(self, rows: Sequence[RuleRow], now: int, *, ahead: int = AHEAD_MS) -> Planted:
        """Plant these, as of `now`. Raises StoreUnavailable; then it is safe to repeat."""
        unsettled = await self._unsettled([row for row in rows if needs_state(row)])
        served = await self._served_of(rows)
        plans: list[Planting] = []
        number = 0
        for row in rows:
            plans.append(self._plan(row, now, row.id in unsettled, served, ahead))
            number += len(plans[-1].moments)
            if number >= MAX_PUT:
                break
        rows = rows[: len(plans)]
        await self._cancel(plans, now)
        if not 0 <= self._clock.now() - now <= FRESH_MS:
            return Planted(lost=len(rows))
        news = [
            (place, occurrence(row, moment))
            for place, (row, plan) in enumerate(zip(rows, plans, strict=True))
            for moment in plan.moments
        ]
        refused = await self._put(news, now)
        after = [
            _refused(row, refused[place], now) if place in refused else plan.row
            for place, (row, plan) in enumerate(zip(rows, plans, strict=True))
        ]
        return await self._advance(rows, after)

    def _plan(
        self,
        row: RuleRow,
        now: int,
        unsettled: bool,
        served: AbstractSet[str] | None,
        ahead: int,
    ) -> Planting:
        if served is not None and row.rule.route not in served:
            error = f"route: nobody serves a route named {row.rule.route!r}"
            return Planting((), failed(row, error, now + AGAIN_MS))
        try:
            return plant(row, now, unsettled=unsettled, ahead=ahead)
        except Exception as exc:
            log.exception(
                "recurring rule %s puts no messages, the next round tries again",
                row.id,
            )
            error = exc.message if isinstance(exc, PenstockError) else repr(exc)
            return Planting((), failed(row, error, now + AGAIN_MS))

    async def _served_of(self, rows: Sequence[RuleRow]) -> AbstractSet[str] | None:
        """The routes that any process serves; others are asked only about an unknown route."""
        if self._routes is None or self._served is None:
            return self._routes
        if all(row.rule.route in self._routes for row in rows):
            return self._routes
        return self._routes | await self._served()

    async def _unsettled(self, rows: Sequence[RuleRow]) -> set[str]:
        """Rules whose occurrence before is still waiting or being sent."""
        if not rows:
            return set()
        found = await self._messages.find([occurrence_id(r.id, r.before or 0) for r in rows])
        return {
            row.id
            for row, message in zip(rows, found, strict=True)
            if message is not None and message.state not in SETTLED
        }

    async def _cancel(self, plans: Sequence[Planting], now: int) -> None:
        """Cancel occurrences that are replaced; one that is being sent is not sent again."""
        amendments = [
            Amendment(action=Action.CANCEL, id=occurrence_id(plan.row.id, plan.cancel))
            for plan in plans
            if plan.cancel is not None
        ]
        if amendments:
            await self._messages.amend(amendments, now)

    async def _put(
        self, news: Sequence[tuple[int, NewMessage]], now: int
    ) -> dict[int, PenstockError]:
        """Put the occurrences; place of a row → why one of its own could not be stored."""
        refused: dict[int, PenstockError] = {}
        outcomes = await self._intake.put([message for _, message in news], now)
        planted: dict[str, int] = {}
        for (place, message), outcome in zip(news, outcomes, strict=True):
            if not isinstance(outcome, Receipt):
                refused[place] = outcome
            elif not outcome.duplicate:
                planted[message.route] = planted.get(message.route, 0) + 1
        for route, number in planted.items():
            self._observer.count("planted", route, number)
        return refused

    async def _advance(self, rows: Sequence[RuleRow], after: Sequence[RuleRow]) -> Planted:
        swaps = [Swap(row.id, row.revision, then) for row, then in zip(rows, after, strict=True)]
        with self._observer.asking("advance"):
            done = await self._rules.swap(swaps)
        counts = Planted()
        for row, then, is_done in zip(rows, after, done, strict=True):
            counts.lost += not is_done
            if not is_done:
                continue
            counts.rows += 1
            route = row.rule.route
            self._observer.count("missed", route, then.missed - row.missed)
            self._observer.count("skipped", route, then.skipped - row.skipped)
            if then.error is not None:
                counts.failed += 1
                if then.error != row.error:
                    log.warning(
                        "recurring rule %s puts no messages, the next round tries again: %s",
                        row.id,
                        then.error,
                    )
        return counts


def _refused(row: RuleRow, why: PenstockError, now: int) -> RuleRow:
    return failed(row, why.message, now + AGAIN_MS)


class Planter:
    """Plants due occurrences until cancelled; sleeps until the nearest moment that it knows."""

    def __init__(
        self,
        rules: RecurringStore,
        store: Store,
        plant: Plant,
        *,
        chance: random.Random | None = None,
    ) -> None:
        self._rules = rules
        self._clock = store.clock
        self._plant = plant
        self._chance = given_or_fresh(chance)
        self._alarm = Alarm(store.clock)
        self._nearer = NEVER
        """The earliest wake of rows written since the last look."""
        self._stand_back = 0
        self.lag = 0
        """Milliseconds that the oldest row waited for this worker when it last looked."""
        rules.listen(self._wake)

    async def run(self) -> None:
        while True:
            try:
                until = await self._look()
            except StoreUnavailable as exc:
                log.warning("store away, recurring rules put no messages until it answers: %s", exc)
                await self._clock.sleep_until(self._clock.now() + AWAY_MS)
            except PenstockError:
                log.exception("recurring rules put no messages, the next round tries again")
                await self._clock.sleep_until(self._clock.now() + AWAY_MS)
            else:
                if until is not None:
                    await self._alarm.wait(min(until, self._nearer))

    async def _look(self) -> int | None:
        """Plant what is due; return when to look again, None: at once."""
        now = self._clock.now()
        self._nearer = NEVER
        due = await self._rules.due(now, BATCH)
        self.lag = max(0, now - (due.rows[0].wake or now)) if due.rows else 0
        if not due.rows:
            return self._next(self._clock.now(), due.next_wake)  # it may have been set back
        planted = await self._plant.rows(due.rows, now)
        if planted.lost:
            self._stand_back = self._chance.randrange(STAND_BACK_MS // 4, STAND_BACK_MS)
            return self._clock.now() + self._stand_back
        self._stand_back = 0
        return None

    def _next(self, now: int, next_wake: int | None) -> int:
        known = NEVER if next_wake is None else next_wake + self._stand_back
        return min(now + self._rules.look_ms, max(known, now + 1))

    def _wake(self, moment: int) -> None:
        self._nearer = min(self._nearer, moment)
        if self._alarm.set_for is not None and moment < self._alarm.set_for:
            self._alarm.ring()
