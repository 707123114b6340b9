"""A TCP gate before a server: it can refuse, swallow answers, or cut, and open again."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Literal, Self

Mode = Literal["pass", "hang", "cut"]
CHUNK = 256 * 1024


class Gate:
    """Listens on `port` and passes on to `target`; both on loopback.

    refuse: nobody listens. hang: what comes is passed on, no answer comes back.
    cut: the first answer ends the connection instead.
    """

    def __init__(self, port: int, target: int) -> None:
        self.port = port
        self._target = target
        self._mode: Mode = "pass"
        self._server: asyncio.Server | None = None
        self._lines: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self.refuse()

    async def open(self) -> None:
        self._mode = "pass"
        if self._server is None:
            self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)

    async def refuse(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        await self._cut_all()

    def hang(self) -> None:
        self._mode = "hang"

    def cut(self) -> None:
        self._mode = "cut"

    async def recover(self) -> None:
        """As good as new: connections that lost an answer are of no use any more."""
        if self._mode != "pass":
            await self._cut_all()
        await self.open()

    async def _cut_all(self) -> None:
        lines = list(self._lines)
        for line in lines:
            line.cancel()
        await asyncio.gather(*lines, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._lines.add(task)
        there: asyncio.StreamWriter | None = None
        try:
            from_there, there = await asyncio.open_connection("127.0.0.1", self._target)
            ways = [
                asyncio.ensure_future(self._pass(reader, there)),
                asyncio.ensure_future(self._answer(from_there, writer)),
            ]
            try:
                await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for way in ways:
                    way.cancel()
                await asyncio.gather(*ways, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            return  # the line is over, whoever ended it
        finally:
            self._lines.discard(task)
            for end in (writer, there):
                if end is not None:
                    end.transport.abort()

    async def _pass(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK):
            target.write(data)
            await target.drain()

    async def _answer(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(CHUNK):
            if self._mode == "cut":
                return
            if self._mode == "pass":
                target.write(data)
                await target.drain()
