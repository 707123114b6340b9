"""Threads that take steps from a queue, each on a connection of its own.

Steps that wait at the same moment share a transaction (group commit), which first locks the turns
of them all (turn_locks.py). A failed step is repeated alone, so that it does not fail the others;
one that conflicts with another transaction is repeated.
A connection that broke before the commit was sent is replaced and the step repeated; after that its
outcome is unknown, and the caller gets an error: every step is safe to repeat.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.errors import DeadlockDetected

from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.isolation import halves
from penstock.model.outcome import Claim
from penstock.stores.postgres.address import Address
from penstock.stores.postgres.errors import TRY_AGAIN, is_lost, translate
from penstock.stores.postgres.floors import Floors
from penstock.stores.postgres.schema import connect, use_schema
from penstock.stores.postgres.session import STATEMENTS, Session
from penstock.stores.postgres.turn_locks import TurnLocks, Turns, locked

log = logging.getLogger("penstock.stores.postgres")

T = TypeVar("T")
Wakes: TypeAlias = dict[str, int]

MAX_ROWS = 1_000
"""Rows of one transaction, about."""
TRIES = 8
"""Tries of a step that conflicts with other transactions."""
PATIENCE = 30.0
"""Seconds after which a caller gets an error that the server does not answer; its step may still be
run, and is safe to repeat.
"""
CLOSE_PATIENCE = 5.0
"""Seconds for the steps under way when the store is closed."""
PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between two tries to connect; in between callers are refused at once."""


class _Operation:
    """One caller's step and the callback for its outcome."""

    __slots__ = ("future", "rows", "turns", "work")

    def __init__(
        self,
        work: Callable[[Session], Any],
        rows: int,
        turns: Turns,
        future: asyncio.Future[Any],
    ) -> None:
        self.work = work
        self.rows = rows
        self.turns = turns
        self.future = future


