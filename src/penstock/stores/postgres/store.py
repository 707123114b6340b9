"""A PostgreSQL schema as a store: the lanes, the listener, the clock, the history's partitions."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

from penstock.model.errors import StoreUnavailable
from penstock.model.outcome import Claim
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE
from penstock.ports.recurring import LOOK_MS
from penstock.ports.store import Store
from penstock.stores.postgres import history
from penstock.stores.postgres.address import Address
from penstock.stores.postgres.callers import CallersTransactions
from penstock.stores.postgres.floors import Floors
from penstock.stores.postgres.lane import Lane, Wakes
from penstock.stores.postgres.schema import SCHEMA_VERSION
from penstock.stores.postgres.session import Session
from penstock.stores.postgres.unheard import give_back
from penstock.stores.postgres.wake import News, listen
from penstock.stores.sql.recurring import SqlRecurring
from penstock.stores.sql.store import SqlStore
from penstock.stores.sql.tx import Tx
from penstock.time.clock import Clock, SystemClock
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
        self._unheard: set[int] = set()
        """Tokens of claims whose answer was lost."""
        lane = partial(
            Lane,
            address,
            tokens,
            committed=self._committed,
            news=news,
            floors=self._floors,
            unheard=self._unheard.add,
        )
        self._lane = lane(threads=address.connections)
        self._counters = lane(threads=1, before="lock_counters")
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

    async def claim(
        self, route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE
    ) -> Claim:
        await self._give_back(now)
        return await super().claim(route, limit, lease, now, max_bytes)

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
        return await super().claim_keyed(route, limit, lease, now, per_key, max_bytes)

    async def _give_back(self, now: int) -> None:
        """Make messages of claims whose answer was lost claimable again, at the attempt they
        had.
        """
        if self._unheard:
            tokens = sorted(self._unheard)
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
