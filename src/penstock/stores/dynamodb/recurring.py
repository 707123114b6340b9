"""RECURRING: rules are items of the table.

A rule is the item `r:<id>`: `n` its revision, `body` the row as JSON, and while it is to be
planted, its position in the list `rw` by that moment. Rules due soon are also on an agenda in
Redis, which is what planters look at; the list is read only now and then. Beside a rule are two
items without content, which only list it by id: `rn:<id>` for every rule, written before the rule
and removed after it, and `rm:<id>` for one that settings manage. A list may lag a moment behind the
rules and hold ids whose rule is gone: readers of a list read the rules themselves.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any
from zlib import crc32

from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.recurrence import RuleRow, decode_row, encode_row
from penstock.ports.recurring import LOOK_MS, NEWS, DueRules, RuleListener, Swap
from penstock.stores.dynamodb.agenda import AHEAD_MS, HOLD_MS, Agenda
from penstock.stores.dynamodb.gateway import PLANT, line
from penstock.stores.dynamodb.items import Item, list_key
from penstock.stores.dynamodb.near import Near
from penstock.stores.dynamodb.table import LIST, Change, Range, Table
from penstock.time.clock import Clock

log = logging.getLogger("penstock.stores.dynamodb")

SOON_MS = 2 * LOOK_MS
"""Rules due later than this need no wake-up: planters look every `LOOK_MS`."""
RENEWALS = 240
"""Times that rows given to a planter are held back from others once more, if it takes so long."""
DIGITS = 15
"""Digits of a moment in the order of a list."""
_NAMES = list_key("rn", "recurring", 0)
_MANAGED = list_key("rm", "recurring", 0)


class DynamoRecurring:
    """Rules in DynamoDB; Redis has wake-ups, and the due times of rules that are due soon."""

    def __init__(self, table: Table, shards: int, near: Near, agenda: Agenda, clock: Clock) -> None:
        self._table = table
        self._shards = shards
        self._near = near
        self._agenda = agenda
        self._clock = clock
        self._holding: asyncio.Task[None] | None = None
        """Holds the rows that were last given to a planter back from other processes."""
        self._listeners: list[RuleListener] = []
        self._marked: set[str] = set()
        """Rules known to be listed among the managed ones."""

    @property
    def look_ms(self) -> int:
        return LOOK_MS

    async def rules(self, ids: Sequence[str]) -> list[RuleRow | None]:
        found = await self._items(ids)
        return [None if item is None else _row(item) for item in map(found.get, ids)]

    async def swap(self, swaps: Sequence[Swap]) -> list[bool]:
        done = [False] * len(swaps)
        left = list(range(len(swaps)))
        while left:  # in rounds if an id comes several times: statements have no order
            first = {swaps[index].id: index for index in reversed(left)}
            indexes = sorted(first.values())
            with line(PLANT):
                answers = await self._swap([swaps[index] for index in indexes])
            for index, answer in zip(indexes, answers, strict=True):
                done[index] = answer
            left = [index for index in left if index not in indexes]
        written = [swap for swap, is_done in zip(swaps, done, strict=True) if is_done]
        await self._note({swap.id: swap.row for swap in written})
        await self._wake([swap.row for swap in written])
        return done

    async def due(self, now: int, limit: int) -> DueRules:
        """As the port says. Rows given to another process a moment ago are left out, so that
        planters do not do the same work: they come back if it dies."""
        present = self._clock.now()
        if now > present + SOON_MS:  # not to plant them, but to foresee
            return await self._due_by_table(now, limit)
        self.close()
        try:
            taken = await self._agenda.take(now, limit)
            if not taken.known:
                lists = [_wakes(shard) for shard in range(self._shards)]
                await self._agenda.sweep(self._table, lists, present, self._clock)
                taken = await self._agenda.take(now, limit)
        except StoreUnavailable as exc:
            log.debug("Redis is away, due rules are read from the table: %s", exc)
            return await self._due_by_table(now, limit)
        found = dict(zip(taken.ids, await self.rules(taken.ids), strict=True))
        rows = [row for row in found.values() if row is not None and _is_due(row, now)]
        due = {row.id for row in rows}
        wrong = {name: row for name, row in found.items() if name not in due}
        await self._note(wrong)
        rows.sort(key=lambda row: row.wake or 0)
        if rows:
            holding = self._hold(asyncio.current_task())
            self._holding = asyncio.create_task(holding, name="penstock-held-rules")
        if len(taken.ids) >= limit:
            return DueRules(tuple(rows))
        wakes = [row.wake for row in wrong.values() if row is not None and row.wake is not None]
        if taken.next_moment is not None:
            wakes.append(taken.next_moment)
        return DueRules(tuple(rows), min(wakes, default=None))

    def close(self) -> None:
        """Hold no rows back any longer: a planter that asks again has done with those before."""
        if self._holding is not None:
            self._holding.cancel()
            self._holding = None

    async def _hold(self, planter: asyncio.Task[Any] | None) -> None:
        """Hold the rows that were taken back from others until the task that took them ends."""
        for _ in range(RENEWALS):
            await asyncio.sleep(HOLD_MS / 2_000)
            if planter is None or planter.done():
                return
            try:
                if not await self._agenda.hold(self._clock.now() + HOLD_MS):
                    return
            except StoreUnavailable as exc:
                log.debug("Redis is away, other processes may plant the same rules: %s", exc)

    async def _note(self, rows: Mapping[str, RuleRow | None]) -> None:
        """Bring the agenda up to date with these rows; what fails costs time until the sweep."""
        if not rows:
            return
        until = self._clock.now() + AHEAD_MS
        wakes = {name: row.wake for name, row in rows.items() if row is not None}
        soon = {name: wake for name, wake in wakes.items() if wake is not None and wake < until}
        try:
            await self._agenda.put(soon)
            await self._agenda.drop([name for name in rows if name not in soon])
        except StoreUnavailable as exc:
            log.debug("Redis is away, the next sweep puts rules on the agenda: %s", exc)

    async def _due_by_table(self, now: int, limit: int) -> DueRules:
        orders = sorted(
            order
            for part in await asyncio.gather(
                *(self._first(shard, limit + 1) for shard in range(self._shards))
            )
            for order in part
        )
        due = [order for order in orders if _wake_in(order) <= now]
        rows = await self.rules([order[DIGITS + 1 :] for order in due[:limit]])
        found = [row for row in rows if row is not None and row.wake is not None]
        found.sort(key=lambda row: row.wake or 0)
        later = orders[len(due) :]
        return DueRules(
            tuple(row for row in found if (row.wake or 0) <= now),
            _wake_in(later[0]) if later and len(due) < limit else None,
        )

    async def page(self, after: str | None, limit: int) -> list[RuleRow]:
        found: list[RuleRow] = []
        async for items in self._table.pages(Range(LIST, _NAMES, after), limit):
            rows = await self.rules([item["o"]["S"] for item in items])
            found += [row for row in rows if row is not None]
            if len(found) >= limit:
                break
        return found[:limit]

    async def managed(self) -> list[str]:
        found: list[str] = []
        async for items in self._table.pages(Range(LIST, _MANAGED)):
            rows = await self.rules([item["o"]["S"] for item in items])
            found += [row.id for row in rows if row is not None and row.managed]
        return found

    def listen(self, listener: RuleListener) -> None:
        self._listeners.append(listener)

    def heard(self, route: str, wake: int) -> None:
        """Handle a wake-up: a row was written by any process. Wake-ups for routes are ignored."""
        if route == NEWS:
            for listener in self._listeners:
                listener(wake)

    async def _wake(self, rows: Sequence[RuleRow | None]) -> None:
        """Wake other processes if a rule is due before their next look."""
        wakes = [row.wake for row in rows if row is not None and row.wake is not None]
        for wake in wakes:
            self.heard(NEWS, wake)
        if wakes and min(wakes) < self._clock.now() + SOON_MS:
            try:
                await self._near.publish(NEWS, min(wakes))
            except StoreUnavailable as exc:
                log.debug("Redis is away, other processes find rules when they look: %s", exc)

    async def _swap(self, swaps: Sequence[Swap]) -> list[bool]:
        """Swap different rules."""
        made = [swap.row for swap in swaps if swap.expected == 0 and swap.row is not None]
        names = [_place("rn", _NAMES, row.id) for row in made]
        managed = [swap.row for swap in swaps if swap.row is not None and swap.row.managed]
        marked = {row.id for row in managed} - self._marked
        await self._table.insert(names + [_place("rm", _MANAGED, name) for name in sorted(marked)])
        self._marked |= marked
        changed = [swap for swap in swaps if swap.expected and swap.row is not None]
        dropped = [swap for swap in swaps if swap.row is None]
        inserts, changes, drops = await asyncio.gather(
            self._table.insert([self._item(row) for row in made]),
            self._table.change([self._change(swap) for swap in changed]),
            asyncio.gather(*map(self._drop, dropped)),
        )
        for answer in inserts:
            if isinstance(answer, PenstockError):
                raise answer
        done = {row.id: answer is True for row, answer in zip(made, inserts, strict=True)}
        done |= {swap.id: answer for swap, answer in zip(changed, changes, strict=True)}
        done |= {swap.id: answer for swap, answer in zip(dropped, drops, strict=True)}
        return [done[swap.id] for swap in swaps]

    async def _drop(self, swap: Swap) -> bool:
        if swap.id not in await self._items([swap.id]):
            return False
        if not await self._table.delete(f"r:{swap.id}", str(swap.expected)):
            return False
        await asyncio.gather(*(self._table.delete(f"{kind}:{swap.id}") for kind in ("rn", "rm")))
        self._marked.discard(swap.id)
        return True

    async def _first(self, shard: int, number: int) -> list[str]:
        """The first entries of a shard's list by moment."""
        found: list[str] = []
        async for items in self._table.pages(Range(LIST, _wakes(shard)), number):
            found += [item["o"]["S"] for item in items]
            if len(found) >= number:
                break
        return found[:number]

    async def _items(self, ids: Sequence[str]) -> dict[str, Item]:
        found = await self._table.get([f"r:{name}" for name in ids])
        return {pk.removeprefix("r:"): item for pk, item in found.items()}

    def _item(self, row: RuleRow) -> Item:
        item: Item = {
            "pk": {"S": f"r:{row.id}"},
            "n": {"N": str(row.revision)},
            "body": {"S": encode_row(row).decode()},
        }
        if row.wake is not None:
            item["l"] = {"S": _wakes(crc32(row.id.encode()) % self._shards)}
            item["o"] = {"S": f"{row.wake:0{DIGITS}}:{row.id}"}
        return item

    def _change(self, swap: Swap) -> Change:
        assert swap.row is not None, "chosen so"  # noqa: S101 - for the type
        sets = self._item(swap.row)
        removes = () if "o" in sets else ("l", "o")
        return Change(sets.pop("pk")["S"], str(swap.expected), sets, removes)


def _wakes(shard: int) -> str:
    return list_key("rw", "recurring", shard)


def _place(kind: str, of: str, rule_id: str) -> Item:
    return {"pk": {"S": f"{kind}:{rule_id}"}, "l": {"S": of}, "o": {"S": rule_id}}


def _is_due(row: RuleRow, now: int) -> bool:
    return row.wake is not None and row.wake <= now


def _wake_in(order: str) -> int:
    return int(order[:DIGITS])


def _row(item: Item) -> RuleRow:
    return decode_row(item["body"]["S"].encode())
