"""The parts that every step of the store uses."""

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
    Lease,
    Shape,
    lease_item,
    lease_pk,
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
"""Most seconds that a put waits for Redis: the message is already durable."""


class Loaded:
    """A message as read: its record, and the item it was read from."""

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
        self.ends = near.agenda("leases")
        """When open leases end."""
        self.turns = turns
        self.keyed: frozenset[str] = frozenset()
        """Routes known to this process to have a promise per key."""
        self.wakeups = wakeups
        self.clock = clock
        self.near_ms = near_ms
        self.retention = retention
        self.retention_count = retention_count
        self.counts: dict[str, tuple[int, object]] = {}
        """Name → this process's last count and its moment, used while Redis is unavailable."""
        self.exact = exact
        """True: `purge` deletes settled messages to the second."""

    def token(self) -> int:
        """A token for a new lease: never 0, and never issued before."""
        return secrets.randbits(62) + 1

    async def read(self, ids: Iterable[str]) -> dict[str, Loaded]:
        """The existing messages among these ids."""
        items = await self.table.get([message_pk(message_id) for message_id in ids])
        return {pk[2:]: Loaded(item) for pk, item in items.items()}

    async def look(self, ids: Iterable[str]) -> dict[str, Loaded]:
        """As `read`, without payload, headers and timeline: not to be written back."""
        items = await self.table.get([message_pk(message_id) for message_id in ids], SHORT)
        return {pk[2:]: Loaded(item) for pk, item in items.items()}

    async def write(
        self, steps: Sequence[tuple[Loaded, Step[Any]]], now: int
    ) -> list[Message | None]:
        """Write each step if its message is unchanged since it was read: the messages after it.

        None for one that was changed in between. Steps that remove a message go to `remove`.
        """
        moved: list[int] = []
        changes: list[Change] = []
        messages: list[Message] = []
        for loaded, step in steps:
            after = next_record(loaded.record, step)
            if after is None:
                raise ValueError(f"{loaded.message.id}: nothing of it is to be written")
            if after.message.due != loaded.message.due:
                moved.append(after.message.due)
            item = next_item(loaded.item, after, self.shape, self.retention)
            changes.append(Change.between(loaded.item, item))
            messages.append(after.message)
        await self.buckets.ensure(moved, now)
        made = await self.table.change(changes)
        return [message if done else None for message, done in zip(messages, made, strict=True)]

    async def remove(self, loaded: Sequence[Loaded]) -> list[bool]:
        """Remove each of these if it is unchanged since it was read; whether it is gone."""
        gate = asyncio.Semaphore(AT_ONCE)

        async def remove(one: Loaded) -> bool:
            async with gate:
                return await self.table.delete(message_pk(one.message.id), one.item["n"]["N"])

        return await asyncio.gather(*map(remove, loaded))

    def is_near(self, due: int, now: int) -> bool:
        """Whether it is due so soon that its bucket may have been read already."""
        return due <= now + self.near_ms + 2 * self.shape.width

    async def bring(self, messages: Iterable[Message], now: int, *, exact: bool = False) -> None:
        """Add the near messages to Redis and wake their routes. The sweep repeats failures."""
        hints: list[Hint] = []
        waiting: list[Message] = []
        nearest: dict[str, int] = {}
        for message in messages:
            if message.due < nearest.get(message.route, message.due + 1):
                nearest[message.route] = message.due
            if message.route in self.keyed:
                # A message once begun holds back the rest of its key, however late it is due.
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
        """After their leases ended: requeue the waiting messages, and free their keys."""
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
        """Note ids for purge; DynamoDB deletes those that are missed."""
        if self.exact and ids:
            await self.best_effort(self.near.retire(ids, at))

    async def open_lease(self, lease: Lease) -> None:
        """Write a lease's item; what it leases, and when it ends, before anything is leased."""
        ends = self.ends.put({str(lease.token): lease.until})
        await asyncio.gather(self.table.put(lease_item(lease)), self.best_effort(ends))

    async def close_lease(self, token: int) -> None:
        """Delete a lease's item: nothing is under it any more."""
        ends = self.ends.drop([str(token)])
        await asyncio.gather(self.table.delete(lease_pk(token)), self.best_effort(ends))

    async def best_effort(self, work: Awaitable[None]) -> None:
        """Run a step in Redis whose failure only costs time."""
        try:
            async with asyncio.timeout(NEAR_SECONDS):
                await work
        except TimeoutError:
            log.warning("Redis timed out; its index will be repaired by the sweep")
        except PenstockError as exc:
            log.warning("Redis failed, its index will be repaired by the sweep: %s", exc)
