"""CALLS: single statements that commit by themselves, run from the event loop without a thread.

For what runs once for every batch released: claims and deliveries are functions of the schema
(`migrations/0005_hot.sql`), so a batch is one round trip. They go over libpq's own non-blocking
interface; psycopg connects, reads rows and names errors. No statement is prepared.

A call that cannot be made here fails with StoreUnavailable or psycopg's error; the store then takes
the plain way, by its `Lane`, whose answer counts.
"""

from __future__ import annotations

import asyncio
import select
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import psycopg
from psycopg import pq
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result

from penstock.model.errors import StoreUnavailable
from penstock.stores.postgres import lane
from penstock.stores.postgres.address import Address
from penstock.stores.postgres.errors import is_lost

_PAUSE = 0.5
"""Seconds between two tries to connect; in between the plain way is taken at once."""
_BINARY: Final = 1
_FAILED: Final = {pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE}


class _Call:
    """One statement and the callbacks for its outcome."""

    __slots__ = ("future", "in_doubt", "statement", "values")

    def __init__(
        self,
        statement: bytes,
        values: Sequence[bytes | None],
        future: asyncio.Future[list[Any]],
        in_doubt: Callable[[], None],
    ) -> None:
        self.statement = statement
        self.values = values
        self.future = future
        self.in_doubt = in_doubt
        """Called if the statement may have been committed and its caller does not know."""

    def answer(self, rows: list[Any]) -> None:
        if self.future.done():  # its caller has stopped waiting
            self.in_doubt()
        else:
            self.future.set_result(rows)

    def fail(self, why: Exception, *, in_doubt: bool) -> None:
        if in_doubt:
            self.in_doubt()
        if not self.future.done():
            self.future.set_exception(why)


class Calls:
    """So many connections, opened when they are needed."""

    def __init__(self, address: Address, connections: int) -> None:
        self._address = address
        self._most = connections
        self._idle: list[_Line] = []
        self._lines: set[_Line] = set()
        self._opening: set[asyncio.Task[None]] = set()
        self._waiting: deque[_Call] = deque()
        self._again_at = 0.0
        self._closed = False
        self._ended = asyncio.Event()

    async def call(
        self,
        statement: bytes,
        values: Sequence[bytes | None],
        in_doubt: Callable[[], None] = lambda: None,
    ) -> list[Any]:
        """The rows of the answer, once it is committed."""
        if self._closed or (not self._lines and time.monotonic() < self._again_at):
            raise StoreUnavailable(f"{self._address.name}: not connected")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()
        patience = loop.call_later(lane.PATIENCE, self._give_up, future)
        try:
            call = _Call(statement, values, future, in_doubt)
            if self._idle:
                self._idle.pop().begin(call)
            else:
                self._waiting.append(call)
                if time.monotonic() >= self._again_at:
                    self._open()
            return await future
        finally:
            patience.cancel()

    def _give_up(self, future: asyncio.Future[list[Any]]) -> None:
        if not future.done():
            why = f"{self._address.name}: no answer in {lane.PATIENCE:.0f} s"
            future.set_exception(NoAnswer(why))

    def _open(self) -> None:
        """Connect once more, unless there are as many as may be."""
        if len(self._lines) + len(self._opening) >= self._most:
            return
        task = asyncio.get_running_loop().create_task(self._connect())
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self) -> None:
        try:
            connection = await psycopg.AsyncConnection.connect(
                self._address.conninfo, autocommit=True, prepare_threshold=None
            )
        except (psycopg.Error, OSError) as exc:
            self._again_at = time.monotonic() + _PAUSE
            if not self._lines and len(self._opening) == 1:  # no other can take the calls
                why = StoreUnavailable(f"{self._address.name}: not connected")
                why.__cause__ = exc
                while self._waiting:
                    self._waiting.popleft().fail(why, in_doubt=False)
            return
        line = _Line(connection, self._free, self._lost)
        self._lines.add(line)
        self._free(line)

    def _free(self, line: _Line) -> None:
        """The line may take another call."""
        while self._waiting:
            call = self._waiting.popleft()
            if not call.future.done():
                line.begin(call)
                return
        if self._closed:
            line.close()
        else:
            self._idle.append(line)

    def _lost(self, line: _Line) -> None:
        self._lines.discard(line)
        if line in self._idle:
            self._idle.remove(line)
        self._ended.set()
        if self._waiting and not self._closed:
            self._open()  # whatever was refused before, one connection is free now

    async def close(self) -> None:
        """Finish what was begun, then close the connections."""
        self._closed = True
        for task in tuple(self._opening):
            task.cancel()
        await asyncio.gather(*self._opening, return_exceptions=True)
        while self._waiting:
            why = StoreUnavailable(f"{self._address.name}: the store is closed")
            self._waiting.popleft().fail(why, in_doubt=False)
        for line in tuple(self._idle):
            line.close()
        deadline = time.monotonic() + lane.CLOSE_PATIENCE
        while self._lines and (left := deadline - time.monotonic()) > 0:
            self._ended.clear()
            try:
                await asyncio.wait_for(self._ended.wait(), left)
            except TimeoutError:
                break
        for line in tuple(self._lines):
            line.broken(psycopg.OperationalError("the store is closed"))


