"""Parses a connection's bytes into requests, one value each."""

from __future__ import annotations

import socket
import time
from urllib.parse import unquote

import httptools
import msgspec

from penstock.model.envelope import ATTEMPT, ID


class Received(msgspec.Struct, frozen=True, kw_only=True):
    """One request as received."""

    id: str
    attempt: int
    at: int
    """Epoch milliseconds of its arrival."""
    method: str
    path: str
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes
    connection: int
    """Requests of one connection share this number."""


class Requests:
    """Bytes of one connection → requests; a body is cut at `max_body`."""

    def __init__(self, connection: int, *, max_body: int | None = None) -> None:
        self._connection = connection
        self._max_body = max_body
        self._parser = httptools.HttpRequestParser(self)
        self._complete: list[Received] = []

    def feed(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def complete(self) -> list[Received]:
        done, self._complete = self._complete, []
        return done

    def on_message_begin(self) -> None:
        self._path = ""
        self._headers: dict[str, str] = {}
        self._body = bytearray()

    def on_url(self, url: bytes) -> None:
        self._path += url.decode()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode().lower()] = value.decode()

    def on_body(self, body: bytes) -> None:
        if self._max_body is None or len(self._body) < self._max_body:
            self._body += body

    def on_message_complete(self) -> None:
        attempt = self._headers.get(ATTEMPT, "")
        self._complete.append(
            Received(
                id=self._headers.get(ID, ""),
                attempt=int(attempt) if attempt.isdecimal() else 0,
                at=time.time_ns() // 1_000_000,
                method=self._parser.get_method().decode(),
                path=unquote(self._path),
                headers=self._headers,
                body=bytes(self._body),
                connection=self._connection,
            )
        )


LOOPBACK = "127.0.0.1"


def bound(port: int, host: str = LOOPBACK) -> socket.socket:
    """A socket on this port (0: a free one), not listening yet."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)  # without delay
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind((host, port))
    return sock
