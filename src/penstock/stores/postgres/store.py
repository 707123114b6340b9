"""A PostgreSQL schema as a store: the lanes, the listener, the clock, the history's partitions."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, TypeVar

from penstock.model.decision import Subject
from penstock.model.errors import StoreUnavailable
from penstock.model.message import Message, NewMessage, OnConflict
from penstock.model.outcome import Amended, Amendment, Claim, Reaped, Receipt, Settlement
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE
from penstock.model.state import State
from penstock.ports.recurring import LOOK_MS
from penstock.ports.store import Store
from penstock.stores.postgres import history
from penstock.stores.postgres.address import Address
from penstock.stores.postgres.batches import Batches, PlainWay
from penstock.stores.postgres.callers import CallersTransactions
from penstock.stores.postgres.calls import Calls
from penstock.stores.postgres.floors import Floors
from penstock.stores.postgres.lane import Lane, Wakes
from penstock.stores.postgres.schema import SCHEMA_VERSION
from penstock.stores.postgres.session import Session
from penstock.stores.postgres.turn_locks import TurnLocks, locking
from penstock.stores.postgres.unheard import give_back
from penstock.stores.postgres.wake import News, listen
from penstock.stores.sql.recurring import SqlRecurring
from penstock.stores.sql.store import SqlStore
from penstock.stores.sql.tx import Tx
from penstock.time.clock import Clock, SystemClock, reached
from penstock.time.server_clock import ServerClock

log = logging.getLogger("penstock.stores.postgres")

T = TypeVar("T")
_TOKEN_BITS = 32


class PostgresStore(SqlStore):
    """Messages in one schema of a PostgreSQL database. Made by `open_store`."""

    def __init__(
        self,
        address: Address,
        epoch: int,
        clock: Clock | None,
        *,
        retention: int,
        retention_count: int,
    ) -> None:
        self._address = address
        tokens = itertools.count((epoch << _TOKEN_BITS) + 1)
        news = News(address, epoch).send
        self._floors = Floors()
        self._turn_locks = TurnLocks()
        self._unheard: set[int] = set()
        """Tokens of claims whose answer was lost."""
        lane = partial(
            Lane,
            address,
            tokens,
            committed=self._committed,
            news=news,
            floors=self._floors,
            turn_locks=self._turn_locks,
            unheard=self._unheard.add,
        )
        self._lane = lane(threads=address.connections)
        self._counters = lane(threads=1, before="lock_counters")
        self._calls = Calls(address, max(1, address.connections // 2))
        self._batches = Batches(self._calls, address, tokens, self._floors, self._unheard.add)
        super().__init__(
            self._lane,
            clock or ServerClock(self.server_time),
            retention=retention,
            retention_count=retention_count,
            counting=self._counters,
        )
        self._epoch = epoch
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Measure the server's clock, listen, and create partitions for settled messages."""
        if isinstance(self._clock, ServerClock):
            await self._clock.measure()
            self._tasks.append(asyncio.create_task(self._clock.keep()))
        self._tasks.append(asyncio.create_task(listen(self._address, self._epoch, self._heard)))
        await self._keep_partitions()

    @property
    def name(self) -> str:
        return self._address.name

    def as_store(self) -> Store:
        """The parts of this store."""
        recurring = SqlRecurring(self._lane, LOOK_MS)
        self.listen(recurring.heard)
        return Store(
            messages=self,
            policies=self.policies,
            rooms=self,
            recurring=recurring,
            fleet=self,
            forecasting=self,
            dead=self,
            keyed=self,
            counted=self,
            transactions=CallersTransactions(self._address.schema),
            health_name="postgresql",
        )

    async def server_time(self) -> float:
        (now,) = await self._lane.look(lambda tx: tx.one("server_time"))
        return float(now)

    def read(self, work: Callable[[Any], T]) -> Awaitable[T]:
        return self._lane.look(work)

    def _put(self, messages: Sequence[NewMessage], now: int) -> Awaitable[list[Receipt]]:
        turns = self._turn_locks.of(one.route for one in messages)
        replacing = [one.id for one in messages if one.on_conflict is not OnConflict.KEEP]
        if replacing:  # what they replace may have another route
            turns = self._turn_locks.found("routes_of_ids", {"ids": replacing}, turns.routes)
        with locking(turns):
            return super()._put(messages, now)

    def _locking(self, messages: Iterable[Message]) -> AbstractContextManager[None]:
        return locking(self._turn_locks.of(message.route for message in messages))

    async def claim(
        self, route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE
    ) -> Claim:
        await self._give_back(now)
        try:
            at = reached(now, self._clock)
            return await self._batches.claim(route, limit, lease, at, max_bytes)
        except PlainWay:
            await self._give_back(now)
            with locking(self._turn_locks.of([route])):
                return await super().claim(route, limit, lease, now, max_bytes)

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        if not settlements or any(one.state is not State.DELIVERED for one in settlements):
            return await self._settle(settlements, now)
        try:
            return await self._batches.deliver(settlements, now)
        except PlainWay:
            return await self._settle(settlements, now)

    async def _settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        with self._locking(one.message for one in settlements):
            return await super().settle(settlements, now)

    async def settle_counted(
        self, settlements: Sequence[Settlement], sent: Sequence[Subject], now: int
    ) -> list[State | None]:
        with self._locking(one.message for one in settlements):
            return await super().settle_counted(settlements, sent, now)

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        with locking(self._turn_locks.found("routes_of_ended", {"now": now})):
            return await super().reap(now, limit)

    async def amend(self, amendments: Sequence[Amendment], now: int) -> list[Amended]:
        ids = [one.id for one in amendments]
        with locking(self._turn_locks.found("routes_of_ids", {"ids": ids})):
            return await super().amend(amendments, now)

    async def claim_keyed(
        self,
        route: str,
        limit: int,
        lease: int,
        now: int,
        per_key: KeyLimit,
        max_bytes: int = ANY_SIZE,
    ) -> Claim:
        await self._give_back(now)
        self._turn_locks.learn([route])
        with locking(self._turn_locks.of([route])):
            return await super().claim_keyed(route, limit, lease, now, per_key, max_bytes)

    async def _give_back(self, now: int) -> None:
        """Make messages of claims whose answer was lost claimable again, at the attempt they
        had.
        """
        if self._unheard:
            tokens = sorted(self._unheard)
            with locking(self._turn_locks.found("routes_of_tokens", {"tokens": tokens})):
                await self._lane.submit(lambda tx: give_back(tx, tokens, now), rows=len(tokens))
            self._unheard.difference_update(tokens)

    def claimed(self, route: str, claim: Claim, now: int) -> None:
        """Does nothing: the server wakes the lanes that wait for a route."""

    def purge_within(self, tx: Tx, now: int, limit: int) -> int:
        return history.purge(tx, now, limit, self._retention, self._retention_count)

    async def purge(self, now: int, limit: int) -> int:
        purged = await super().purge(now, limit)
        await self._keep_partitions()
        return purged

    async def _keep_partitions(self) -> None:
        try:
            await self._lane.submit(history.keep_partitions)
        except StoreUnavailable as exc:  # a reader of history delays it: there is time
            log.debug("partitions of history are left as they are: %s", exc)

    async def check(self) -> dict[str, str]:
        """Facts for health; queries the server, so that one that does not answer is reported."""
        version = await self._lane.look(_schema_version)
        return {"store": self.name, "schema_version": version or str(SCHEMA_VERSION)}

    async def close(self) -> None:
        """Finish what was requested, then close the connections; closing twice is harmless."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._calls.close()
        await self._lane.close()
        await self._counters.close()
        if isinstance(self._clock, SystemClock):
            self._clock.close()

    def _committed(self, wakes: Wakes) -> None:
        for route, due in wakes.items():
            self._heard(route, due)

    def _heard(self, route: str, due: int) -> None:
        """Other processes, or this one, brought something that is due then."""
        self._floors.lower([(route, due)])
        for listener in self._listeners:
            listener(route, due)


def _schema_version(tx: Session) -> str | None:
    row = tx.one("meta", ("schema_version",))
    return None if row is None else str(row[0])
