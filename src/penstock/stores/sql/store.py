"""The store as the flow sees it: each method of the ports is a step that a runner takes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from penstock.model.decision import Subject
from penstock.model.fleet import Heartbeat
from penstock.model.forecast import Forecast
from penstock.model.message import Event, Message, NewMessage
from penstock.model.outcome import Amended, Amendment, Claim, Reaped, Receipt, Settlement
from penstock.model.query import Cursor, Filter, Page, StoreFigures
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE
from penstock.model.state import State
from penstock.ports.fleet import DeadLetter
from penstock.ports.rooms import OpenRooms, StoreCalls
from penstock.ports.store import WakeListener
from penstock.stores.sql import messages as steps
from penstock.stores.sql import search, turns
from penstock.stores.sql.policies import SqlPolicies
from penstock.stores.sql.rooms import SqlRooms
from penstock.stores.sql.tx import Runner, Tx
from penstock.time.clock import Clock, reached

T = TypeVar("T")

PUT_ROWS = 500
"""Messages of one put in one transaction."""


class SqlStore(ABC):
    """Messages, policies and rooms in the tables of schema.sql."""

    def __init__(
        self,
        runner: Runner,
        clock: Clock,
        *,
        retention: int,
        retention_count: int,
        counting: Runner | None = None,
    ) -> None:
        """`counting` runs the steps that read and write counters, one after the other; None: the
        runner takes them with all others.
        """
        self._runner = runner
        self._counting = counting or runner
        self._clock = clock
        self._retention = retention
        self._retention_count = retention_count
        self._listeners: list[WakeListener] = []
        self.policies = SqlPolicies(self._counting)
        self._turns: dict[str, KeyLimit] = {}
        """Routes known to keep turns, with their limits."""

    @property
    def clock(self) -> Clock:
        return self._clock

    @abstractmethod
    def read(self, work: Callable[[Any], T]) -> Awaitable[T]:
        """A long read of one moment's state, away from the path of messages."""

    @abstractmethod
    def claimed(self, route: str, claim: Claim, now: int) -> None:
        """Learn from a claim when something of the route is due next."""

    # --- messages ---

    async def put(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        if len(messages) <= PUT_ROWS:
            return await self._put(messages, now) if messages else []
        # A batch of any length, in transactions of a bounded one: puts are safe to repeat.
        parts = [messages[i : i + PUT_ROWS] for i in range(0, len(messages), PUT_ROWS)]
        done = await asyncio.gather(*(self._put(part, now) for part in parts))
        return [receipt for receipts in done for receipt in receipts]

    def _put(self, messages: Sequence[NewMessage], now: int) -> Awaitable[list[Receipt]]:
        return self._runner.submit(lambda tx: steps.put(tx, messages, now), rows=len(messages))

    async def claim(
        self, route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE
    ) -> Claim:
        claim = await self._runner.submit(
            lambda tx: steps.claim(tx, route, limit, lease, reached(now, self._clock), max_bytes),
            rows=0,
            durable=False,
        )
        self.claimed(route, claim, now)
        return claim

    async def claim_keyed(
        self,
        route: str,
        limit: int,
        lease: int,
        now: int,
        per_key: KeyLimit,
        max_bytes: int = ANY_SIZE,
    ) -> Claim:
        def work(tx: Tx) -> Claim:
            if self._turns.get(route) != per_key:
                turns.prepare(tx, route, per_key)
            at = reached(now, self._clock)
            return turns.claim(tx, route, limit, lease, at, per_key, max_bytes)

        claim = await self._runner.submit(work, rows=0, durable=False)
        self._turns[route] = per_key
        self.claimed(route, claim, now)
        return claim

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        if not settlements:
            return []
        return await self._runner.submit(
            lambda tx: steps.settle(tx, settlements, now), rows=len(settlements), durable=False
        )

    async def settle_counted(
        self, settlements: Sequence[Settlement], sent: Sequence[Subject], now: int
    ) -> list[State | None]:
        def work(tx: Tx) -> list[State | None]:
            self.policies.count_within(tx, sent, now)
            return steps.settle(tx, settlements, now)

        return await self._counting.submit(work, rows=len(settlements), durable=False)

    async def extend(self, tokens: Sequence[int], until: int) -> None:
        if tokens:
            await self._runner.submit(
                lambda tx: steps.extend(tx, tokens, until), rows=len(tokens), durable=False
            )

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        return await self._runner.submit(
            lambda tx: steps.reap(tx, reached(now, self._clock), limit), durable=False
        )

    async def amend(self, amendments: Sequence[Amendment], now: int) -> list[Amended]:
        if not amendments:
            return []
        return await self._runner.submit(
            lambda tx: steps.amend(tx, amendments, now), rows=len(amendments)
        )

    async def erasures(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
        writes = bool(add or remove)
        return await self._runner.submit(lambda tx: steps.erasures(tx, add, remove), writes=writes)

    async def find(self, ids: Sequence[str]) -> list[Message | None]:
        return await self._runner.submit(lambda tx: steps.find(tx, ids), writes=False)

    async def get(self, message_id: str) -> tuple[Message, list[Event]] | None:
        return await self._runner.submit(lambda tx: steps.get(tx, message_id), writes=False)

    async def purge(self, now: int, limit: int) -> int:
        def work(tx: Tx) -> int:
            at = reached(now, self._clock)
            self.policies.forget_within(tx, at, limit)
            return self.purge_within(tx, at, limit)

        return await self._counting.submit(work, durable=False)

    def purge_within(self, tx: Tx, now: int, limit: int) -> int:
        """Forget settled messages, as a part of a transaction."""
        return steps.purge(tx, now, limit, self._retention, self._retention_count)

    async def pause(self, route: str, paused: bool) -> None:
        await self._runner.submit(lambda tx: steps.pause(tx, route, paused))

    async def paused(self) -> frozenset[str]:
        return await self._runner.submit(steps.paused_routes, writes=False)

    def listen(self, listener: WakeListener) -> None:
        self._listeners.append(listener)

    # --- long reads and the fleet ---

    async def search(self, where: Filter, after: Cursor | None, limit: int) -> Page:
        return await self.read(lambda tx: search.search(tx, where, after, limit))

    async def figures(self, now: int) -> StoreFigures:
        return await self.read(lambda tx: search.figures(tx, now))

    async def forecast(self, now: int) -> Forecast:
        return await self.read(lambda tx: search.forecast(tx, now))

    async def dead_letters(self, route: str | None, limit: int) -> list[DeadLetter]:
        return await self.read(lambda tx: search.dead_letters(tx, route, limit))

    async def beat(self, heartbeat: Heartbeat) -> None:
        await self._runner.submit(lambda tx: search.beat(tx, heartbeat), durable=False)

    async def heartbeats(self) -> list[Heartbeat]:
        return await self._runner.submit(search.heartbeats, writes=False, durable=False)

    async def forget_heartbeats(self, before: int) -> None:
        await self._runner.submit(lambda tx: search.forget_heartbeats(tx, before), durable=False)

    # --- rooms ---

    async def open_rooms(
        self, capacity: int, consumer: str, *, serves_all: bool = False, signs: str = ""
    ) -> OpenRooms:
        """Waiting rooms in the same database."""
        # A room exists only if it was PUT here, and no other program consumes its entries.
        del capacity, consumer, serves_all, signs

        async def close() -> None:
            """Does nothing: the rooms use the store's own connections."""

        rooms = SqlRooms(self._runner, self._clock)
        return OpenRooms(rooms, None, close, away=lambda: False, figures=StoreCalls)
