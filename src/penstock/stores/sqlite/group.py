"""Group commit: everything asked for in one turn of the loop shares one transaction.

Committed inline on the loop by default: a writer thread starves on the interpreter's lock when
the loop is busy, and a simulation needs none. `?writer=thread` moves the same work to a thread.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeAlias, TypeVar, cast

from penstock.model.errors import StoreUnavailable
from penstock.stores.sqlite.errors import translate
from penstock.stores.sqlite.session import Session

T = TypeVar("T")
Work: TypeAlias = Callable[[Session], T]
Wakes: TypeAlias = dict[str, int]

PUT_ROWS = 500
"""Messages of one put at most."""
MAX_ROWS = 2 * PUT_ROWS
"""Rows one transaction changes, about: a claim and a settle, or two puts. Longer ones would hold
up the loop; shorter ones would pay for an fsync more often."""
LINGER_TURNS = 4
"""Turns of the loop (microseconds each) a transaction waits for company: a claim, the settling of
what was claimed before and whatever else comes meanwhile then share one fsync."""


class _Operation:
    """One caller's request and where its outcome goes."""

    __slots__ = ("future", "rows", "work", "writes")

    def __init__(
        self, work: Work[Any], rows: int, writes: bool, future: asyncio.Future[Any]
    ) -> None:
        self.work = work
        self.rows = rows
        self.writes = writes
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
    ) -> None:
        self._session = session
        self._name = name
        self._committed = committed
        self._queue: deque[_Operation] = deque()
        self._between: deque[Callable[[], None]] = deque()
        self._flush_due = False
        self._closed = False
        self._thread = (
            ThreadPoolExecutor(1, thread_name_prefix="penstock-sqlite-writer") if thread else None
        )

    def submit(self, work: Work[T], *, rows: int = 1, writes: bool = True) -> asyncio.Future[T]:
        """Run the work in the next transaction; the future has its result once it is durable."""
        if self._closed:
            raise StoreUnavailable(f"{self._name}: the store is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._queue.append(_Operation(work, rows, writes, future))
        self._flush_soon()
        return future

    async def look(self, work: Work[T]) -> T:
        """A short read that waits for no company: nobody has to wait for its answer either.

        At once where the connection is the loop's own, in turn where it is a thread's.
        """
        if self._thread is not None or self._closed:
            return await self.submit(work, writes=False)
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        (outcome,) = self._run([_Operation(work, 0, False, answer)])
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
            self._flushed(batch, self._run_all(batch))
        else:
            loop = asyncio.get_running_loop()
            running = loop.run_in_executor(self._thread, self._run_all, batch)
            running.add_done_callback(lambda done: self._flushed(batch, done.result()))

    def _flushed(self, batch: list[_Operation], outcomes: list[Any]) -> None:
        self._queue.extendleft(reversed(batch[len(outcomes) :]))  # too much for one transaction
        self._flush_due = False
        if self._queue or self._between:
            self._flush_soon()
        wakes, self._session.wakes = self._session.wakes, {}
        for operation, outcome in zip(batch, outcomes, strict=False):
            if operation.future.done():  # cancelled while it was running
                continue
            if isinstance(outcome, BaseException):
                operation.future.set_exception(outcome)
            else:
                operation.future.set_result(outcome)
        self._committed(wakes)

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
        full = session.connection.total_changes + MAX_ROWS
        try:
            for operation in batch:
                if results and session.connection.total_changes + operation.rows > full:
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
