"""RECURRING: the verbs for rules: put, get, pause, trigger, backfill, delete."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial

import msgspec

from penstock.flow.intake import Intake
from penstock.flow.recur import Plant
from penstock.model.errors import (
    PenstockError,
    StoreUnavailable,
    UnknownRoute,
    UnknownThing,
    VersionConflict,
)
from penstock.model.forecast import HOUR_MS, HOURS, Forecast
from penstock.model.message import MAX_PAYLOAD
from penstock.model.outcome import Receipt
from penstock.model.recurrence import (
    SECOND,
    Moments,
    Rule,
    RuleRow,
    What,
    backfill,
    backfilled,
    change,
    check_moments,
    check_rule,
    check_rule_id,
    digest,
    noted,
    occurrence,
    overdue,
)
from penstock.model.recurrence_view import (
    Preview,
    RecurringOut,
    RulePage,
    RulePut,
    preview_of,
    recent_ids,
    rule_out,
    rule_put,
)
from penstock.model.times import parse_moment
from penstock.ports.recurring import RecurringStore, Swap
from penstock.ports.store import Store

log = logging.getLogger("penstock.recurring")

ROUNDS = 20
"""Times a change is tried again because the row is another one by now."""
BATCH = 500
FORECAST_RULES = 1_000
"""Rules that a forecast includes, the nearest first …"""
FORECAST_MOMENTS = 100
"""… and moments of each that are counted one by one; the rest are spread evenly."""


@dataclass(frozen=True, slots=True)
class Configured:
    """A rule of the settings."""

    rule: Rule
    managed: bool = False


class Recurring:
    """The one way to change rules, whether the caller is HTTP, gRPC, SDK, CLI or the settings."""

    def __init__(
        self,
        rules: RecurringStore,
        store: Store,
        intake: Intake,
        plant: Plant,
        *,
        routes: AbstractSet[str] | None = None,
        max_payload: int = MAX_PAYLOAD,
    ) -> None:
        """`routes`: those that a rule may name; None: any."""
        self._rules = rules
        self._messages = store.messages
        self._clock = store.clock
        self._intake = intake
        self._plant = plant
        self._routes = routes
        self._max_payload = max_payload

    async def put(
        self,
        rule_id: str,
        rule: Rule,
        *,
        version: int | None = None,
        source: str | None = None,
        managed: bool = False,
    ) -> tuple[RulePut, bool]:
        """Create or change a rule; the flag says whether it was created.

        `version`: change it only at this version (VersionConflict). Occurrences that the previous
        rule has due are planted first: no moment that both rules have is left out or planted twice.
        """
        self.check(rule_id, rule)

        def changed(row: RuleRow | None, now: int) -> RuleRow:
            if source is None and row is not None:  # by an API: whose rule it is stays
                return change(row, rule_id, rule, now, source=row.source, managed=row.managed)
            return change(row, rule_id, rule, now, source=source, managed=managed)

        row, made = await self._change(rule_id, changed, version)
        return rule_put(row, self._clock.now()), made

    def check(self, rule_id: str, rule: Rule) -> None:
        """InvalidMessage names the field that cannot be accepted here."""
        check_rule_id(rule_id)
        check_rule(rule, max_payload=self._max_payload)
        self._check_route(rule.route)

    def _check_route(self, route: str) -> None:
        if self._routes is not None and route not in self._routes:
            raise UnknownRoute(route, tuple(self._routes))

    async def get(self, rule_id: str) -> RecurringOut:
        """The rule, its next moments and the latest ones with their messages."""
        row = await self._row(rule_id)
        found = await self._messages.find(recent_ids(row))
        known = {message.id: message for message in found if message is not None}
        return rule_out(row, self._clock.now(), known)

    async def list(self, after: str | None = None, limit: int = 100) -> RulePage:
        """Rules in the order of their ids; `after` is the `next` of the page before."""
        rows = await self._rules.page(after, limit + 1)
        now = self._clock.now()
        shown = rows[:limit]
        more = shown[-1].id if len(rows) > limit and shown else None
        return RulePage([rule_out(row, now) for row in shown], more)

    async def delete(self, rule_id: str, version: int | None = None) -> None:
        """Delete the rule and keep its messages; UnknownThing if there is none."""
        was_there = False
        for _ in range(ROUNDS):
            (row,) = await self._rules.rules([rule_id])
            if row is None:
                if was_there:  # our own delete, whose answer was lost, or another caller's
                    return
                raise _unknown(rule_id)
            _check_version(rule_id, row, version)
            was_there = True
            if (await self._rules.swap([Swap(rule_id, row.revision, None)]))[0]:
                return
        raise _busy(rule_id)

    async def pause(self, rule_id: str, paused: bool, version: int | None = None) -> RecurringOut:
        """Pause or resume a rule; moments missed while it is paused are not made up for."""
        await self._row(rule_id)

        def changed(row: RuleRow | None, now: int) -> RuleRow:
            if row is None:
                raise _unknown(rule_id)
            rule = msgspec.structs.replace(row.rule, paused=paused)
            return change(row, rule_id, rule, now, source=row.source, managed=row.managed)

        await self._change(rule_id, changed, version)
        return await self.get(rule_id)

    async def trigger(self, rule_id: str) -> str:
        """Put one additional occurrence, due now; return its message's id.

        The id is the second of the call, with milliseconds if that second is a moment of the rule
        or a message has that id.
        """
        row = await self._row(rule_id)
        self._check_route(row.rule.route)
        now = self._clock.now()
        second = now - now % SECOND
        own = [] if Moments(row.rule).has(second) else [second]
        for moment in (*own, *range(now, now + SECOND)):
            message = occurrence(row, moment, now)
            (outcome,) = await self._intake.put([message], now)
            if not isinstance(outcome, Receipt):
                raise outcome
            if not outcome.duplicate:
                await self._note(rule_id, partial(noted, moment=moment, what=What.TRIGGERED))
                return message.id
        raise _busy(rule_id)

    async def backfill(self, rule_id: str, first: str, last: str) -> int:
        """Put every unknown moment from `first` to `last`, due now; return how many there were.

        Both are included, and past. Whatever the rule sets for misfires, expiry counts from now.
        """
        row = await self._row(rule_id)
        self._check_route(row.rule.route)
        now = self._clock.now()
        found = backfill(row, parse_moment(first, "from"), parse_moment(last, "to"), now)
        planted = 0
        for start in range(0, len(found), BATCH):
            some = [occurrence(row, moment, now) for moment in found[start : start + BATCH]]
            for outcome in await self._intake.put(some, now):
                if not isinstance(outcome, Receipt):
                    raise outcome
                planted += not outcome.duplicate
        if found:
            await self._note(rule_id, partial(backfilled, moments=found))
        return planted

    def preview(self, rule: Rule) -> Preview:
        """When such a rule would fire, and its description in words."""
        check_moments(rule)
        return preview_of(rule, self._clock.now())

    async def reconcile(self, configured: Mapping[str, Configured]) -> None:
        """Make the store's rules match those of the settings, without firing a moment twice.

        A rule that is unchanged in the settings stays as it is, also if an API call has changed it
        since. A rule removed from the settings is deleted if it was `managed`.
        """
        for rule_id, one in configured.items():
            self.check(rule_id, one.rule)
        ids = list(configured)
        for start in range(0, len(ids), BATCH):
            some = ids[start : start + BATCH]
            for rule_id, row in zip(some, await self._rules.rules(some), strict=True):
                await self._configure(rule_id, row, configured[rule_id])
        for rule_id in await self._rules.managed():
            if rule_id not in configured:
                log.info("recurring rule %s is no longer in the settings: deleted", rule_id)
                await self._forget(rule_id)

    async def configure(self, rule_id: str, one: Configured) -> None:
        """Put one rule of a program's own, by the same steps as `reconcile`."""
        self.check(rule_id, one.rule)
        (row,) = await self._rules.rules([rule_id])
        await self._configure(rule_id, row, one)

    async def _configure(self, rule_id: str, row: RuleRow | None, one: Configured) -> None:
        mark = digest(one.rule)
        if row is None or (row.source, row.managed) != (mark, one.managed):
            await self.put(rule_id, one.rule, source=mark, managed=one.managed)

    async def add_to(self, forecast: Forecast) -> None:
        """Add the moments that are not planted yet to a forecast."""
        end = forecast.first_hour + HOURS * HOUR_MS
        due = await self._rules.due(end, FORECAST_RULES)
        for row in due.rows:
            _foresee(row, forecast, end)
        if len(due.rows) == FORECAST_RULES:
            forecast.exact = False

    async def _forget(self, rule_id: str) -> None:
        try:
            await self.delete(rule_id)
        except UnknownThing:
            return  # another process has just done it

    async def _row(self, rule_id: str) -> RuleRow:
        (row,) = await self._rules.rules([rule_id])
        if row is None:
            raise _unknown(rule_id)
        return row

    async def _change(
        self,
        rule_id: str,
        changed: Callable[[RuleRow | None, int], RuleRow],
        version: int | None,
    ) -> tuple[RuleRow, bool]:
        """Read, plant due occurrences, change, write; start over if another writer was faster."""
        for _ in range(ROUNDS):
            (row,) = await self._rules.rules([rule_id])
            _check_version(rule_id, row, version)
            now = self._clock.now()
            if row is not None and row.error is None and overdue(row, now):
                await self._plant.rows([row], now, ahead=0)
                continue
            then = changed(row, now)
            if then is row:
                return then, False
            expected = 0 if row is None else row.revision
            if (await self._rules.swap([Swap(rule_id, expected, then)]))[0]:
                return then, row is None
        raise _busy(rule_id)

    async def _note(self, rule_id: str, after: Callable[[RuleRow], RuleRow]) -> None:
        """Show moments among the rule's latest; their messages exist even if this write fails."""
        for _ in range(ROUNDS):
            (row,) = await self._rules.rules([rule_id])
            if row is None:
                return
            if (await self._rules.swap([Swap(rule_id, row.revision, after(row))]))[0]:
                return


def _foresee(row: RuleRow, forecast: Forecast, end: int) -> None:
    found = Moments(row.rule)
    left = None if row.rule.limit is None else row.rule.limit - row.planted
    number = 0
    moment = row.cursor
    for moment in found.after(max(row.cursor, forecast.now)):
        if moment >= end or number in (left, FORECAST_MOMENTS):
            break
        forecast.add(row.rule.route, moment, 1)
        number += 1
    if number == FORECAST_MOMENTS and number != left:
        rest = found.count(moment - 1, end - 1)
        rest = rest if left is None else min(rest, left - number)
        forecast.spread(row.rule.route, moment, end, rest)


def _check_version(rule_id: str, row: RuleRow | None, version: int | None) -> None:
    """A rule that is not there has version 0."""
    there = 0 if row is None else row.version
    if version is not None and there != version:
        raise VersionConflict(rule_id, there, kind="rule")


def _unknown(rule_id: str) -> PenstockError:
    return UnknownThing(f"no recurring rule named {rule_id[:100]!r}", field="id")


def _busy(rule_id: str) -> PenstockError:
    return StoreUnavailable(f"recurring rule {rule_id!r} changes too fast; try again")
