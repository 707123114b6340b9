"""Calls carried by aiohttp, for programs with an event loop."""

from __future__ import annotations

from typing import Any, Self

import aiohttp
from yarl import URL

from penstock.sdk.calls import Call
from penstock.sdk.transport import KEEP_ALIVE, NoReply, Reply, Wiring, proxy_for, trust

CONNECTIONS = 100
SLOWEST = 16 * 1024
"""Bytes a second that a request is expected to leave with at least."""


class _Broke(aiohttp.ClientError):
    """The connection ended before the answer. By this name aiohttp does not ask a second time on

    its own: whether that is safe only the call knows.
    """


class _Response(aiohttp.ClientResponse):
    async def start(self, connection: Any) -> Self:
        try:
            await super().start(connection)
        except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError) as exc:
            raise _Broke(str(exc) or type(exc).__name__) from exc
        return self


class AsyncLink:
    """A pool of connections on the loop that first uses it."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._proxy = proxy_for(wiring.url)
        self._session: aiohttp.ClientSession | None = None
        self._closed = False

    async def carry(self, call: Call[Any]) -> Reply:
        """Send it once; NoReply when no answer arrived."""
        session = self._session or self._open()
        try:
            async with session.request(
                call.method,
                URL(self._wiring.target(call), encoded=True),  # as it is: dots are not walked
                data=call.body,
                headers=call.headers(),
                timeout=self._timeout(call),
                allow_redirects=False,
                proxy=self._proxy,
            ) as answer:
                body = await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise _no_reply(exc) from exc
        return Reply(answer.status, body, answer.headers.get("retry-after"))

    async def close(self) -> None:
        self._closed = True
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        """Open the session on first use, since a client may be made without a running loop."""
        if self._closed:
            raise RuntimeError("the client has been closed")
        secure = self._wiring.url.startswith("https:")
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=CONNECTIONS,
                keepalive_timeout=KEEP_ALIVE,
                ssl=trust(self._wiring.ca) if secure else True,
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers=self._wiring.headers(),
            response_class=_Response,
        )
        return self._session

    def _timeout(self, call: Call[Any]) -> aiohttp.ClientTimeout:
        """A limit for each step, and for the whole: a body that cannot be sent is no step."""
        step = self._wiring.timeout
        if call.bulk:
            return aiohttp.ClientTimeout(total=None, connect=step)
        whole = 3 * step + len(call.body or b"") / SLOWEST
        return aiohttp.ClientTimeout(total=whole, connect=step, sock_read=step)


def _no_reply(exc: Exception) -> NoReply:
    unreached = isinstance(exc, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    return NoReply(
        str(exc) or type(exc).__name__,
        reached=not unreached,
        late=isinstance(exc, TimeoutError) and not unreached,
        untrusted=isinstance(exc, aiohttp.ClientConnectorCertificateError),
    )
