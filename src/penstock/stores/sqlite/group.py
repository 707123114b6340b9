"""Group commit: everything asked for in one turn of the loop shares one transaction.

Committed inline on the loop by default: a writer thread starves on the interpreter's lock when
the loop is busy, and a simulation needs none. `?writer=thread` moves the same work to a thread.
The disk is waited for inline too, unless that could make a message late (disk.py).
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeAlias, TypeVar, cast

from penstock.model.errors import StoreUnavailable
from penstock.stores.sqlite.disk import Disk
from penstock.stores.sqlite.errors import translate
from penstock.stores.sqlite.session import Session

T = TypeVar("T")
Work: TypeAlias = Callable[[Session], T]
Wakes: TypeAlias = dict[str, int]

PUT_ROWS = 500
"""Messages of one put at most."""
MAX_ROWS = 2 * PUT_ROWS + 50
"""Rows one transaction changes, about: a claim and a settle with what goes with them, or two puts.
Longer ones would hold up the loop; shorter ones would pay for an fsync more often."""
LINGER_TURNS = 4
"""Turns of the loop (microseconds each) a transaction waits for company: a claim, the settling of
what was claimed before and whatever else comes meanwhile then share one fsync."""

FEW_ROWS = 8
"""Rows whose callers may wait a little longer for the disk's thread, so that the loop goes on. More
of them mean a busy loop, on which the thread would have to wait for the interpreter's lock."""


class _Operation:
    """One caller's request and where its outcome goes."""

    __slots__ = ("durable", "future", "rows", "work", "writes")

    def __init__(
        self, work: Work[Any], rows: int, writes: bool, durable: bool, future: asyncio.Future[Any]
    ) -> None:
        self.work = work
        self.rows = rows
        self.writes = writes
        self.durable = durable and writes
        self.future = future


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
    ) -> None:
        """`disk`: what can be told without waiting; `busy`: whether a message is due soon."""
        self._session = session
        self._name = name
        self._committed = committed
        self._disk = disk
        self._busy = busy
        self._queue: deque[_Operation] = deque()
        self._between: deque[Callable[[], None]] = deque()
        self._flush_due = False
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
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(_Operation(work, rows, writes, durable, future))
        self._flush_soon()
        return future

    async def look(self, work: Work[T]) -> T:
        """A short read that waits for no company: nobody has to wait for its answer either.

        At once where the connection is the loop's own, in turn where it is a thread's.
        """
        if self._thread is not None or self._closed:
            return await self.submit(work, writes=False)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        (outcome,) = self._run([_Operation(work, 0, writes=False, durable=False, future=answer)])
        if isinstance(outcome, BaseException):
            raise outcome
        return cast("T", outcome)

    def between(self, step: Callable[[], None]) -> None:
        """Run a step on the connection between two transactions; none after the last one."""
        if not self._closed:
            self._between.append(step)
            self._flush_soon()

    async def close(self) -> None:
        """Answer everything asked for, then take no more."""
        if not self._closed:
            last = self.submit(lambda _: None, writes=False)
            self._closed = True
            await last
            if self._thread is not None:
                self._thread.shutdown()

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self._linger(LINGER_TURNS)

    def _linger(self, turns: int) -> None:
        loop = asyncio.get_running_loop()
        if turns:
            loop.call_soon(self._linger, turns - 1)
        else:
            self._flush()

    def _flush(self) -> None:
        # Whoever has gone meanwhile needs no answer.
        batch = [operation for operation in self._queue if not operation.future.cancelled()]
        self._queue.clear()
        if self._thread is None:
            disk = self._disk_for(batch)
            self._session.wait_for_disk(disk is None)
            self._flushed(batch, self._run_all(batch), disk)
        else:
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._thread, self._run_all, batch)
            running.add_done_callback(lambda done: self._flushed(batch, done.result()))

    def _disk_for(self, batch: Sequence[_Operation]) -> Disk | None:
        """The disk, if it is to be told by its thread; None: the loop waits for it."""
        if self._disk is None:
            return None
        rows = [operation.rows for operation in batch if operation.durable]
        return None if rows and (sum(rows) > FEW_ROWS or not self._busy()) else self._disk

    def _flushed(
        self, batch: list[_Operation], outcomes: list[Any], disk: Disk | None = None
    ) -> None:
        self._queue.extendleft(reversed(batch[len(outcomes) :]))  # too much for one transaction
        self._flush_due = False
        if self._queue or self._between:
            self._flush_soon()
        wakes, self._session.wakes = self._session.wakes, {}
        done, changed = list(zip(batch, outcomes, strict=False)), self._session.has_changed()
        if disk is not None:
            waiting = [pair for pair in done if pair[0].durable]
            if waiting:
                disk.tell(partial(self._on_disk, waiting))
            elif changed:
                disk.tell()
            done = [pair for pair in done if not pair[0].durable]
        for operation, outcome in done:
            _answer(operation.future, outcome)
        self._committed(wakes)

    def _on_disk(self, waiting: list[tuple[_Operation, Any]], error: BaseException | None) -> None:
        failed = None if error is None else StoreUnavailable(f"{self._name}: {error}")
        for operation, outcome in waiting:
            _answer(operation.future, outcome if failed is None else failed)

    def _run_all(self, batch: Sequence[_Operation]) -> list[Any]:
        """Outcomes of as many of the batch as fit into one transaction."""
        while self._between:
            self._between.popleft()()
        return self._run(batch) if batch else []

    def _run(self, batch: Sequence[_Operation]) -> list[Any]:
        session = self._session
        results: list[Any] = []
        try:
            session.execute(
                "BEGIN IMMEDIATE" if any(operation.writes for operation in batch) else "BEGIN"
            )
        except sqlite3.Error as exc:
            return [translate(exc, self._name)] * len(batch)
        wakes = dict(session.wakes)
        full = session.changes + MAX_ROWS
        try:
            for operation in batch:
                if results and session.changes + operation.rows > full:
                    break
                results.append(operation.work(session))
            session.execute("COMMIT")
        except Exception as exc:  # noqa: BLE001 - each caller gets the outcome of its own request
            self._roll_back()
            session.wakes = wakes
            if len(batch) == 1:
                return [translate(exc, self._name) if isinstance(exc, sqlite3.Error) else exc]
            # One bad request must not fail its neighbours: each gets a transaction of its own.
            return [outcome for operation in batch for outcome in self._run([operation])]
        return results

    def _roll_back(self) -> None:
        self._session.rollbacks += 1
        if self._session.connection.in_transaction:
            self._session.execute("ROLLBACK")


def _answer(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():  # cancelled while it was running
        return
    if isinstance(outcome, BaseException):
        future.set_exception(outcome)
    else:
        future.set_result(outcome)