class Lane:
    """A runner of steps (`stores.sql.tx.Runner`) on so many connections."""

    def __init__(
        self,
        address: Address,
        tokens: Iterator[int],
        *,
        threads: int,
        committed: Callable[[Wakes], None],
        news: Callable[[Session], Callable[[], None]],
        floors: Floors,
        turn_locks: TurnLocks,
        unheard: Callable[[int], None],
        before: str | None = None,
    ) -> None:
        """`before`: a statement that every transaction begins with. `news`: what it ends with.

        `unheard` receives the token of a claim that may be committed and whose answer was lost.
        """
        self._address = address
        self._tokens = tokens
        self._committed = committed
        self._unheard = unheard
        self._news = news
        self._floors = floors
        self._turn_locks = turn_locks
        self._before = before
        self._loop = asyncio.get_running_loop()
        self._queue: deque[_Operation] = deque()
        self._filled = threading.Condition()
        self._closed = False
        self._waiting: deque[tuple[float, asyncio.Future[Any]]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._away = _Away()
        self._threads = [
            threading.Thread(target=self._serve, name=f"penstock-postgres-{n}", daemon=True)
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def submit(
        self,
        work: Callable[[Any], T],
        *,
        rows: int = 1,
        writes: bool = True,
        durable: bool = True,
    ) -> asyncio.Future[T]:
        """Run the step in a transaction; the future has its result once it is committed."""
        del writes, durable
        future: asyncio.Future[T] = self._loop.create_future()
        with self._filled:
            if self._closed:
                raise StoreUnavailable(f"{self._address.name}: the store is closed")
            self._queue.append(_Operation(work, rows, locked(), future))
            self._filled.notify()
        self._waiting.append((self._loop.time() + PATIENCE, future))
        if self._watch is None:
            self._watch = self._loop.call_later(1.0, self._give_up)
        return future

    def _give_up(self) -> None:
        """Fail the callers that have waited too long; check again while any caller waits."""
        waiting, now = self._waiting, self._loop.time()
        while waiting and (waiting[0][1].done() or waiting[0][0] <= now):
            _, future = waiting.popleft()
            if not future.done():
                why = f"{self._address.name}: no answer in {PATIENCE:.0f} s"
                future.set_exception(StoreUnavailable(why))
        self._watch = self._loop.call_later(1.0, self._give_up) if waiting else None

    def look(self, work: Callable[[Any], T]) -> asyncio.Future[T]:
        return self.submit(work, rows=0)

    async def close(self) -> None:
        """Finish every queued step, then take no more."""
        with self._filled:
            self._closed = True
            self._filled.notify_all()
        for thread in self._threads:
            await asyncio.to_thread(thread.join, CLOSE_PATIENCE)
        if self._watch is not None:
            self._watch.cancel()

    def _take(self) -> list[_Operation]:
        """The next steps for one transaction; empty: closed."""
        with self._filled:
            while not self._queue and not self._closed:
                self._filled.wait()
            batch: list[_Operation] = []
            rows = 0
            while self._queue and (not batch or rows + self._queue[0].rows <= MAX_ROWS):
                batch.append(self._queue.popleft())
                rows += batch[-1].rows
            return batch

    def _serve(self) -> None:
        link = _Link(
            self._address,
            self._tokens,
            self._before,
            self._news,
            self._floors,
            self._turn_locks,
            self._away,
        )
        try:
            while batch := self._take():
                outcomes = link.run(batch)
                wakes, link.wakes = link.wakes, {}
                in_doubt, link.in_doubt = link.in_doubt, []
                self._loop.call_soon_threadsafe(self._answer, batch, outcomes, wakes, in_doubt)
        finally:
            link.close()

    def _answer(
        self, batch: list[_Operation], outcomes: list[Any], wakes: Wakes, in_doubt: list[int]
    ) -> None:
        for token in in_doubt:
            self._unheard(token)
        for operation, outcome in zip(batch, outcomes, strict=True):
            if operation.future.done():  # its caller has stopped waiting
                if isinstance(outcome, Claim) and outcome.messages:
                    self._unheard(outcome.token)
            elif isinstance(outcome, BaseException):
                operation.future.set_exception(outcome)
            else:
                operation.future.set_result(outcome)
        if wakes:
            self._committed(wakes)


class _Away:
    """Shared by the threads of a lane: how long the server has been unreachable."""

    def __init__(self) -> None:
        self._failures = 0
        self._until = 0.0
        self._why: PenstockError | None = None

    def check(self) -> None:
        if self._why is not None and time.monotonic() < self._until:
            raise StoreUnavailable(self._why.message, retry_after=1.0)

    def failed(self, why: PenstockError) -> None:
        if self._failures == 0:
            log.warning("cannot connect, will try again: %s", why.message)
        self._until = time.monotonic() + PAUSES[min(self._failures, len(PAUSES) - 1)]
        self._failures += 1
        self._why = why

    def back(self) -> None:
        if self._failures:
            log.info("connected again after %d tries", self._failures)
        self._failures, self._why = 0, None


class _Link:
    """One thread's connection."""

    def __init__(
        self,
        address: Address,
        tokens: Iterator[int],
        before: str | None,
        news: Callable[[Session], Callable[[], None]],
        floors: Floors,
        turn_locks: TurnLocks,
        away: _Away,
    ) -> None:
        self._address = address
        self._tokens = tokens
        self._before = before
        self._news = news
        self._floors = floors
        self._turn_locks = turn_locks
        self._learns = True
        """The next transaction reads which routes are keyed."""
        self._away = away
        self._use_schema = use_schema(address)
        self._session: Session | None = None
        self._rollbacks = 0
        self._committing = False
        self.wakes: Wakes = {}
        """The wake-ups of commits since the last answer."""
        self.in_doubt: list[int] = []
        """Tokens of claims since then that may or may not be committed."""

    def close(self) -> None:
        if self._session is not None:
            self._session.connection.close()
            self._session = None

    def run(self, batch: Sequence[_Operation]) -> list[Any]:
        """The outcome of each: its result, or the error that is its own."""
        lost = False
        for _ in range(TRIES):
            try:
                return self._transaction(batch)
            except TRY_AGAIN as exc:
                error: Exception = exc
                self._learns |= isinstance(exc, DeadlockDetected)
            except psycopg.Error as exc:
                error = exc
                if not is_lost(exc):
                    break
                if self._committing and self._session is not None:
                    self.in_doubt += self._session.issued
                self.close()
                if lost or self._committing:
                    break
                lost = True  # again, on a new connection
            except StoreUnavailable as exc:
                return [exc] * len(batch)
            except Exception as exc:  # noqa: BLE001 - each caller gets the outcome of its own step
                error = exc
                break
        if len(batch) == 1 or is_lost(error):
            if isinstance(error, psycopg.Error):
                ours = translate(error, self._address.name)
                ours.__cause__ = error
                return [ours] * len(batch)
            return [error] * len(batch)
        first, second = halves(batch)
        return self.run(first) + self.run(second)

    def _transaction(self, batch: Sequence[_Operation]) -> list[Any]:
        self._committing = False
        session = self._open()
        session.wakes = {}
        session.issued = []
        connection = session.connection
        news_sent = None
        try:
            with connection.pipeline():
                connection.execute(self._use_schema)
                if self._learns:
                    self._turn_locks.learn(
                        route for (route,) in connection.execute(STATEMENTS["keyed"].encode())
                    )
                    self._learns = False
                if self._before is not None:
                    session.execute(self._before)
                self._lock_turns(session, batch)
                results = [operation.work(session) for operation in batch]
                if session.wakes:
                    news_sent = self._news(session)
                self._committing = True
                connection.commit()
        except BaseException:
            self._rollbacks += 1
            session.rollbacks = self._rollbacks
            session.end(committed=False)
            if not connection.closed:
                connection.rollback()
            raise
        session.end(committed=True)
        if news_sent is not None:
            news_sent()
        for route, due in session.wakes.items():
            if due < self.wakes.get(route, due + 1):
                self.wakes[route] = due
        return results

    def _lock_turns(self, session: Session, batch: Sequence[_Operation]) -> None:
        asked = [
            session.ask(turns.statement, turns.values)
            for turns in (one.turns for one in batch)
            if turns.statement is not None
        ]
        routes = {route for one in batch for route in one.turns.routes}
        for cursor in asked:
            routes.update(route for (route,) in cursor.fetchall())
        for route in self._turn_locks.in_order(routes):
            session.lock_turns(route)

    def _open(self) -> Session:
        if self._session is not None and not self._session.connection.closed:
            return self._session
        self._away.check()
        try:
            connection = connect(self._address)
        except PenstockError as exc:
            self._away.failed(exc)
            raise
        self._away.back()
        self._learns = True
        self._rollbacks += 1  # data cached from the previous connection may be wrong
        self._session = Session(connection, self._tokens, self._floors)
        self._session.rollbacks = self._rollbacks
        return self._session