class NoAnswer(StoreUnavailable):
    """The server has not answered within `lane.PATIENCE`: the caller waits no longer."""


class _Line:
    """One connection, with at most one call under way.

    Whatever the socket still holds after a read is read in the next turn of the loop: of a
    connection that was reset, uvloop notifies its reader once, and the first read may find no more
    than the server's last notice.
    """

    def __init__(
        self,
        connection: psycopg.AsyncConnection[Any],
        free: Callable[[_Line], None],
        lost: Callable[[_Line], None],
    ) -> None:
        self._connection = connection
        self._server = connection.pgconn
        self._socket = connection.fileno()
        self._rows = Transformer(connection)
        self._free = free
        self._lost = lost
        self._call: _Call | None = None
        self._result: pq.abc.PGresult | None = None
        self._is_open = True
        self._held = select.poll()
        self._held.register(self._socket, select.POLLIN)
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._readable)

    def begin(self, call: _Call) -> None:
        self._call = call
        self._result = None
        try:
            self._server.send_query_params(call.statement, call.values, result_format=_BINARY)
            self._flush()
        except psycopg.Error as exc:
            self.broken(exc)

    def _flush(self) -> None:
        if self._server.flush():
            self._loop.add_writer(self._socket, self._writable)

    def _writable(self) -> None:
        self._loop.remove_writer(self._socket)
        try:
            self._flush()
        except psycopg.Error as exc:
            self.broken(exc)

    def _readable(self) -> None:
        if not self._is_open:
            return
        try:
            self._server.consume_input()
            self._read()
        except psycopg.Error as exc:
            self.broken(exc)
        self._read_the_rest()

    def _read_the_rest(self) -> None:
        if self._is_open and self._held.poll(0):  # more data, the end or an error
            self._loop.call_soon(self._readable)

    def _read(self) -> None:
        server = self._server
        if self._call is None:
            server.is_busy()  # reads a notice, or that the server ends this connection
            return
        while not server.is_busy():
            result = server.get_result()
            if result is None:
                self._answered()
                return
            self._result = self._result or result

    def _answered(self) -> None:
        call, result = self._call, self._result
        self._call = self._result = None
        if call is None or result is None or self._server.status == pq.ConnStatus.BAD:
            self._call = call  # `broken` tells its caller
            self.broken(psycopg.OperationalError("the connection is lost"))
        elif result.status in _FAILED:
            error = error_from_result(result)
            call.fail(error, in_doubt=False)  # the server says so itself: nothing is committed
            if is_lost(error):  # it ends this connection, or takes no writes any more
                self.close()
            else:
                self._free(self)
        else:
            self._load(call, result)

    def _load(self, call: _Call, result: pq.abc.PGresult) -> None:
        try:
            self._rows.set_pgresult(result, set_loaders=True, format=pq.Format.BINARY)
            rows = self._rows.load_rows(0, result.ntuples, tuple)
        except Exception as exc:  # noqa: BLE001 - it is committed; its caller gets the error
            call.fail(exc, in_doubt=True)
            self.close()
        else:
            call.answer(rows)
            self._free(self)

    def broken(self, why: psycopg.Error) -> None:
        """Close the connection; the call under way may or may not have taken effect."""
        call, self._call = self._call, None
        self.close()
        if call is not None:
            call.fail(why, in_doubt=True)

    def close(self) -> None:
        if self._is_open:
            self._is_open = False
            self._loop.remove_reader(self._socket)
            self._loop.remove_writer(self._socket)
            self._server.finish()
            self._lost(self)
