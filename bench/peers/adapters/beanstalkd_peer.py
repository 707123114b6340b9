"""beanstalkd: puts pipelined on a connection, workers that delete and reserve in one write."""

import math
import socket
import threading

import side

LIFE = side.LEASE or 120
"""Seconds a worker may hold a job (TTR)."""


class Line(threading.local):
    """A connection a thread, spoken plainly: the protocol is text."""

    def __init__(self) -> None:
        host, _, port = side.URL.rpartition(":")
        self._socket = socket.create_connection((host, int(port)))
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._read = self._socket.makefile("rb")

    def write(self, words: bytes) -> None:
        self._socket.sendall(words)

    def answer(self) -> list[bytes]:
        return self._read.readline().split()

    def job(self) -> tuple[bytes, str]:
        _reserved, name, size = self.answer()
        return name, self._read.read(int(size) + 2)[:-2].decode()


def put(body: str, due: int) -> bytes:
    """Whole seconds only: rounded up, or it would be early."""
    delay = max(0, math.ceil(side.seconds_until(due)))
    return f"put 1024 {delay} {LIFE} {len(body)}\r\n{body}\r\n".encode()


def one(body: str, due: int) -> None:
    many([(body, due)])


def many(items: list[tuple[str, int]]) -> None:
    for start in range(0, len(items), 500):
        batch = items[start : start + 500]
        line.write(b"".join(put(*item) for item in batch))
        assert all(line.answer()[0] == b"INSERTED" for _ in batch)


def worker() -> None:
    line.write(b"reserve\r\n")
    while True:
        name, body = line.job()
        side.record(body)
        line.write(b"delete " + name + b"\r\nreserve\r\n")
        assert line.answer() == [b"DELETED"]


line = Line()
