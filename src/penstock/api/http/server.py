"""uvicorn inside our own loop: no signal handlers, a port bound before anything starts."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from email.utils import formatdate
from functools import partial
from typing import Any, Self, cast

import uvicorn

from penstock.api.access import split_host_port
from penstock.api.http.auth import Guard
from penstock.api.http.connection import BoundedProtocol, Pulse
from penstock.api.http.context import MAX_IN_FLIGHT, Api, Everyone
from penstock.api.http.hot import HotProtocol, HotRoutes, KnownHeads
from penstock.api.http.listen import listen, url_of
from penstock.api.http.router import Router, build_app
from penstock.api.tls import ServerTls, server_tls
from penstock.api.verbs import Mount
from penstock.flow.worker import Worker
from penstock.rooms.parts import RoomParts
from penstock.wiring import Parts

log = logging.getLogger("penstock.http")

EVERY_ANSWER = [("x-content-type-options", "nosniff")]


class Serving:
    """A server on a port: `async with` serves until the block is left.

    Or call `run()` and, from elsewhere, `stop()`.
    """

    def __init__(self, api: Api, server: Server) -> None:
        self.api = api
        self._server = server
        self._task: asyncio.Task[None] | None = None

    def bind(self) -> socket.socket:
        """The listening socket; ConfigError when the port cannot be had."""
        raise NotImplementedError

    async def run(self) -> None:
        """Serve until stop()."""
        await self._server.serve(sockets=[self.bind()])

    def stop(self) -> None:
        """Take no more connections, answer the requests received, then let run() return."""
        self.api.closing.set()

    async def __aenter__(self) -> Self:
        self.bind()
        self._task = asyncio.get_running_loop().create_task(self.run())
        while not self._server.started and not self._task.done():  # noqa: ASYNC110 - a few turns of the loop
            await asyncio.sleep(0)
        if self._task.done():
            await self._task
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        if self._task is not None:
            await self._task


class HttpServer(Serving):
    """The HTTP API of one process.

    Nothing acknowledged is lost by stopping: requests received before are answered first, within
    `shutdown` milliseconds.
    """

    def __init__(
        self,
        parts: Parts,
        worker: Worker | None = None,
        *,
        rooms: RoomParts | None = None,
        insecure: bool = False,
        shutdown: int | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        mounts: Iterable[Mount] = (),
        listener: socket.socket | None = None,
        everyone: Everyone | None = None,
    ) -> None:
        """Check the settings; ConfigError names the ones that cannot work.

        `mounts` are the verbs and pages of parts beside the core: they answer like the core's own.
        With a `listener` it is one of several processes on a port, and `everyone` collects their
        metrics.
        """
        settings = parts.settings.api
        guard = Guard(settings, insecure=insecure)
        api = Api(
            *(parts, guard, worker, max_in_flight),
            rooms=rooms,
            mounts=tuple(mounts),
            everyone=everyone,
        )
        guard.warn()
        if rooms is not None:
            rooms.on_turn(api.visitors.let_in)
        self._host, self._port = split_host_port(settings.http)
        self._tls = server_tls(settings)
        self._socket = listener
        pulse = Pulse(settings)
        self.known: KnownHeads = {}
        protocol = partial(
            HotProtocol, pulse=pulse, api=api, routes=HotRoutes(api), known=self.known
        )
        wait = parts.settings.worker.shutdown if shutdown is None else shutdown
        server = Server(build_app(api), protocol, pulse, api.closing, wait, self._tls)
        super().__init__(api, server)

    @property
    def address(self) -> tuple[str, int]:
        """The address it listens on; the number of port 0 is known once it is bound."""
        if self._socket is None:
            return self._host, self._port
        return self._host, self._socket.getsockname()[1]

    @property
    def url(self) -> str:
        return url_of(*self.address, "http" if self._tls is None else "https")

    def bind(self) -> socket.socket:
        if self._socket is None:
            self._socket = listen(self._host, self._port, "api.http")
        return self._socket

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        beside = [loop.create_task(self.api.live.run())]
        if self.api.rooms is not None:
            watching = self.api.visitors.watch_turns(self.api.rooms.store)
            beside.append(loop.create_task(watching))
        try:
            await super().run()
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)
            self.api.audit.flush()


class Server(uvicorn.Server):
    """uvicorn's server, stopped by an event, with one sweep over its connections."""

    def __init__(
        self,
        app: Router,
        protocol: Callable[..., BoundedProtocol],
        pulse: Pulse,
        closing: asyncio.Event,
        patience: int,
        tls: ServerTls | None = None,
    ) -> None:
        """`patience`: milliseconds that requests under way have to end."""
        config = uvicorn.Config(
            cast("Any", app),  # uvicorn's own types of ASGI are not public
            http=cast("type[asyncio.Protocol]", protocol),  # called like the class
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            headers=EVERY_ANSWER,
            ssl_context_factory=None if tls is None else lambda *_: tls.context,
        )
        super().__init__(config)
        self._tls = tls
        self._patience = patience / 1000
        self._pulse = pulse
        self._closing = closing

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the process's business, not the API's."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        self._beat()
        await super().startup(sockets)

    async def main_loop(self) -> None:
        while not self._closing.is_set():
            self._beat()
            if self._tls is not None:
                self._tls.refresh()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), self._pulse.period)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Take no new requests, answer those received, and past the deadline cut the rest."""
        for server in self.servers:
            server.close()
        for listener in sockets or []:
            listener.close()
        state = self.server_state
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        for connection in self._connections():
            connection.shutdown()
        while (state.connections or state.tasks) and loop.time() < deadline:
            await asyncio.sleep(0.01)
            for connection in self._connections():
                connection.shutdown()
        tasks = list(state.tasks)
        if tasks:
            log.warning("cutting %d requests that did not end in %g s", len(tasks), self._patience)
        for task in tasks:
            task.cancel()
        for connection in self._connections():
            connection.transport.abort()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)  # the loop notifies aborted connections that they are lost

    def _beat(self) -> None:
        date = (b"date", formatdate(time.time(), usegmt=True).encode())
        self.server_state.default_headers = [date, *self.config.encoded_headers]
        now = asyncio.get_running_loop().time()
        self._pulse.beat(now, self.server_state.default_headers)
        if self._pulse.turned_away:
            log.warning(
                "%d connections were refused with 503: api.max_connections or the limit of open"
                " files is reached",
                self._pulse.turned_away,
            )
            self._pulse.turned_away = 0
        for connection in self._connections():
            connection.look_after(now)

    def _connections(self) -> list[BoundedProtocol]:
        return cast("list[BoundedProtocol]", list(self.server_state.connections))
