"""Group commit: all operations of one turn of the loop share one transaction.

Committed inline on the loop by default: a writer thread starves on the interpreter's lock when the
loop is busy, and a simulation needs none. `?writer=thread` moves the same work to a thread.

The loop also waits for the disk inline, unless that could make a message late (disk.py). It never
waits inline for another process's lock: a timer tries again, and the loop goes on.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from penstock.model.errors import PenstockError, StoreFailed, StoreUnavailable
from penstock.model.isolation import halves
from penstock.stores.sql.store import PUT_ROWS
from penstock.stores.sqlite import schema
from penstock.stores.sqlite.disk import Disk
from penstock.stores.sqlite.errors import (
    FailedFsync,
    failed_fsync,
    is_failed_fsync,
    is_locked,
    translate,
)
from penstock.stores.sqlite.schema import BUSY_MS
from penstock.stores.sqlite.session import Session

T = TypeVar("T")
Work: TypeAlias = Callable[[Session], T]
Wakes: TypeAlias = dict[str, int]

MAX_ROWS = 2 * PUT_ROWS + 50
"""Approximate rows one transaction changes: a claim and a settle with their other rows, or two
puts. Longer ones would block the loop; shorter ones would pay for an fsync more often.
"""
LINGER_TURNS = 4
"""Turns of the loop (microseconds each) a transaction waits for others: a claim, the settlements of
earlier claims and the operations that arrive in between then share one fsync. One that follows a
transaction of a single small operation is probably alone too, and waits for none.
"""

LOCK_WAIT = BUSY_MS / 1000
"""Seconds a caller waits for another process's lock before it is refused."""
LOCK_PAUSES = (0.001, 0.002, 0.005, 0.01, 0.02)
"""Seconds between tries while the file is locked; the last one for as long as it takes."""

NOTHING_STORED = "nothing of this request was accepted"
PERHAPS_STORED = "this request may have been stored: repeat it with the same id"

FEW_ROWS = 8
"""Rows whose callers may wait a little longer for the disk's thread, so that the loop goes on. More
of them mean a busy loop, on which the thread would have to wait for the interpreter's lock. More
rows also mean that others are about to be written.
"""
ANY_CHANGES = 1 << 62
"""A number of changed rows that is never reached."""


class _Operation:
    """One caller's operation and the callback for its outcome."""

    __slots__ = ("durable", "future", "give_up", "rows", "work", "writes")

    def __init__(
        self, work: Work[Any], rows: int, writes: bool, durable: bool, future: asyncio.Future[Any]
    ) -> None:
        self.work = work
        self.rows = rows
        self.writes = writes
        self.durable = durable and writes
        self.future = future
        self.give_up: float | None = None
        """The loop's time at which a caller that waits for a lock is refused."""


class _Locked:
    """The outcome of an operation that another process's lock prevented: try it again."""

    __slots__ = ("error",)

    def __init__(self, error: PenstockError) -> None:
        self.error = error


