"""Calls carried by http.client, for programs without an event loop."""

from __future__ import annotations

import base64
import http.client
import select
import ssl
import sys
import time
from collections import deque
from typing import Any, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from penstock.sdk.calls import Call
from penstock.sdk.transport import KEEP_ALIVE, NoReply, Reply, Wiring, proxy_for, trust

Idle: TypeAlias = tuple[http.client.HTTPConnection, float]


class SyncLink:
    """Connections that are kept between calls: safe to use from many threads, one each."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._server = urlsplit(wiring.url)
        proxy = proxy_for(wiring.url)
        self._proxy = None if proxy is None else urlsplit(proxy)
        self._headers = wiring.headers()
        if self._proxy is not None and self._server.scheme == "http":
            self._headers |= login(self._proxy)
        self._context: ssl.SSLContext | None = None
        self._idle: deque[Idle] = deque()
        self._closed = False

    def carry(self, call: Call[Any]) -> Reply:
        """Send it once; NoReply when no answer arrived."""
        if self._closed:
            raise RuntimeError("the client has been closed")
        connection = self._take() or self._open()
        try:
            reply, stays = self._exchange(connection, call)
        except BaseException:
            connection.close()
            raise
        if stays and not self._closed:
            self._idle.append((connection, time.monotonic()))
        else:
            connection.close()
        return reply

    def close(self) -> None:
        self._closed = True
        while (idle := self._pop()) is not None:
            idle[0].close()

    def _exchange(
        self, connection: http.client.HTTPConnection, call: Call[Any]
    ) -> tuple[Reply, bool]:
        """The answer, and whether the connection can be used again."""
        try:
            headers = {**self._headers, **call.headers()}
            connection.request(call.method, self._target(call), call.body, headers)
            if call.bulk:
                connection.sock.settimeout(None)
            answer = connection.getresponse()
            body = answer.read()
        except TimeoutError as exc:
            raise NoReply(str(exc) or "timeout", late=True) from exc
        except (OSError, http.client.HTTPException) as exc:
            raise NoReply(str(exc) or type(exc).__name__) from exc
        if call.bulk and connection.sock is not None:
            connection.sock.settimeout(self._wiring.timeout)
        stays = connection.sock is not None and not answer.will_close
        return Reply(answer.status, body, answer.headers.get("retry-after")), stays

    def _target(self, call: Call[Any]) -> str:
        whole = self._wiring.target(call)
        if self._proxy is not None and self._server.scheme == "http":
            return whole  # who passes it on must know to whom
        return whole.removeprefix(f"{self._server.scheme}://{self._server.netloc}")

    def _take(self) -> http.client.HTTPConnection | None:
        """The one used last, if it is still open."""
        while (idle := self._pop()) is not None:
            connection, since = idle
            if time.monotonic() - since < KEEP_ALIVE and not _has_ended(connection):
                return connection
            connection.close()
        return None

    def _pop(self) -> Idle | None:
        try:
            return self._idle.pop()
        except IndexError:  # none there, or another thread was quicker
            return None

    def _open(self) -> http.client.HTTPConnection:
        connection = self._new()
        connection.auto_open = 0  # a request goes over the connection it was given, or not at all
        try:
            connection.connect()
        except (OSError, http.client.HTTPException) as exc:
            connection.close()
            untrusted = isinstance(exc, ssl.SSLCertVerificationError)
            words = str(exc) or type(exc).__name__
            raise NoReply(words, reached=False, untrusted=untrusted) from exc
        return connection

    def _new(self) -> http.client.HTTPConnection:
        server, proxy, timeout = self._server, self._proxy, self._wiring.timeout
        first = server if proxy is None else proxy
        host, port = first.hostname or "", first.port
        if server.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=timeout)
        if self._context is None:
            self._context = trust(self._wiring.ca)
        if proxy is None:
            return http.client.HTTPSConnection(host, port, timeout=timeout, context=self._context)
        through = http.client.HTTPSConnection(
            host, port or http.client.HTTP_PORT, timeout=timeout, context=self._context
        )
        through.set_tunnel(server.hostname or "", server.port, login(proxy))
        return through


def _has_ended(connection: http.client.HTTPConnection) -> bool:
    """True if the server closed it: between calls nothing is sent, so readable data means the
    end.
    """
    if connection.sock is None:
        return True
    if sys.platform == "win32":
        return bool(select.select([connection.sock], [], [], 0)[0])
    watch = select.poll()
    watch.register(connection.sock, select.POLLIN)
    return bool(watch.poll(0))


def login(proxy: SplitResult) -> dict[str, str]:
    """The credentials of a proxy's URL, as a header."""
    if proxy.username is None:
        return {}
    words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"proxy-authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}
