"""A SQLite file as a store: the group commit, the disk, the log, and their failures."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from penstock.model.errors import PenstockError, StoreCorrupt, StoreFailed
from penstock.model.outcome import Claim
from penstock.ports.recurring import LOOK_MS, NEWS
from penstock.ports.store import Store, WakeListener
from penstock.stores.sql.recurring import SqlRecurring, nearest_rule
from penstock.stores.sql.search import scheduled_routes
from penstock.stores.sql.store import SqlStore
from penstock.stores.sqlite import health
from penstock.stores.sqlite.address import Address
from penstock.stores.sqlite.disk import Disk
from penstock.stores.sqlite.errors import FailedFsync, abandon, mark_unsynced
from penstock.stores.sqlite.group import ANY_CHANGES, NOTHING_STORED, GroupCommit, Wakes
from penstock.stores.sqlite.reader import Reader
from penstock.stores.sqlite.schema import SCHEMA_VERSION, connect
from penstock.stores.sqlite.session import Session
from penstock.stores.sqlite.wal import Checkpoints
from penstock.time.clock import Clock, SystemClock

log = logging.getLogger("penstock.sqlite")

T = TypeVar("T")

WATCH_MS = 200
"""Between two checks for writes of other processes to the file."""
SOON_MS = 50
"""A message due within this time could be late if the loop waited for the disk."""
LOST_MS = 1_000
"""A message due so long ago is not claimed here any more."""


class SqliteStore(SqlStore):
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
        self._disk = None
        if address.path is not None and address.synchronous == "full":
            self._disk = Disk(address.path)
        self._group = GroupCommit(
            session,
            address.name,
            thread=address.writer == "thread",
            committed=self._committed,
            disk=self._disk,
            busy=self._is_something_due,
            watches=address.path is not None,
            failed=self._fail,
        )
        super().__init__(self._group, clock, retention=retention, retention_count=retention_count)
        self._recurring = SqlRecurring(self._group, LOOK_MS)
        self._watching: asyncio.Task[None] | None = None
        self._failure: StoreFailed | None = None
        self._has_failed = asyncio.Event()
        self._next: dict[str, int] = {}
        """Route → when something is due that was not claimed, as far as is known."""
        self._written_at = -health.WRITE_MS
        """When a write last succeeded."""
        self._checkpoints: Checkpoints | None = None
        if address.path is not None:
            self._checkpoints = Checkpoints(
                session.connection,
                address.path,
                partial(connect, address),
                self._group.between,
                self._group.sync_failed,
            )
        else:
            self._group.look_from = ANY_CHANGES
        self._reader = None if address.path is None else Reader(address)

    @property
    def name(self) -> str:
        return self._address.name

    def as_store(self) -> Store:
        """The parts of this store."""
        path = self._address.path
        return Store(
            messages=self,
            policies=self.policies,
            rooms=self,
            recurring=self._recurring,
            fleet=self,
            forecasting=self,
            dead=self,
            keyed=self,
            counted=self,
            self_check=self,
            may_fail=self,
            announces=self._hears_others,
            warnings=() if path is None else health.warnings_of(path.absolute()),
        )

    async def check(self) -> dict[str, str]:
        """Facts for health. Now and then writes a row large enough to need space on the disk and
        removes it again, so that a store that cannot write is reported.
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
        """Read the whole file and check it; StoreCorrupt names the damage."""
        wrong = await self.read(health.integrity)
        if wrong:
            raise StoreCorrupt(f"{self.name}: {'; '.join(wrong[:10])}")

    def listen(self, listener: WakeListener) -> None:
        super().listen(listener)
        if self._watching is None and self._address.path is not None:
            self._watching = asyncio.get_running_loop().create_task(self._watch())

    def _hears_others(self) -> bool:
        return self._watching is not None

    async def _watch(self) -> None:
        """Wake the listeners when another process has written; SQLite itself announces nothing."""
        seen = 0
        while True:
            await self._clock.sleep_until(self._clock.now() + WATCH_MS)
            try:
                await self._group.look(_nothing)  # each transaction looks for foreign commits
                if seen != self._session.foreign_commits:
                    seen = self._session.foreign_commits
                    for route in await self._group.look(scheduled_routes):
                        self._wake(route, self._clock.now())
                    nearest = await self._group.look(nearest_rule)
                    if nearest is not None:
                        self._recurring.heard(NEWS, nearest)
            except PenstockError as exc:
                log.debug("what other processes put is not seen: %s", exc)

    async def close(self) -> None:
        """Finish what was requested, then close the file; closing twice is harmless.

        Raises StoreFailed when the last writes did not reach the disk.
        """
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])
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

    def claimed(self, route: str, claim: Claim, now: int) -> None:
        if claim.next_due is not None:
            self._next[route] = claim.next_due
        elif claim.messages:
            self._next[route] = now
        else:
            self._next.pop(route, None)

    def _is_something_due(self) -> bool:
        """True if a worker of this process is about to claim."""
        now = self._clock.now()
        return any(-LOST_MS < due - now < SOON_MS for due in self._next.values())

    def _committed(self, wakes: Wakes) -> None:
        checkpoints = self._checkpoints
        if (
            checkpoints is not None
            and self._session.connection.total_changes >= checkpoints.look_from
        ):
            checkpoints.after_commit()
            self._group.look_from = checkpoints.look_from
        for route, due in wakes.items():
            if due < self._next.get(route, due):
                self._next[route] = due
            self._wake(route, due)

    def _wake(self, route: str, due: int) -> None:
        for listener in self._listeners:
            listener(route, due)

    async def read(self, work: Callable[[Session], T]) -> T:
        """Read a file in a thread; a database in memory is read in turn with the writes."""
        if self._failure is not None:
            raise StoreFailed(f"{self._failure}; {NOTHING_STORED}")
        if self._reader is None:
            return await self._group.submit(work, writes=False)
        return await self._reader.read(work)


def _nothing(_: Session) -> None:
    """A transaction without a step."""
