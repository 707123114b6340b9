"""Connections for script calls alone, without what redis-py does around every command.

A pool with locks, time-outs and hooks costs redis-py several times the CPU of the call itself, and
scripts are nearly all that a store says. So a few connections are kept here: redis-py opens them
(TLS, login, database), and then a call is one write and one answer. One that failed in any way, or
that the server has closed meanwhile, is not used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

import hiredis
from redis import exceptions as vendor
from redis._parsers.base import BaseParser

Argument: TypeAlias = bytes | str | int

CLOSED = "the connection was closed as it was opened"
_MORE = object()
T = TypeVar("T")


def packed(command: Sequence[Argument]) -> bytes:
    """The command as it is sent."""
    # hiredis takes a tuple of any length; its stub says of one.
    data: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]
    return data


def packed_beginning(command: Sequence[Argument]) -> bytes:
    """The first part of a command whose last four arguments follow as `packed_end`."""
    return b"*%d\r\n" % (len(command) + 4) + packed(command).partition(b"\r\n")[2]


def packed_end(one: bytes, two: bytes, three: bytes, four: bytes) -> bytes:
    """The last four arguments of a command."""
    return b"$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        len(one),
        one,
        len(two),
        two,
        len(three),
        three,
        len(four),
        four,
    )


class Line(Protocol):
    """A connection of redis-py's, with the stream it has opened."""

    _writer: asyncio.StreamWriter | None

    async def connect(self) -> None: ...

    async def disconnect(self, nowait: bool = False) -> None: ...


class _Open(asyncio.Protocol):
    """An open connection, read here without redis-py's stream and time-outs.

    One timer per connection, not per call: it checks whether a call has waited too long.
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
        """Send one command, its answer a future; None if the connection cannot be used any more.

        A caller that is cancelled leaves the line busy until the answer has come.
        """
        if self._transport.is_closing() or self._answers.has_data():  # an answer to no command
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
            self._transport.close()  # an answer to no command
            return
        self._freed(self)
        if waiting.done():  # the caller was cancelled
            return
        if isinstance(answer, Exception):
            waiting.set_exception(answer)
        else:
            waiting.set_result(answer)

    def connection_lost(self, exc: Exception | None) -> None:
        self._fail(exc or vendor.ConnectionError("the server has closed the connection"))

    def _look(self) -> None:
        """Time out the call under way if its time is over."""
        self._timer = None
        if self._waiting is None:
            return
        if self._loop.time() < self._until:  # by another call than the one it was set for
            self._timer = self._loop.call_at(self._until, self._look)
        else:
            self._fail(vendor.TimeoutError(f"no answer in {self._seconds:g} s"))

    @property
    def is_left(self) -> bool:
        """The caller was cancelled; the answer has not come."""
        return self._waiting is not None and self._waiting.done()

    def _fail(self, exc: Exception) -> None:
        """Close the connection and fail the call under way."""
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
    """Raise a cancellation that redis-py swallowed while it connected."""
    task = asyncio.current_task()
    before = 0 if task is None else task.cancelling()
    try:
        return await asked
    finally:
        if task is not None and task.cancelling() > before:
            raise asyncio.CancelledError


class Lines:
    """A pool of such connections; the one that was freed last is used first."""

    def __init__(self, make: Callable[[], Line], *, most: int, seconds: float) -> None:
        self._make = make
        self._most = most
        self._seconds = seconds
        self._lines: set[_Open] = set()
        self._free: list[_Open] = []
        """Without a call under way; one that has failed is found when it is taken."""
        self._used = 0
        self._going: set[asyncio.Task[None]] = set()

    @property
    def has_one(self) -> bool:
        return self._used < self._most

    def ask(self, command: Sequence[Argument]) -> Awaitable[Any]:
        """The answer; raises errors of the server and of the connection."""
        data = packed(command)
        answer = self.quick(data)
        if answer is not None:
            return answer
        self._used += 1  # before it is awaited: many may be made at once
        return self._ask_another(data)

    def quick(self, command: bytes) -> asyncio.Future[Any] | None:
        """Send a packed command over a free line; None, and nothing sent, if there is none."""
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
        """Send over this line; close it if it cannot be used."""
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
        """Close the free lines, and those in use as soon as they have their answer."""
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
