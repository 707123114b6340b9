"""A real HTTP server that stands in for a receiver of webhooks.

It records requests and answers as configured: well, badly, or not at all. In a program:

    async with Receiver() as receiver:
        receiver.then(Reply(status=500), Reply(how=How.CUT))   # the next two requests
        … send to receiver.url …
        await receiver.wait_for(3)

For one in a process of its own see `receiver_process`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Self

import httptools

from penstock.sim.replies import OK, Reply, answer
from penstock.sim.requests import Received, Requests, bound


class Receiver:
    """Listens on a free port of the loopback; down() and up() keep the address."""

    def __init__(
        self, *, port: int = 0, on_received: Callable[[Received], None] | None = None
    ) -> None:
        self.received: list[Received] = []
        self._on_received = on_received
        self._always = OK
        self._next: deque[Reply] = deque()
        self._server: asyncio.Server | None = None
        self._talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self._arrived = asyncio.Condition()
        self._connections = 0
        # Bound and never listening: reserves the port while the server is down.
        self._holder = bound(port)
        self.port: int = self._holder.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def always(self, reply: Reply) -> None:
        """Answer this way from now on."""
        self._next.clear()
        self._always = reply

    def then(self, *replies: Reply) -> None:
        """Answer the next requests these ways, one each, then as set by `always`."""
        self._next.extend(replies)

    async def wait_for(self, number: int) -> list[Received]:
        """All requests received, once there are at least that many."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.received) >= number)
            return list(self.received)

    async def up(self) -> None:
        if self._server is None:
            self._server = await asyncio.start_server(self._talk, sock=bound(self.port))

    async def down(self) -> None:
        """Stop listening and cut every connection: new ones are refused."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task, writer in self._talks.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*self._talks, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.up()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.down()
        self._holder.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a server's handler runs in a task"  # noqa: S101 - for the type
        self._talks[task] = writer
        self._connections += 1
        requests = Requests(self._connections)
        try:
            while data := await reader.read(65_536):
                requests.feed(data)
                for request in requests.complete():
                    reply = await self.take(request)
                    if not await answer(reply, reader, writer):
                        return
        except (ConnectionError, httptools.HttpParserError):
            return
        except asyncio.CancelledError:
            return  # only down() cancels; Python 3.11 would log a cancelled handler as a fault
        finally:
            del self._talks[task]
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def take(self, request: Received) -> Reply:
        """Record the request and choose its reply."""
        self.received.append(request)
        if self._on_received is not None:
            self._on_received(request)
        async with self._arrived:
            self._arrived.notify_all()
        return self._next.popleft() if self._next else self._always
