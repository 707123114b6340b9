"""A port for Prometheus and health checks alone: what a process without an API serves.

Small on purpose: GET and HEAD of a few paths, one answer a connection, bounded in size and time.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Self, TypeAlias
from urllib.parse import unquote

import msgspec

from penstock.api.access import is_loopback
from penstock.api.actuator import health_of, metric_of, metrics_of
from penstock.api.grants import Grant, Scope
from penstock.api.http.auth import Guard
from penstock.api.http.errors import error_answer
from penstock.api.http.listen import listen_first, url_of
from penstock.flow.worker import Worker
from penstock.model.errors import ConfigError, Malformed, PenstockError, UnknownThing
from penstock.model.status_view import summary_of
from penstock.rooms.parts import RoomParts
from penstock.settings import ApiSettings
from penstock.settings.ports import PortRange
from penstock.telemetry.metrics import CONTENT_TYPE, render
from penstock.telemetry.rooms import render_rooms
from penstock.wiring import Parts

log = logging.getLogger("penstock.metrics")

MAX_HEAD = 16 * 1024
"""Bytes of a request's head at most."""
PATIENCE = 10.0
"""Seconds one request may take."""
MAX_CONNECTIONS = 50
JSON = "application/json"
METER = "/actuator/metrics/"


@dataclass(frozen=True, slots=True)
class _Reply:
    status: int
    media: str
    body: bytes


_Path: TypeAlias = tuple[Scope, Callable[[Grant], Awaitable[_Reply]]]


class ScrapeServer:
    """`/metrics`, `/healthz`, `/readyz` and `/actuator/*` of one process.

    `async with ScrapeServer(…)` serves until the block is left.
    """

    def __init__(
        self,
        where: PortRange,
        setting: str,
        parts: Parts,
        worker: Worker | None = None,
        rooms: RoomParts | None = None,
        *,
        insecure: bool = False,
    ) -> None:
        """Take the port; ConfigError says what cannot work."""
        tokens = parts.settings.api.tokens
        if not (tokens or insecure or is_loopback(where.host)):
            raise ConfigError(
                f"{setting}: refusing to listen on {where} without tokens, since anybody who"
                " reaches it could read it. Set api.tokens, bind 127.0.0.1, or pass --insecure"
            )
        self._guard = Guard(
            ApiSettings(http=f"{where.host}:{where.first}", tokens=tokens), insecure=insecure
        )
        self._parts = parts
        self._worker = worker
        self._rooms = rooms
        self._status = parts.status()
        self._socket = listen_first(where.host, where.ports, setting)
        self._server: asyncio.Server | None = None
        self._open = 0
        self._paths: Mapping[str, _Path] = {
            "/metrics": (Scope.METRICS, self._metrics),
            "/healthz": (Scope.OPEN, self._healthz),
            "/readyz": (Scope.OPEN, self._readyz),
        }
        if rooms is not None:
            self._paths = {**self._paths, **self._actuator(rooms)}

    @property
    def url(self) -> str:
        """Where Prometheus finds it."""
        host, port = self._socket.getsockname()[:2]
        return f"{url_of(host, port)}/metrics"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._serve, sock=_given(self._socket), limit=MAX_HEAD
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
        self._socket.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                async with asyncio.timeout(PATIENCE):
                    await self._answer(reader, writer)
        except (TimeoutError, ConnectionError, asyncio.IncompleteReadError) as exc:
            log.debug("a client left or was too slow: %s", type(exc).__name__)
        finally:
            self._open -= 1
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method = ""
        try:
            method, path, headers = _parse(await reader.readuntil(b"\r\n\r\n"))
            reply = await self._reply(method, path, headers)
        except asyncio.LimitOverrunError:
            reply = _refusal(Malformed("the request's head is too long"))
        except PenstockError as exc:
            reply = _refusal(exc)
        body = b"" if method == "HEAD" else reply.body
        head = (
            f"HTTP/1.1 {reply.status} {HTTPStatus(reply.status).phrase}\r\n"
            f"content-type: {reply.media}\r\ncontent-length: {len(reply.body)}\r\n"
            "x-content-type-options: nosniff\r\ncache-control: no-store\r\n"
            "connection: close\r\n\r\n"
        )
        writer.write(head.encode() + body)
        await writer.drain()

    async def _reply(self, method: str, path: str, headers: Mapping[bytes, bytes]) -> _Reply:
        self._guard.check_host(headers.get(b"host"))
        if method in {"GET", "HEAD"} and path.startswith(METER) and self._rooms is not None:
            return self._meter(path.removeprefix(METER), self._rooms, headers)
        if path not in self._paths or method not in {"GET", "HEAD"}:
            raise UnknownThing(f"only GET of {', '.join(self._paths)} is answered here")
        scope, answer = self._paths[path]
        self._guard.check_token(headers.get(b"authorization"), scope)
        return await answer(self._guard.grant(headers.get(b"authorization")))

    def _actuator(self, rooms: RoomParts) -> Mapping[str, _Path]:
        async def health(grant: Grant) -> _Reply:
            details = grant.sees_details
            found = await health_of(self._parts.store, rooms, details=details)
            return _Reply(found.code, JSON, msgspec.json.encode(found))

        async def names(_: Grant) -> _Reply:
            return _Reply(200, JSON, msgspec.json.encode(metrics_of(rooms)))

        async def prometheus(_: Grant) -> _Reply:
            return _Reply(200, CONTENT_TYPE, render_rooms(rooms))

        return {
            "/actuator/health": (Scope.OPEN, health),
            "/actuator/metrics": (Scope.READ, names),
            "/actuator/prometheus": (Scope.READ, prometheus),
        }

    def _meter(self, name: str, rooms: RoomParts, headers: Mapping[bytes, bytes]) -> _Reply:
        self._guard.check_token(headers.get(b"authorization"), Scope.READ)
        return _Reply(200, JSON, msgspec.json.encode(metric_of(rooms, unquote(name))))

    async def _metrics(self, _: Grant) -> _Reply:
        text = render(self._parts.observer, worker=self._worker, rooms=self._rooms)
        return _Reply(200, CONTENT_TYPE, text)

    async def _healthz(self, _: Grant) -> _Reply:
        return _Reply(200, JSON, b'{"status":"ok"}')

    async def _readyz(self, grant: Grant) -> _Reply:
        readiness = await self._status.readiness()
        status = 200 if readiness.error is None else 503
        shown = readiness if grant.sees_details else summary_of(readiness)
        return _Reply(status, JSON, msgspec.json.encode(shown))


def _given(listener: socket.socket) -> socket.socket:
    """A copy for asyncio, which closes what it is given."""
    return listener.dup()


def _parse(head: bytes) -> tuple[str, str, dict[bytes, bytes]]:
    first, *lines = head.rstrip().split(b"\r\n")
    try:
        method, target, version = first.decode("ascii").split(" ")
    except ValueError as exc:
        raise Malformed("this is no HTTP request") from exc
    if not version.startswith("HTTP/1."):
        raise Malformed("this is no HTTP request")
    headers = {}
    for line in lines:
        name, _, value = line.partition(b":")
        headers[name.strip().lower()] = value.strip()
    return method, target.partition("?")[0], headers


def _refusal(exc: PenstockError) -> _Reply:
    answer = error_answer(exc)
    return _Reply(answer.status, answer.media, answer.body)
