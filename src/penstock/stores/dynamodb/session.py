"""What every step of the store works with."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Iterable, Sequence
from typing import Any

from penstock.model.errors import PenstockError
from penstock.model.lifecycle import Step, has_begun
from penstock.model.message import Message
from penstock.model.state import State
from penstock.redis_kit.wake import Wakeups
from penstock.stores.dynamodb.buckets import Buckets
from penstock.stores.dynamodb.items import (
    SHORT,
    Item,
    Shape,
    message_pk,
    next_item,
    next_record,
    to_record,
)
from penstock.stores.dynamodb.near import Hint, Near
from penstock.stores.dynamodb.near_turns import NearTurns, Over
from penstock.stores.dynamodb.table import Change, Table
from penstock.time.clock import Clock

log = logging.getLogger("penstock.stores.dynamodb")

AT_ONCE = 16
"""Messages deleted at the same time."""
NEAR_SECONDS = 1.5
"""How long a put waits for Redis at most: the message is safe already."""


class Held:
    """A message as it was read: the record, and the item it was read from."""

    __slots__ = ("item", "record")

    def __init__(self, item: Item) -> None:
        self.item = item
        self.record = to_record(item)

    @property
    def message(self) -> Message:
        return self.record.message


class Session:
    """The open store: its table, its near future, its wake-ups."""

    def __init__(
        self,
        table: Table,
        buckets: Buckets,
        shape: Shape,
        near: Near,
        turns: NearTurns,
        wakeups: Wakeups,
        clock: Clock,
        *,
        near_ms: int,
        exact: bool,
        retention: int,
        retention_count: int,
    ) -> None:
        self.table = table
        self.buckets = buckets
        self.shape = shape
        self.near = near
        self.turns = turns
        self.keyed: frozenset[str] = frozenset()
        """Routes that promise something per key, as far as is known here."""
        self.wakeups = wakeups
        self.clock = clock
        self.near_ms = near_ms
        self.retention = retention
        self.retention_count = retention_count
        self.counts: dict[str, tuple[int, object]] = {}
        """Name → when this process last counted it, and what it found: for when Redis is away."""
        self.exact = exact
        """Settled messages are forgotten to the second, by `purge`."""

    def token(self) -> int:
        """A lease's: never 0, and never one that was given out before."""
        return secrets.randbits(62) + 1

    async def read(self, ids: Iterable[str]) -> dict[str, Held]:
        """The messages that are there, by id."""
        items = await self.table.get([message_pk(message_id) for message_id in ids])
        return {pk[2:]: Held(item) for pk, item in items.items()}

    async def look(self, ids: Iterable[str]) -> dict[str, Held]:
        """The same without payload, headers and timeline: to be looked at and not changed."""
        items = await self.table.get([message_pk(message_id) for message_id in ids], SHORT)
        return {pk[2:]: Held(item) for pk, item in items.items()}

    async def write(
        self, steps: Sequence[tuple[Held, Step[Any]]], now: int
    ) -> list[Message | None]:
        """Write each step if the message still is what it was read as: the message after it.

        None: somebody changed it in between. Steps that keep nothing are for `remove`.
        """
        moved: list[int] = []
        changes: list[Change] = []
        messages: list[Message] = []
        for held, step in steps:
            after = next_record(held.record, step)
            if after is None:
                raise ValueError(f"{held.message.id}: nothing of it is to be written")
            if after.message.due != held.message.due:
                moved.append(after.message.due)
            item = next_item(held.item, after, self.shape, self.retention)
            changes.append(Change.between(held.item, item))
            messages.append(after.message)
        await self.buckets.ensure(moved, now)
        made = await self.table.change(changes)
        return [message if done else None for message, done in zip(messages, made, strict=True)]

    async def remove(self, held: Sequence[Held]) -> list[bool]:
        """Keep nothing of these if each still is what it was read as; whether it is gone."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def remove(one: Held) -> bool:
            async with gate:
                return await self.table.delete(message_pk(one.message.id), one.item["n"]["N"])

        return await asyncio.gather(*map(remove, held))

    def is_near(self, due: int, now: int) -> bool:
        """Due so soon that its bucket may have been brought in already."""
        return due <= now + self.near_ms + 2 * self.shape.width

    async def bring(self, messages: Iterable[Message], now: int, *, exact: bool = False) -> None:
        """Put what is near into Redis and wake its routes. What fails, the sweep mends."""
        hints: list[Hint] = []
        waiting: list[Message] = []
        nearest: dict[str, int] = {}
        for message in messages:
            if message.due < nearest.get(message.route, message.due + 1):
                nearest[message.route] = message.due
            if message.route in self.keyed:
                # What was begun holds back the rest of its key, however far away it is.
                if self.is_near(message.due, now) or has_begun(message):
                    waiting.append(message)
            elif self.is_near(message.due, now):
                hints.append(Hint.of(message))
        await self.best_effort(self._add(hints, exact=exact))
        if waiting:
            await self.best_effort(self.turns.line_up(waiting))
        for route, due in nearest.items():
            self.wakeups.tell(route, due)

    async def _add(self, hints: Sequence[Hint], *, exact: bool) -> None:
        if hints:
            await self.near.add(hints, exact=exact)

    async def drop(self, messages: Sequence[Message]) -> None:
        if plain := [message for message in messages if message.route not in self.keyed]:
            await self.best_effort(self.near.drop(plain))
        if keyed := [message for message in messages if message.route in self.keyed]:
            await self.best_effort(self.turns.step_out(keyed))

    async def bring_back(self, messages: Sequence[Message], now: int, *, exact: bool) -> None:
        """Their leases are over: those that wait come back, and their keys are free."""
        keyed = [message for message in messages if message.route in self.keyed]
        waiting = [
            message
            for message in messages
            if message.state is State.SCHEDULED and message.route not in self.keyed
        ]
        if waiting:
            await self.bring(waiting, now, exact=exact)
        by_route: dict[str, list[Over]] = {}
        for message in keyed:
            over = Over.of(message)
            if not (self.is_near(message.due, now) or has_begun(message)):
                over = over._replace(entry=b"")
            by_route.setdefault(message.route, []).append(over)
        for route, ended in by_route.items():
            await self.best_effort(self.turns.free(route, ended))
            self.wakeups.tell(route, now)

    async def retire(self, ids: Sequence[str], at: int) -> None:
        """So that purge finds them; those it does not find, DynamoDB deletes by itself."""
        if self.exact and ids:
            await self.best_effort(self.near.retire(ids, at))

    async def best_effort(self, work: Awaitable[None]) -> None:
        """A step in Redis whose failure costs time and nothing else."""
        try:
            async with asyncio.timeout(NEAR_SECONDS):
                await work
        except TimeoutError:
            log.warning("Redis timed out; its index will be repaired by the sweep")
        except PenstockError as exc:
            log.warning("Redis failed, its index will be repaired by the sweep: %s", exc)
