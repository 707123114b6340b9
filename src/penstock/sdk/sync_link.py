"""Calls carried by httpx, for programs without an event loop."""

from __future__ import annotations

from typing import Any

import httpx

from penstock.sdk.calls import Call
from penstock.sdk.transport import NoReply, Reply, Wiring

_UNREACHED = httpx.ConnectError | httpx.ConnectTimeout


class SyncLink:
    """A pool of connections, safe to use from many threads."""

    def __init__(self, wiring: Wiring) -> None:
        self._wiring = wiring
        self._http = httpx.Client(
            headers=wiring.headers(), timeout=wiring.timeout, follow_redirects=False
        )
        self._unhurried = httpx.Timeout(wiring.timeout, read=None)

    def carry(self, call: Call[Any]) -> Reply:
        """Send it once; NoReply when nothing came back."""
        try:
            answer = self._http.request(
                call.method,
                self._wiring.target(call),
                content=call.body,
                headers=call.headers(),
                timeout=self._unhurried if call.bulk else httpx.USE_CLIENT_DEFAULT,
            )
        except httpx.HTTPError as exc:
            raise _no_reply(exc) from exc
        return Reply(answer.status_code, answer.content, answer.headers.get("retry-after"))

    def close(self) -> None:
        self._http.close()


def _no_reply(exc: httpx.HTTPError) -> NoReply:
    return NoReply(
        str(exc) or type(exc).__name__,
        reached=not isinstance(exc, _UNREACHED | httpx.PoolTimeout),
        late=isinstance(exc, httpx.TimeoutException) and not isinstance(exc, httpx.ConnectTimeout),
        hopeless=not isinstance(exc, httpx.TransportError),
    )
