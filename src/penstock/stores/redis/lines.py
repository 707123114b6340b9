"""Connections for script calls alone, without what redis-py does around every command.

A pool with locks, time-outs and hooks costs redis-py several times the CPU of the call itself, and
scripts are nearly all that a store says. So a few connections are kept here: redis-py opens them
(TLS, login, database), and then a call is one write and one answer. One that failed in any way, or
that the server has closed meanwhile, is not used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeVar

import hiredis
from redis import exceptions as vendor
from redis._parsers.base import BaseParser

from penstock.stores.redis.packing import Argument, packed

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

    def __init__(self, line: Line, transport: asyncio.WriteTransport, seconds: float) -> None:
        self._line = line
        self._transport = transport
        self._seconds = seconds
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

    @property
    def is_sound(self) -> bool:
        """Nobody has closed it, and nothing stands in it that nobody asked for."""
        return not (self._transport.is_closing() or self._answers.has_data())

    def ask(self, command: Sequence[Argument]) -> asyncio.Future[Any]:
        """What the answer will be; one at a time."""
        waiting = self._waiting = self._loop.create_future()
        self._until = self._loop.time() + self._seconds
        if self._timer is None:
            self._timer = self._loop.call_at(self._until, self._look)
        self._transport.write(packed(command))
        return waiting

    def data_received(self, data: bytes) -> None:
        self._answers.feed(data)
        try:
            answer = self._answers.gets()
        except vendor.RedisError as exc:
            self._fail(exc)
            return
        if answer is not _MORE:
            waiting, self._waiting = self._waiting, None
            if waiting is None:
                self._transport.close()  # nobody asked
            elif not waiting.done():
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

    def _fail(self, exc: Exception) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
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
        self._free: list[_Open] = []
        self._used = 0
        self._dropped = 0

    @property
    def has_one(self) -> bool:
        return self._used < self._most

    async def ask(self, command: Sequence[Argument]) -> Any:
        """The answer; what the server refuses, and what keeps it from answering, is raised."""
        self._used += 1
        dropped = self._dropped
        try:
            line = await self._take()
            try:
                answer = await line.ask(command)
            except BaseException:
                await line.close()  # whatever it still says is nobody's answer
                raise
            if dropped == self._dropped:
                self._free.append(line)
            else:
                await line.close()
        finally:
            self._used -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def drop(self) -> None:
        """Those that are free are closed; those in use are as soon as they have their answer."""
        self._dropped += 1
        free, self._free = self._free, []
        for line in free:
            await line.close()

    async def _take(self) -> _Open:
        while self._free:
            line = self._free.pop()
            if line.is_sound:
                return line
            await line.close()
        made = self._make()
        try:
            await heeding(made.connect())
        except BaseException:
            await made.disconnect(nowait=True)
            raise
        writer = made._writer  # noqa: SLF001 - what it is opened for
        if writer is None:
            raise vendor.ConnectionError("the connection was closed as it was opened")
        return _Open(made, writer.transport, self._seconds)
