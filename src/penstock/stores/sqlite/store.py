"""The store as the flow sees it: the port's methods, each a piece of work for the group commit."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from penstock.model.decision import Subject
from penstock.model.errors import StoreCorrupt, StoreFailed
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
from penstock.ports.store import Store, WakeListener
from penstock.stores.sqlite import amend as amends
from penstock.stores.sqlite import fleet, health, recall, search, turns
from penstock.stores.sqlite import lease as leases
from penstock.stores.sqlite import put as puts
from penstock.stores.sqlite import settle as settles
from penstock.stores.sqlite.address import Address
from penstock.stores.sqlite.disk import Disk
from penstock.stores.sqlite.failure import FailedFsync, abandon, mark_unsynced
from penstock.stores.sqlite.group import NOTHING_STORED, PUT_ROWS, GroupCommit, Wakes
from penstock.stores.sqlite.policies import SqlitePolicies
from penstock.stores.sqlite.reader import Reader
from penstock.stores.sqlite.rooms import SqliteRooms
from penstock.stores.sqlite.schema import SCHEMA_VERSION, SchemaWatch, connect
from penstock.stores.sqlite.session import Session
from penstock.stores.sqlite.wal import Checkpoints
from penstock.time.clock import Clock, SystemClock, reached

T = TypeVar("T")

SOON_MS = 50
"""What is due within this time could be late if the loop waited for the disk."""
LOST_MS = 1_000
"""What was due so long ago is not claimed here any more."""


class SqliteStore:
    """Messages in one SQLite file, or in memory. Made by `open_store`."""

    def __init__(
        self,
        address: Address,
        session: Session,
        clock: Clock,
        *,
        retention: int,
        retention_count: int,
    ) -> None:
        self._address = address
        self._session = session
        self._clock = clock
        self._retention = retention
        self._retention_count = retention_count
        self._listeners: list[WakeListener] = []
        self._disk = None
        if address.path is not None and address.synchronous == "full":
            self._disk = Disk(address.path)
        self._group = GroupCommit(
            session,
            self.name,
            thread=address.writer == "thread",
            committed=self._committed,
            disk=self._disk,
            busy=self._is_something_due,
            check=None if address.path is None else SchemaWatch(address.name),
            failed=self._fail,
        )
        self._failure: StoreFailed | None = None
        self._has_failed = asyncio.Event()
        self._next: dict[str, int] = {}
        """Route → when something is due that was not claimed, as far as is known."""
        self.policies = SqlitePolicies(self._group)
        self._turns: dict[str, KeyLimit] = {}
        """Routes whose turns are known to be kept."""
        self._written_at = -health.WRITE_MS
        """When a write was last seen to work."""
        self._checkpoints: Checkpoints | None = None
        if address.path is not None:
            self._checkpoints = Checkpoints(
                session.connection,
                address.path,
                partial(connect, address),
                self._group.between,
                self._group.sync_failed,
            )
        self._reader = None if address.path is None else Reader(address)

    @property
    def name(self) -> str:
        return self._address.name

    @property
    def clock(self) -> Clock:
        return self._clock

    def as_store(self) -> Store:
        """Everything this store can."""
        path = self._address.path
        return Store(
            messages=self,
            policies=self.policies,
            rooms=self,
            fleet=self,
            forecasting=self,
            dead=self,
            keyed=self,
            counted=self,
            self_check=self,
            may_fail=self,
            warnings=() if path is None else health.warnings_of(path.absolute()),
        )

    async def put(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        if len(messages) <= PUT_ROWS:
            return await self._put(messages, now) if messages else []
        # A batch of any length, in transactions of a bounded one: puts are safe to repeat.
        parts = [messages[i : i + PUT_ROWS] for i in range(0, len(messages), PUT_ROWS)]
        done = await asyncio.gather(*(self._put(part, now) for part in parts))
        return [receipt for receipts in done for receipt in receipts]

    def _put(self, messages: Sequence[NewMessage], now: int) -> asyncio.Future[list[Receipt]]:
        return self._group.submit(lambda s: puts.put(s, messages, now), rows=len(messages))

    async def claim(
        self, route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE
    ) -> Claim:
        claim = await self._group.submit(
            lambda s: leases.claim(s, route, limit, lease, reached(now, self._clock), max_bytes),
            rows=0,
            durable=False,
        )
        self._learn(route, claim, now)
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
        def work(session: Session) -> Claim:
            if self._turns.get(route) != per_key:
                turns.prepare(session, route, per_key)
            at = reached(now, self._clock)
            return turns.claim(session, route, limit, lease, at, per_key, max_bytes)

        claim = await self._group.submit(work, rows=0, durable=False)
        self._turns[route] = per_key
        self._learn(route, claim, now)
        return claim

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        if not settlements:
            return []
        return await self._group.submit(
            lambda s: settles.settle(s, settlements, now), rows=len(settlements), durable=False
        )

    async def settle_counted(
        self, settlements: Sequence[Settlement], sent: Sequence[Subject], now: int
    ) -> list[State | None]:
        def work(session: Session) -> list[State | None]:
            self.policies.count_within(session, sent, now)
            return settles.settle(session, settlements, now)

        return await self._group.submit(work, rows=len(settlements), durable=False)

    async def extend(self, tokens: Sequence[int], until: int) -> None:
        if tokens:
            await self._group.submit(
                lambda s: leases.extend(s, tokens, until), rows=len(tokens), durable=False
            )

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        return await self._group.submit(
            lambda s: leases.reap(s, reached(now, self._clock), limit), durable=False
        )

    async def amend(self, amendments: Sequence[Amendment], now: int) -> list[Amended]:
        if not amendments:
            return []
        return await self._group.submit(
            lambda s: amends.amend(s, amendments, now), rows=len(amendments)
        )

    async def erasures(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
        writes = bool(add or remove)
        return await self._group.submit(lambda s: recall.erasures(s, add, remove), writes=writes)

    async def find(self, ids: Sequence[str]) -> list[Message | None]:
        return await self._group.submit(lambda s: recall.find(s, ids), writes=False)

    async def timeline(self, message_id: str) -> list[Event]:
        return await self._group.submit(lambda s: recall.timeline(s, message_id), writes=False)

    async def search(self, where: Filter, after: Cursor | None, limit: int) -> Page:
        return await self._read(lambda c: search.search(c, where, after, limit))

    async def purge(self, now: int, limit: int) -> int:
        def work(session: Session) -> int:
            at = reached(now, self._clock)
            self.policies.forget_within(session, at, limit)
            return recall.purge(session, at, limit, self._retention, self._retention_count)

        return await self._group.submit(work, durable=False)

    async def figures(self, now: int) -> StoreFigures:
        return await self._read(lambda c: search.figures(c, now))

    async def forecast(self, now: int) -> Forecast:
        return await self._read(lambda c: fleet.forecast(c, now))

    async def dead_letters(self, route: str | None, limit: int) -> list[DeadLetter]:
        return await self._read(lambda c: fleet.dead_letters(c, route, limit))

    async def beat(self, heartbeat: Heartbeat) -> None:
        await self._group.submit(lambda s: fleet.beat(s, heartbeat), durable=False)

    async def heartbeats(self) -> list[Heartbeat]:
        return await self._group.submit(fleet.heartbeats, writes=False, durable=False)

    async def forget_heartbeats(self, before: int) -> None:
        await self._group.submit(lambda s: fleet.forget(s, before), durable=False)

    async def pause(self, route: str, paused: bool) -> None:
        await self._group.submit(lambda s: recall.pause(s, route, paused))

    async def paused(self) -> frozenset[str]:
        return await self._group.submit(recall.paused_routes, writes=False)

    def listen(self, listener: WakeListener) -> None:
        self._listeners.append(listener)

    async def open_rooms(
        self, capacity: int, consumer: str, *, serves_all: bool = False, signs: str = ""
    ) -> OpenRooms:
        """Waiting rooms in the same file."""
        # Rooms are PUT here or are not there, and nobody else consumes.
        del capacity, consumer, serves_all, signs
        rooms = SqliteRooms(self._group, self._clock)
        await rooms.make_tables()

        async def close() -> None:
            """They live on the store's own connection."""

        return OpenRooms(rooms, None, close, away=lambda: False, figures=StoreCalls)

    async def check(self) -> dict[str, str]:
        """Facts for health. Now and then keeps something large enough to need room on the disk

        and forgets it again, so that a store that cannot keep anything says so.
        """
        now = self._clock.now()
        writes = not 0 <= now - self._written_at < health.WRITE_MS
        version = await self._group.submit(health.try_write if writes else health.read)
        if writes:
            self._written_at = now
        facts = {"store": self.name, "schema_version": version or str(SCHEMA_VERSION)}
        return facts if self._address.path is None else facts | health.of_file(self._address)

    async def failure(self) -> StoreFailed:
        """Wait until the store accepts nothing any more; why."""
        await self._has_failed.wait()
        assert self._failure is not None, "set before the event"  # noqa: S101 - for the type
        return self._failure

    async def integrity(self) -> None:
        """Read the whole file and check it; StoreCorrupt says what is wrong."""
        wrong = await self._read(search.integrity)
        if wrong:
            raise StoreCorrupt(f"{self.name}: {'; '.join(wrong[:10])}")

    async def close(self) -> None:
        """Answer what was asked for, then let go of the file; closing twice is harmless.

        Raises StoreFailed when the last writes did not reach the disk.
        """
        failed_before = self._failure is not None
        await self._group.close()
        if self._disk is not None:
            await self._disk.close()
        if self._checkpoints is not None:
            await self._checkpoints.close()
        if self._reader is not None:
            self._reader.close()
        if isinstance(self._clock, SystemClock):
            self._clock.close()
        if isinstance(self._failure, FailedFsync):
            abandon(self._session.connection)
        else:
            self._session.connection.close()
        if self._failure is not None and not failed_before:
            raise self._failure

    def _fail(self, failure: StoreFailed) -> None:
        if self._address.path is not None and isinstance(failure, FailedFsync):
            mark_unsynced(self._address.path)
        self._failure = failure
        self._has_failed.set()

    def _learn(self, route: str, claim: Claim, now: int) -> None:
        if claim.next_due is not None:
            self._next[route] = claim.next_due
        elif claim.messages:
            self._next[route] = now
        else:
            self._next.pop(route, None)

    def _is_something_due(self) -> bool:
        """Whether a worker of this process is about to claim."""
        now = self._clock.now()
        return any(-LOST_MS < due - now < SOON_MS for due in self._next.values())

    def _committed(self, wakes: Wakes) -> None:
        if self._checkpoints is not None:
            self._checkpoints.after_commit()
        for route, due in wakes.items():
            if due < self._next.get(route, due):
                self._next[route] = due
            for listener in self._listeners:
                listener(route, due)

    async def _read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Of a file in a thread; what is in memory is read in turn with the writes."""
        if self._failure is not None:
            raise StoreFailed(f"{self._failure}; {NOTHING_STORED}")
        if self._reader is None:
            return await self._group.submit(lambda s: work(s.connection), writes=False)
        return await self._reader.read(work)
