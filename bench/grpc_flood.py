"""A client stream written by hand: HTTP/2 frames for gRPC, as many in one write as the peer allows.

A client in C++, Go or Java gathers the messages of a stream into one write to its connection, and
spends some microseconds on each. Python's own waits for every message to leave, which costs it a
tenth of a millisecond, and the server as much again, since each comes in a packet of its own. Under
that load a stream's figure is the client's. This one writes as the others do, up to 32 KiB at once
(the write buffer of grpc-go), within the windows the server gives.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from typing import cast

WRITE = 32 * 1024
"""Bytes in one write at most."""
STREAM = 1
_WINDOW = 65_535
"""What HTTP/2 lets each side send before the other has said a word."""
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GO_AWAY, _WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
_END_STREAM = _ACK = 1
_END_HEADERS = 4
_INITIAL_WINDOW = 4
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_HEAD = struct.Struct(">BHBBI")


def _frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    return _HEAD.pack(len(body) >> 16, len(body) & 0xFFFF, kind, flags, stream) + body


def _headers(path: str) -> bytes:
    """Plain literals: no table, no Huffman code."""
    fields = (
        (b":method", b"POST"),
        (b":scheme", b"http"),
        (b":path", path.encode()),
        (b":authority", b"127.0.0.1"),
        (b"te", b"trailers"),
        (b"content-type", b"application/grpc"),
    )
    return b"".join(b"\0%c%b%c%b" % (len(n), n, len(v), v) for n, v in fields)


class Flood(asyncio.Protocol):
    """One connection with one stream; `answer` has the one message that comes back."""

    def __init__(self, path: str, make: Callable[[], bytes | None]) -> None:
        """`make` gives the next message, or None: that was the last."""
        self._path = path
        self._make = make
        self._next: bytes | None = None
        """Made and framed, and not within the window yet."""
        self._connection = self._stream = self._initial = _WINDOW
        self._paused = self._ended = False
        self._buffer = b""
        self._body = b""
        self.sent = 0
        self.answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is one in all but name
        head = _frame(_HEADERS, _END_HEADERS, STREAM, _headers(self._path))
        self._transport.write(_PREFACE + _frame(_SETTINGS, 0, 0) + head)
        self._write()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.answer.done():
            self.answer.set_exception(ConnectionError(f"cut after {self.sent} messages: {exc}"))

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._write()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        while len(self._buffer) >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(self._buffer)
            end = _HEAD.size + (high << 16) + low
            if len(self._buffer) < end:
                break
            body, self._buffer = self._buffer[_HEAD.size : end], self._buffer[end:]
            self._take(kind, flags, stream, body)
        self._write()

    def _take(self, kind: int, flags: int, stream: int, body: bytes) -> None:
        if kind == _WINDOW_UPDATE:
            more = int.from_bytes(body, "big")
            if stream:
                self._stream += more
            else:
                self._connection += more
        elif kind == _SETTINGS and not flags & _ACK:
            for name, value in struct.iter_unpack(">HI", body):
                if name == _INITIAL_WINDOW:
                    self._stream += value - self._initial
                    self._initial = value
            self._transport.write(_frame(_SETTINGS, _ACK, 0))
        elif kind == _PING and not flags & _ACK:
            self._transport.write(_frame(_PING, _ACK, 0, body))
        elif kind == _DATA:
            self._body += body
        elif kind == _HEADERS and flags & _END_STREAM:
            self.answer.set_result(self._body[5:])  # after a flag and a length
        elif kind in (_RESET, _GO_AWAY):
            self._transport.abort()

    def _write(self) -> None:
        """What the windows and the connection take now, a write at a time."""
        while not self._paused and not self._ended and (frames := self._frames()):
            self._transport.write(b"".join(frames))

    def _frames(self) -> list[bytes]:
        frames: list[bytes] = []
        room = min(self._connection, self._stream, WRITE)
        while True:
            if self._next is None and (made := self._make()) is not None:
                self._next = b"\0%b%b" % (len(made).to_bytes(4, "big"), made)
            if self._next is None:
                self._ended = True
                frames.append(_frame(_DATA, _END_STREAM, STREAM))
                return frames
            size = len(self._next)
            if size > room:
                return frames
            room -= size
            self._connection -= size
            self._stream -= size
            self.sent += 1
            frames.append(_frame(_DATA, 0, STREAM, self._next))
            self._next = None


async def flood(port: int, path: str, make: Callable[[], bytes | None]) -> tuple[int, bytes]:
    """How many went through one stream, and the answer at its end."""
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.create_connection(lambda: Flood(path, make), "127.0.0.1", port)
    try:
        answer = await protocol.answer
    finally:
        transport.close()
    return protocol.sent, answer
