"""A load generator for HTTP/1.1: raw, pre-encoded requests over kept-alive connections.

Run as a process of its own so that it has a core of its own:
`python -m bench.load PORT CONNECTIONS SECONDS SERIALS < request-bytes`, prints one JSON line.
Where a request says @SERIAL@, each gets a number of its own, of that many and then again; at
@PIECE@ it is cut, and the pieces leave one after another.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import cast

import uvloop

HEAD_END = b"\r\n\r\n"
SERIAL = b"@SERIAL@"
PIECE = b"@PIECE@"
MANY = 100_000_000
"""More serials than any run needs, and each has as many digits as the word it stands for."""


def _requests(request: bytes, serials: int) -> Iterator[bytes]:
    if SERIAL not in request:
        yield from itertools.repeat(request)
    for number in itertools.count():
        yield request.replace(SERIAL, b"%08d" % (number % serials))


class _Connection(asyncio.Protocol):
    """One request at a time; the next goes out when the answer is whole."""

    def __init__(self, requests: Iterator[bytes], totals: dict[str, int]) -> None:
        self._requests = requests
        self._totals = totals
        self._buffer = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        self._send()

    def _send(self) -> None:
        assert self._transport is not None
        request = next(self._requests)
        if PIECE not in request:
            self._transport.write(request)
            return
        first, *others = request.split(PIECE)
        self._transport.write(first)
        for piece in others:  # in a turn of the loop of its own: what is written in one is joined
            asyncio.get_running_loop().call_soon(self._transport.write, piece)

    def data_received(self, data: bytes) -> None:
        data = self._buffer + data
        end = data.find(HEAD_END)
        if end < 0:
            self._buffer = data
            return
        head = data[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(data) < end + 4 + length:
            self._buffer = data
            return
        self._buffer = b""
        self._totals["ok" if data[9:10] == b"2" else "failed"] += 1
        self._send()


async def _run(
    port: int, connections: int, seconds: float, requests: Iterator[bytes]
) -> dict[str, float]:
    totals = {"ok": 0, "failed": 0}
    loop = asyncio.get_running_loop()
    transports = [
        (await loop.create_connection(lambda: _Connection(requests, totals), "127.0.0.1", port))[0]
        for _ in range(connections)
    ]
    await asyncio.sleep(0.5)  # let it warm up
    before, start = totals["ok"], time.perf_counter()
    await asyncio.sleep(seconds)
    rate = (totals["ok"] - before) / (time.perf_counter() - start)
    for transport in transports:
        transport.abort()
    return {"rate": rate, **totals}


def hammer(
    port: int,
    request: bytes,
    *,
    connections: int = 64,
    seconds: float = 2.0,
    serials: int = MANY,
) -> float:
    """Requests a second that were answered 2xx; a single other answer is an error."""
    return load(port, request, connections=connections, seconds=seconds, serials=serials)["rate"]


def load(
    port: int, request: bytes, *, connections: int, seconds: float = 2.0, serials: int = MANY
) -> dict[str, float]:
    """The same, and with `ok` how many were answered in all, those of the warm-up included."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.load", *map(str, (port, connections, seconds, serials))],
        input=request,
        capture_output=True,
        check=True,
    )
    answer: dict[str, float] = json.loads(done.stdout)
    if not answer["ok"]:
        raise RuntimeError(f"nothing was answered: {done.stderr.decode()[-500:]}")
    if answer["failed"]:
        raise RuntimeError(f"{answer['failed']} requests were not answered 2xx")
    return answer


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()


def post(path: str, body: bytes, content_type: str = "application/json") -> bytes:
    """One request, ready to send again and again."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode() + body


if __name__ == "__main__":
    port, connections, seconds, serials = sys.argv[1:5]
    requests = _requests(sys.stdin.buffer.read(), int(serials))
    print(json.dumps(uvloop.run(_run(int(port), int(connections), float(seconds), requests))))
