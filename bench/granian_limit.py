"""A bare handler on Granian, in its two interfaces: what another server does with this protocol.

Runs in Granian's own environment: only the standard library is there.
"""

from __future__ import annotations

from typing import Any

ANSWER = (
    b'{"id":"0192f0c1-2345-7abc-8def-0123456789ab","state":"scheduled",'
    b'"due":"2030-01-01T00:00:00.000Z","duplicate":false}'
)
"""As long as Penstock's."""


async def asgi(_: Any, receive: Any, send: Any) -> None:
    """Reads the body, stores nothing, answers a constant."""
    while (await receive()).get("more_body"):
        pass
    headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(ANSWER))]
    await send({"type": "http.response.start", "status": 201, "headers": headers})
    await send({"type": "http.response.body", "body": ANSWER})


async def rsgi(_: Any, protocol: Any) -> None:
    """The same in Granian's own interface."""
    await protocol()
    protocol.response_bytes(201, [("content-type", "application/json")], ANSWER)
