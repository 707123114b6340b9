"""grpc.aio inside our own loop: no threads of ours, a port bound before anything starts."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from typing import Any, Self, cast

import grpc
from grpc_health.v1 import health, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from penstock.api.access import Tokens, cannot_listen, split_host_port
from penstock.api.grpc.gate import Gate
from penstock.api.grpc.health import Health
from penstock.api.grpc.service import MAX_IN_FLIGHT, SERVICE, Beside, Scheduler
from penstock.api.tls import server_tls
from penstock.model.errors import ConfigError
from penstock.v1 import scheduler_pb2
from penstock.wiring import Parts

log = logging.getLogger("penstock.grpc")

KEEPALIVE = 60_000
"""Milliseconds of silence after which the server pings a client."""
KEEPALIVE_ANSWER = 20_000
CLIENT_PINGS = 10_000
"""Shortest interval at which a client may ping the server."""
WINDOW = 1 << 20
"""Bytes a stream may send ahead of the reader. The library's own estimate grows to 32 MB per stream
on a busy machine, which is memory that no limit of ours would see.
"""

MESSAGE = 4 << 20
"""Bytes of one message on the wire unless a payload may be larger: gRPC's own default."""
ENVELOPE = 1 << 20
"""Bytes of headers, labels and the like beside a payload."""
OTHER_CALLS = 1_000
"""Calls in flight besides puts: streams, reads, health."""


class GrpcServer:
    """The gRPC API of one process; used like HttpServer.

    Stopping loses nothing acknowledged: calls received before are answered first, within `shutdown`
    milliseconds, and each stream's client learns how many of its messages are stored.
    """

    def __init__(
        self,
        parts: Parts,
        *,
        insecure: bool = False,
        shutdown: int | None = None,
        max_in_flight: int = MAX_IN_FLIGHT,
        beside: Sequence[Callable[[Scheduler], Beside]] = (),
        shared: bool = False,
    ) -> None:
        """Check the settings; ConfigError names the ones that cannot work.

        `beside`: other services to serve on this port, each made over the verbs of this one.
        `shared`: several processes of ours listen on this port.
        """
        api = parts.settings.api
        tokens = Tokens(api)
        tokens.check_bind("api.grpc", api.grpc, insecure=insecure)
        self._host, self._port = split_host_port(api.grpc)
        self._patience = (parts.settings.worker.shutdown if shutdown is None else shutdown) / 1000
        self._max_message = max_message(api.max_body, parts.settings.limits.max_payload)
        self._max_calls = max_in_flight + OTHER_CALLS
        self._gates = [Gate(tokens)] if tokens else []
        self._tls = server_tls(api)
        self._shared = shared
        self._scheduler = Scheduler(parts, tokens, max_in_flight)
        self._beside = [make(self._scheduler) for make in beside]
        self._health = Health(parts.status(), self.services)
        self._closing = asyncio.Event()
        self._started = asyncio.Event()
        self._server: grpc.aio.Server | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def address(self) -> str:
        """The address it listens on; the number of port 0 is known once it is bound."""
        return f"[{self._host}]:{self._port}" if ":" in self._host else f"{self._host}:{self._port}"

    @property
    def services(self) -> tuple[str, ...]:
        """Names of the services on this port, besides health and reflection."""
        return (SERVICE, *(service.name for service in self._beside))

    @property
    def in_flight(self) -> int:
        """Single puts received and not answered yet."""
        return self._scheduler.in_flight

    @property
    def streams(self) -> int:
        """Streams that are being read."""
        return len(self._scheduler.reading)

    def bind(self) -> grpc.aio.Server:
        """Take the port now; ConfigError when it cannot be had."""
        if self._server is None:
            if not self._shared:
                _check_free(self._host, self._port, self.address)
            server = self._build()
            try:
                self._port = self._add_port(server)
            except RuntimeError as exc:
                raise ConfigError(f"api.grpc: cannot listen on {self.address}: {exc}") from exc
            self._server = server
        return self._server

    def _add_port(self, server: grpc.aio.Server) -> int:
        tls = self._tls
        if tls is None:
            return server.add_insecure_port(self.address)

        def certificate() -> grpc.ServerCertificateConfiguration:
            return grpc.ssl_server_certificate_configuration([tls.pair()])

        def renewed() -> grpc.ServerCertificateConfiguration | None:
            """Called at every handshake; None: keep the certificate."""
            return certificate() if tls.refresh() else None

        credentials = grpc.dynamic_ssl_server_credentials(certificate(), cast("Any", renewed))
        return server.add_secure_port(self.address, credentials)

    async def run(self) -> None:
        """Serve until stop()."""
        server = self.bind()
        await self._health.look()
        await server.start()
        following = asyncio.get_running_loop().create_task(self._health.follow())
        try:
            self._started.set()
            await self._closing.wait()
            following.cancel()
            await self._health.enter_graceful_shutdown()
            self._scheduler.stop()
        finally:
            following.cancel()
            await server.stop(self._patience)
            self._scheduler.audit.flush()

    def stop(self) -> None:
        """Take no more calls, answer those received, then let run() return."""
        self._closing.set()

    async def __aenter__(self) -> Self:
        self.bind()
        loop = asyncio.get_running_loop()
        self._task = loop.create_task(self.run())
        started = loop.create_task(self._started.wait())
        await asyncio.wait({self._task, started}, return_when=asyncio.FIRST_COMPLETED)
        started.cancel()
        if self._task.done():
            await self._task
        return self

    async def __aexit__(self, *_: object) -> None:
        self.stop()
        if self._task is not None:
            await self._task

    def _build(self) -> grpc.aio.Server:
        server = grpc.aio.server(
            interceptors=self._gates,
            maximum_concurrent_rpcs=self._max_calls,
            options=(
                # else a port that another program has is an error
                ("grpc.so_reuseport", int(self._shared)),
                ("grpc.max_receive_message_length", self._max_message),
                ("grpc.keepalive_time_ms", KEEPALIVE),
                ("grpc.keepalive_timeout_ms", KEEPALIVE_ANSWER),
                ("grpc.http2.min_ping_interval_without_data_ms", CLIENT_PINGS),
                ("grpc.http2.bdp_probe", 0),
                ("grpc.http2.lookahead_bytes", WINDOW),
            ),
        )
        served = {SERVICE: self._scheduler.handlers()}
        served |= {service.name: service.handlers() for service in self._beside}
        server.add_generic_rpc_handlers(
            [grpc.method_handlers_generic_handler(name, calls) for name, calls in served.items()]
        )
        health_pb2_grpc.add_HealthServicer_to_server(self._health, server)
        names = (*self.services, health.SERVICE_NAME, reflection.SERVICE_NAME)
        reflection.enable_server_reflection(names, server, scheduler_pb2.DESCRIPTOR.pool)
        return server


def max_message(max_body: int, max_payload: int) -> int:
    """Bytes of one message on the wire: enough for one payload with all that belongs to it."""
    return min(max_body, max(MESSAGE, max_payload + ENVELOPE))


def _check_free(host: str, port: int, where: str) -> None:
    """Bind the port once, to get the system's reason: gRPC only says that it could not bind."""
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as exc:
            raise cannot_listen("api.grpc", where, exc) from exc
