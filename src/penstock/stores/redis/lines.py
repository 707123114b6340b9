"""Connections for script calls alone, without what redis-py does around every command.

A pool with locks, time-outs and hooks costs redis-py several times the CPU of the call itself, and
scripts are nearly all that a store says. So a few connections are kept here: redis-py opens them
(TLS, login, database), and then a call is one write and one answer. One that failed in any way, or
that the server has closed meanwhile, is not used again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import hiredis
from redis import exceptions as vendor
from redis._parsers.base import BaseParser

from penstock.stores.redis.packing import Argument, packed

READ = 65_536
_MORE = object()


class Line(Protocol):
    """A connection of redis-py's, with the streams it has opened."""

    _reader: asyncio.StreamReader | None
    _writer: asyncio.StreamWriter | None

    async def connect(self) -> None: ...

    async def disconnect(self, nowait: bool = False) -> None: ...


class _Open:
    """A line that is open."""

    def __init__(
        self, line: Line, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._line = line
        self._reader = reader
        self._writer = writer
        self._answers = hiredis.Reader(
            protocolError=vendor.InvalidResponse,
            replyError=BaseParser.parse_error,
            notEnoughData=_MORE,
        )

    @property
    def is_sound(self) -> bool:
        """Nobody has closed it, and nothing stands in it that nobody asked for."""
        return not (self._reader.at_eof() or self._writer.is_closing() or self._answers.has_data())

    async def ask(self, command: Sequence[Argument], seconds: float) -> Any:
        self._writer.write(packed(command))
        gets, read, feed = self._answers.gets, self._reader.read, self._answers.feed
        try:
            async with asyncio.timeout(seconds):
                while (answer := gets()) is _MORE:
                    data = await read(READ)
                    if not data:
                        raise vendor.ConnectionError("the server has closed the connection")
                    feed(data)
        except TimeoutError as exc:
            raise vendor.TimeoutError(f"no answer in {seconds:g} s") from exc
        return answer

    async def close(self) -> None:
        await self._line.disconnect(nowait=True)


class Lines:
    """At most so many; those that are free are used again, the last one first."""

    def __init__(self, make: Callable[[], Line], *, most: int, seconds: float) -> None:
        self._make = make
        self._most = most
        self._seconds = seconds
        self._free: list[_Open] = []
        self._used = 0

    @property
    def has_one(self) -> bool:
        return self._used < self._most

    async def ask(self, command: Sequence[Argument]) -> Any:
        """The answer; what the server refuses, and what keeps it from answering, is raised."""
        self._used += 1
        try:
            line = await self._take()
            try:
                answer = await line.ask(command, self._seconds)
            except BaseException:
                await line.close()  # whatever it still says is nobody's answer
                raise
            self._free.append(line)
        finally:
            self._used -= 1
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def drop(self) -> None:
        """Those that are free are closed; those in use are when they fail."""
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
        await made.connect()
        reader, writer = made._reader, made._writer  # noqa: SLF001 - what it is opened for
        if reader is None or writer is None:
            raise vendor.ConnectionError("the connection was closed as it was opened")
        return _Open(made, reader, writer)
