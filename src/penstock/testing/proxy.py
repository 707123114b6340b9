"""A TCP proxy that can cut, hang and delay connections, for tests of drivers."""

from __future__ import annotations

import asyncio
from typing import Self

_PIECE = 65_536


class Proxy:
    """Forwards bytes to a server, unless set to misbehave. Use it as a context manager."""

    def __init__(self, host: str, port: int) -> None:
        self._target = host, port
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flows = asyncio.Event()
        self._flows.set()
        self._refuses = False
        self._lost_answers = 0
        self._answers_first = 0
        self.delay = 0.0
        """Seconds by which every piece of an answer is delayed."""
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            await asyncio.sleep(0)  # the latest connections are then in `_tasks`
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Close every connection; new ones are accepted."""
        for writer in self._open:
            writer.transport.abort()
        self._open.clear()

    def lead_to(self, host: str, port: int) -> None:
        """Cut every connection, and forward new ones to this server."""
        self._target = host, port
        self.cut()

    def refuse(self, refuses: bool = True) -> None:
        """Cut every connection, and refuse new ones until `refuse(False)`."""
        self._refuses = refuses
        if refuses:
            self.cut()

    def hang(self) -> None:
        """Forward nothing, in either direction, until `flow`."""
        self._flows.clear()

    def flow(self) -> None:
        self._flows.set()

    def lose_answers(self, number: int = 1, *, after: int = 0) -> None:
        """Forward requests, and cut the connection instead of the next `number` answers.

        The `after` answers before them are forwarded; `number` 0 ends it.
        """
        self._lost_answers = number
        self._answers_first = after

    def _loses(self) -> bool:
        if self._lost_answers <= 0:
            return False
        if self._answers_first > 0:
            self._answers_first -= 1
            return False
        self._lost_answers -= 1
        return True

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        if self._refuses:
            writer.transport.abort()
            return
        try:
            behind, ahead = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        except asyncio.CancelledError:
            writer.transport.abort()
            raise
        ends = {writer, ahead}
        self._open |= ends
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, ahead, ends))
                group.create_task(self._pass(behind, writer, ends, answers=True))
        finally:
            for end in ends:
                end.transport.abort()
            self._open -= ends

    async def _pass(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        ends: set[asyncio.StreamWriter],
        *,
        answers: bool = False,
    ) -> None:
        try:
            while piece := await source.read(_PIECE):
                await self._flows.wait()
                if answers and self._loses():
                    break
                if answers and self.delay:
                    await asyncio.sleep(self.delay)
                target.write(piece)
                await target.drain()
        except ConnectionError:
            pass  # a peer disconnected: the proxy closes the other side
        for end in ends:
            end.transport.abort()