class GroupCommit:
    """The one writer on a session."""

    def __init__(
        self,
        session: Session,
        name: str,
        *,
        thread: bool,
        committed: Callable[[Wakes], None],
        disk: Disk | None = None,
        busy: Callable[[], bool] = bool,
        watches: bool = False,
        failed: Callable[[StoreFailed], None] | None = None,
    ) -> None:
        """`disk`: syncs without blocking; `busy`: whether a message is due soon.

        `watches`: other processes may change the file, and its schema is checked in each
        transaction. `failed` is called once, when nothing is accepted any more.
        """
        self._session = session
        self._name = name
        self._committed = committed
        self._disk = disk
        if disk is not None:
            disk.on_failure = self.sync_failed
        self._busy = busy
        self._watches = watches
        self._changes = 0
        """Rows changed at the last sync."""
        self._failed = failed
        self._failure: StoreFailed | None = None
        """Why nothing is accepted any more."""
        self._queue: deque[_Operation] = deque()
        self._between: deque[Callable[[], None]] = deque()
        self._flush_due = False
        self._alone = False
        """The last transaction was of one small operation: the next is probably alone too."""
        self._awaited = False
        """The operation that was run at once was one whose caller waits for the disk."""
        self.look_from = 0
        """Rows changed by the connection from which on `committed` is called without wakes too."""
        self._lock_tries = 0
        """Tries in a row that found the file locked by another process."""
        self._closed = False
        self._thread = (
            ThreadPoolExecutor(1, thread_name_prefix="penstock-sqlite-writer") if thread else None
        )

    def submit(
        self, work: Work[T], *, rows: int = 1, writes: bool = True, durable: bool = True
    ) -> asyncio.Future[T]:
        """Run the work in the next transaction; the future has its result once it is durable.

        Not `durable`: once it is committed, which a kill does not undo, but a power cut might.
        """
        if self._closed:
            raise StoreUnavailable(f"{self._name}: the store is closed")
        if self._failure is not None:
            raise StoreFailed(f"{self._failure}; {NOTHING_STORED}")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        self._queue.append(_Operation(work, rows, writes, durable, future))
        if self._flush_due:
            return future
        if self._alone and rows <= FEW_ROWS and self._thread is None and not self._lock_tries:
            self._awaited = durable and writes
            self._flush()
            if not self._flush_due:  # others of this turn of the loop share the next transaction
                self._flush_due = True
                loop.call_soon(self._flush_rest)
        else:
            self._flush_soon()
        return future

    async def look(self, work: Work[T]) -> T:
        """A short read outside a group, whose caller does not have to await it.

        At once where the connection is the loop's own, in turn where it is a thread's.
        """
        if self._thread is not None or self._closed:
            return await self.submit(work, writes=False)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        (outcome,) = self._run([_Operation(work, 0, writes=False, durable=False, future=answer)])
        self._report_failure()
        if isinstance(outcome, _Locked):
            return await self.submit(work, writes=False)
        if isinstance(outcome, BaseException):
            raise outcome
        return cast("T", outcome)

    def between(self, step: Callable[[], None]) -> None:
        """Run a step on the connection between two transactions; none after the last one."""
        if not self._closed:
            self._between.append(step)
            self._flush_soon()

    async def close(self) -> None:
        """Run everything queued, then take no more."""
        if not self._closed:
            last = None if self._failure else self.submit(lambda _: None, writes=False)
            self._closed = True
            if last is not None:
                await asyncio.wait([last])
            while self._queue:  # writes that wait for another process's lock
                await asyncio.wait([operation.future for operation in self._queue])
            if self._thread is not None:
                self._thread.shutdown()

    def sync_failed(self, error: BaseException) -> None:
        """An fsync of the file failed: nothing written since the last one may be relied on."""
        self._notice(failed_fsync(self._name, error))
        self._report_failure()

    def _report_failure(self) -> None:
        if self._failure is not None and self._failed is not None:
            failed, self._failed = self._failed, None
            failed(self._failure)

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            if self._lock_tries:
                pause = LOCK_PAUSES[min(self._lock_tries, len(LOCK_PAUSES)) - 1]
                asyncio.get_running_loop().call_later(pause, self._flush)
            else:
                self._linger(LINGER_TURNS)

    def _linger(self, turns: int) -> None:
        loop = asyncio.get_running_loop()
        if turns:
            loop.call_soon(self._linger, turns - 1)
        else:
            self._flush()

    def _flush_rest(self) -> None:
        """The end of a turn of the loop whose first operation was run at once.

        What that one brought about follows at once too; callers that shared a turn with one whose
        write was awaited are gathered from now on.
        """
        self._flush_due = False
        if len(self._queue) == 1 and not self._awaited and not self._between:
            self._flush()
        elif self._queue or self._between:
            self._alone = False
            self._flush_soon()

    def _flush(self) -> None:
        # An operation whose caller has stopped waiting needs no answer.
        batch = [operation for operation in self._queue if not operation.future.cancelled()]
        self._queue.clear()
        self._alone = len(batch) == 1 and batch[0].rows <= FEW_ROWS
        if self._thread is None:
            disk = self._disk_for(batch)
            if self._session.waits is not (disk is None):
                self._session.wait_for_disk(disk is None)
            outcomes = self._run_all(batch)
            if _Locked in map(type, outcomes):
                batch, outcomes = self._wait_for_lock(batch, outcomes)
            else:
                self._lock_tries = 0
            self._flushed(batch, outcomes, disk)
        else:
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._thread, self._run_all, batch)
            running.add_done_callback(lambda done: self._flushed(batch, done.result()))

    def _wait_for_lock(
        self, batch: list[_Operation], outcomes: list[Any]
    ) -> tuple[list[_Operation], list[Any]]:
        """Queue the operations again that the lock prevented; return those to answer now.

        Reads need no lock, so they go on; a caller that has waited long enough is refused.
        """
        now = asyncio.get_running_loop().time()
        held_up: list[_Operation] = []
        answered: list[tuple[_Operation, Any]] = []
        for operation, tried in zip(batch, outcomes, strict=False):
            is_read = type(tried) is _Locked and not operation.writes
            outcome = self._run([operation])[0] if is_read else tried
            if type(outcome) is not _Locked:
                answered.append((operation, outcome))
                continue
            if operation.give_up is None:
                operation.give_up = now + LOCK_WAIT
            if now < operation.give_up:
                held_up.append(operation)
            else:
                answered.append((operation, outcome.error))
        self._lock_tries += 1
        self._queue.extend(held_up)
        self._queue.extend(batch[len(outcomes) :])
        return [operation for operation, _ in answered], [outcome for _, outcome in answered]

    def _notice(self, exc: Exception) -> None:
        """A transaction that failed because the file cannot be trusted is the last one."""
        if self._failure is None:
            if isinstance(exc, StoreFailed):
                self._failure = exc
            elif is_failed_fsync(exc):
                self._failure = failed_fsync(self._name, exc)

    def _refused(self, exc: Exception) -> Exception | _Locked:
        """The outcome of a refused operation: a lock is waited for, by a timer or in the thread."""
        if self._failure is not None:
            return self._failed_request()
        if not isinstance(exc, sqlite3.Error):
            return exc
        error = translate(exc, self._name)
        return _Locked(error) if self._thread is None and is_locked(exc) else error

    def _disk_for(self, batch: Sequence[_Operation]) -> Disk | None:
        """The disk, if its thread is to sync this batch; None: the loop waits for the sync."""
        disk = self._disk
        if disk is None:
            return None
        rows = 0
        waits = False
        for operation in batch:
            if operation.durable:
                waits = True
                rows += operation.rows
        return None if waits and (rows > FEW_ROWS or not self._busy()) else disk

    def _flushed(
        self, batch: list[_Operation], outcomes: list[Any], disk: Disk | None = None
    ) -> None:
        self._queue.extendleft(reversed(batch[len(outcomes) :]))  # too much for one transaction
        self._flush_due = False
        if self._queue or self._between:
            self._flush_soon()
        wakes, self._session.wakes = self._session.wakes, {}
        done = list(zip(batch, outcomes, strict=False))
        if disk is not None:
            waiting = [pair for pair in done if pair[0].durable]
            if waiting:
                done = [pair for pair in done if not pair[0].durable]
                disk.tell(partial(self._on_disk, waiting))
            elif self._session.connection.total_changes != self._changes:
                disk.tell()
        self._changes = self._session.connection.total_changes
        for operation, outcome in done:
            _answer(operation.future, outcome)
        if self._failure is None:
            if wakes or self._changes >= self.look_from:
                self._committed(wakes)
        else:
            self._report_failure()

    def _on_disk(self, waiting: list[tuple[_Operation, Any]], error: BaseException | None) -> None:
        failed: StoreUnavailable | None = None
        if self._failure is not None:
            failed = self._failed_request()
        elif error is not None:
            failed = StoreUnavailable(f"{self._name}: {error}; {PERHAPS_STORED}")
        for operation, outcome in waiting:
            _answer(operation.future, outcome if failed is None else failed)

    def _failed_request(self) -> StoreFailed:
        """The error for a caller whose request was in flight when the store failed."""
        unsure = isinstance(self._failure, FailedFsync)
        return StoreFailed(f"{self._failure}; {PERHAPS_STORED if unsure else NOTHING_STORED}")

    def _run_all(self, batch: Sequence[_Operation]) -> list[Any]:
        """Outcomes of as many of the batch as fit into one transaction."""
        while self._between:
            self._between.popleft()()
        return self._run(batch) if batch else []

    def _run(self, batch: Sequence[_Operation]) -> list[Any]:
        session = self._session
        results: list[Any] = []
        if self._failure is not None:
            return [self._failed_request()] * len(batch)
        connection = session.connection
        writes = False
        for operation in batch:
            writes = writes or operation.writes
        try:
            connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        except sqlite3.Error as exc:
            return [self._refused(exc)] * len(batch)
        wakes = dict(session.wakes)
        full = connection.total_changes - session.uncounted + MAX_ROWS
        try:
            if self._watches:
                # Cheap while no other process writes: the number shows whether one has.
                (seen,) = connection.execute("PRAGMA data_version").fetchone()
                if seen != session.seen_version:
                    session.check_schema(self._name, schema.SCHEMA_VERSION, seen)
            for operation in batch:
                changes = connection.total_changes - session.uncounted
                if results and changes + operation.rows > full:
                    break
                results.append(operation.work(session))
            connection.execute("COMMIT")
        except Exception as exc:  # noqa: BLE001 - each caller gets the outcome of its own request
            self._notice(exc)
            self._roll_back()
            session.wakes = wakes
            if len(batch) == 1:
                return [self._refused(exc)]
            # One bad request must not fail its neighbours.
            return self._run_halves(batch)
        return results

    def _run_halves(self, batch: Sequence[_Operation]) -> list[Any]:
        """Each half in a transaction of its own, as far as the first of them fits into one."""
        first, second = halves(batch)
        outcomes = self._run(first)
        return outcomes if len(outcomes) < len(first) else outcomes + self._run(second)

    def _roll_back(self) -> None:
        self._session.rollbacks += 1
        if self._session.connection.in_transaction:
            self._session.connection.execute("ROLLBACK")


def _answer(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():  # cancelled while it was running
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
