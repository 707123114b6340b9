"""Connections for script calls alone, without what redis-py does around every command.

A pool with locks, time-outs and hooks costs redis-py several times the CPU of the call itself, and
scripts are nearly all that a store says. So a few connections are kept here: redis-py opens them
(TLS, login, database), and then a call is one write and one answer. One that failed in any way, or
that the server has closed meanwhile, is not used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

import hiredis
from redis import exceptions as vendor
from redis._parsers.base import BaseParser

CLOSED = "the connection was closed as it was opened"
_MORE = object()
T = TypeVar("T")


class Line(Protocol):
    """A connection of redis-py's, with the stream it has opened."""

    _writer: asyncio.StreamWriter | None

    async def connect(self) -> None: ...

    async def disconnect(self, nowait: bool = False) -> None: ...


class _Open(asyncio.Protocol):
    """A line that is open. What comes is read here, with no stream and no time-out in between.

    One timer goes with the line, not one with every call: it looks whether somebody waits too long.
    """

    def __init__(
        self,
        line: Line,
        transport: asyncio.WriteTransport,
        seconds: float,
        freed: Callable[[_Open], None],
    ) -> None:
        """`freed` is called with every answer, and once when there will be none."""
        self._line = line
        self._transport = transport
        self._seconds = seconds
        self._freed = freed
        self._loop = asyncio.get_running_loop()
        self._answers = hiredis.Reader(
            protocolError=vendor.InvalidResponse,
            replyError=BaseParser.parse_error,
            notEnoughData=_MORE,
        )
        self._waiting: asyncio.Future[Any] | None = None
        self._until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        transport.set_protocol(self)

    def ask(self, command: bytes) -> asyncio.Future[Any] | None:
        """What the answer will be; one at a time. None: the line is of no use any more.

        Whoever leaves before it is there leaves the line to it: the answer is nobody's then.
        """
        if self._transport.is_closing() or self._answers.has_data():  # that nobody asked for
            return None
        self._transport.write(command)  # first: the server wakes up while we do the rest
        waiting = self._waiting = self._loop.create_future()
        self._until = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(self._until, self._look)
        return waiting

    def data_received(self, data: bytes) -> None:
        self._answers.feed(data)
        try:
            answer = self._answers.gets()
        except vendor.RedisError as exc:
            self._fail(exc)
            return
        if answer is _MORE:
            return
        waiting, self._waiting = self._waiting, None
        if waiting is None:
            self._transport.close()  # nobody asked
            return
        self._freed(self)
        if waiting.done():  # somebody who has left
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or vendor.ConnectionError("the server has closed the connection"))

    def _look(self) -> None:
        """Whether the call under way, if one is, has waited long enough."""
        self._timer = None
        if self._waiting is None:
            return
        if self._loop.time() < self._until:  # by another call than the one it was set for
            self._timer = self._loop.call_at(self._until, self._look)
        else:
            self._fail(vendor.TimeoutError(f"no answer in {self._seconds:g} s"))

    @property
    def is_left(self) -> bool:
        """Whoever has asked does not wait for the answer any more."""
        return self._waiting is not None and self._waiting.done()

    def _fail(self, exc: Exception) -> None:
        """Whatever it still says is nobody's answer."""
        self._transport.close()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            self._freed(self)
            if not waiting.done():
                waiting.set_exception(exc)

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._line.disconnect(nowait=True)


async def heeding(asked: Awaitable[T]) -> T:
    """redis-py may swallow a cancellation while it connects: then raise it afterwards."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return await asked
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


class Lines:
    """At most so many; those that are free are used again, the last one first."""

    def __init__(self, make: Callable[[], Line], *, most: int, seconds: float) -> None:
        self._make = make
        self._most = most
        self._seconds = seconds
        self._lines: set[_Open] = set()
        self._free: list[_Open] = []
        """Those nobody has asked anything; that one has failed is found out when it is taken."""
        self._used = 0
        self._going: set[asyncio.Task[None]] = set()

    @property
    def has_one(self) -> bool:
        return self._used < self._most

    def ask(self, command: bytes) -> Awaitable[Any]:
        """The answer; what the server refuses, and what keeps it from answering, is raised."""
        answer = self.quick(command)
        if answer is not None:
            return answer
        self._used += 1  # before anybody awaits it: many may be made at once
        return self._ask_another(command)

    def quick(self, command: bytes) -> asyncio.Future[Any] | None:
        """The same over a line that is free; None: there is none, and nothing has happened."""
        if not self._free:
            return None
        answer = self._free[-1].ask(command)
        if answer is not None:
            self._free.pop()
            self._used += 1
        return answer

    async def _ask_another(self, command: bytes) -> Any:
        answer = None
        try:
            while answer is None and self._free:
                answer = await self._try(self._free.pop(), command)
            if answer is None:
                answer = await self._try(await self._open(), command)
            if answer is None:
                raise vendor.ConnectionError(CLOSED)
        finally:
            if answer is None:
                self._used -= 1
        return await answer

    async def _try(self, line: _Open, command: bytes) -> asyncio.Future[Any] | None:
        """Ask over this one; if it is of no use, do away with it."""
        answer = line.ask(command)
        if answer is None:
            self._lines.discard(line)
            await line.close()
        return answer

    def _freed(self, line: _Open) -> None:
        self._used -= 1
        if line in self._lines:
            self._free.append(line)
        else:  # dropped while it was in use
            going = asyncio.get_running_loop().create_task(line.close())
            self._going.add(going)
            going.add_done_callback(self._going.discard)

    async def drop(self) -> None:
        """Those that are free are closed; those in use are as soon as they have their answer."""
        left = [line for line in self._lines if line.is_left]
        free, self._free = self._free, []
        self._lines.clear()
        for line in [*free, *left]:
            await line.close()

    async def _open(self) -> _Open:
        made = self._make()
        try:
            await heeding(made.connect())
        except BaseException:
            await made.disconnect(nowait=True)
            raise
        writer = made._writer  # noqa: SLF001 - what it is opened for
        if writer is None:
            raise vendor.ConnectionError(CLOSED)
        line = _Open(made, writer.transport, self._seconds, self._freed)
        self._lines.add(line)
        return line
