"""A load of ticks: raw HTTP/1.1 over kept-alive connections, so that the server is the limit.

Every request is one tick of a random item, due at a random moment in the configured span. A tick
whose answer was lost with its connection counts as unknown and is not repeated: each POST is a
message of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast
from urllib.parse import urlsplit

import msgspec

from penstock.flow.observe import Observer
from penstock.model.errors import ConfigError
from penstock.model.times import format_moment
from penstock.sim.errors import Unreachable
from penstock.tls import client_context

log = logging.getLogger("penstock.sim")

ITEMS = 1_000_000
WITHIN = 600.0
STAGE = "generated"
TICKS = "ticks"

_HEAD_END = b"\r\n\r\n"
_LENGTH = b"content-length:"
_RETRY_AFTER = b"retry-after:"
_MOST_PATIENCE = 5.0
"""Most seconds of a Retry-After that are obeyed, since a sleeping load measures nothing."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 1.0
"""Seconds between attempts to reconnect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The ticks to generate."""

    url: str = "http://127.0.0.1:8700"
    token: str | None = None
    ca: str | None = None
    """File of the authorities to trust; None for the system's."""
    items: int = ITEMS
    """Number of ids, at most a million: they have six digits."""
    within: float = WITHIN
    """Seconds: ticks are due between now and this."""
    connections: int = 64
    rate: float | None = None
    """Most ticks per second; None for as many as are answered."""
    count: int | None = None
    """Stop after this many; None runs until stopped."""
    chunked: bool = False
    """As the tick service's own generator: `/tick`, chunked bodies, no content type."""
    pause: float = 0.0
    """Seconds that each connection waits between an answer and its next request."""
    wait: float = 0.0
    """Seconds to wait for a server that does not listen yet."""


def _trust(ca: str | None) -> ssl.SSLContext:
    return client_context(lambda reason, _: ConfigError(f"--ca: {reason}"), ca)


class Totals(msgspec.Struct, kw_only=True):
    """The results of the ticks."""

    generated: int = 0
    """Answered 2xx: the server has stored them."""
    failed: int = 0
    """Answered with another status."""
    unknown: int = 0
    """Unanswered: the connection ended first."""


class Generator:
    """Posts ticks until it is stopped; counts into `totals` and, for rates, the observer."""

    def __init__(
        self,
        load: Load,
        observer: Observer,
        *,
        chance: random.Random | None = None,
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        parts = urlsplit(load.url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ConfigError(f"--url: must be http://host:port, not {load.url!r}")
        self._host = parts.hostname
        self._port = parts.port or (443 if parts.scheme == "https" else 80)
        self._tls = _trust(load.ca) if parts.scheme == "https" else None
        self._path = parts.path.rstrip("/")
        self._load = load
        self._observer = observer
        self._chance = chance or random.Random()
        self._now = now
        self._steady = steady
        self._head = self._make_head()
        self._tail = b"\r\n0\r\n\r\n" if load.chunked else b""
        self._begun = 0
        self._slot = 0.0
        self.totals = Totals()
        self._stopping = asyncio.Event()
        self._idle = asyncio.Event()

    async def run(self) -> Totals:
        """Run until stop() or the count is reached, and all requests are answered.

        Raises Unreachable if no server answered within `wait` seconds.
        """
        await self._wait_for_server()
        lines = [asyncio.ensure_future(self._keep()) for _ in range(self._load.connections)]
        try:
            await self._stopping.wait()
            self._look()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_MOST_PATIENCE):
                    await self._idle.wait()
        finally:
            for line in lines:
                line.cancel()
            await asyncio.gather(*lines, return_exceptions=True)
        return self.totals

    def stop(self) -> None:
        self._stopping.set()

    def request(self) -> bytes | None:
        """The next tick as a request; None once there are enough."""
        load = self._load
        if self._stopping.is_set() or (load.count is not None and self._begun >= load.count):
            return None
        self._begun += 1
        item = int(self._chance.random() * load.items)
        due = int((self._now() + self._chance.random() * load.within) * 1000)
        moment = format_moment(due).encode()
        return b'%b{"item":"user%06d","at":"%b"}%b' % (self._head, item, moment, self._tail)

    def pause(self) -> float:
        """Seconds until the next request may be sent."""
        if self._load.rate is None:
            return self._load.pause
        now = self._steady()
        self._slot = max(self._slot + 1 / self._load.rate, now - 0.1)  # catch up a little
        return max(self._load.pause, self._slot - now)

    def answered(self, *, well: bool) -> None:
        if well:
            self.totals.generated += 1
            self._observer.count(STAGE, TICKS)
        else:
            self.totals.failed += 1
        if self._load.count is not None or self._stopping.is_set():
            self._look()

    def lost(self) -> None:
        self.totals.unknown += 1
        self._look()

    def _look(self) -> None:
        totals = self.totals
        done = totals.generated + totals.failed + totals.unknown
        if self._load.count is not None and done >= self._load.count:
            self.stop()
        if done == self._begun and self._stopping.is_set():
            self._idle.set()

    def _make_head(self) -> bytes:
        """The head of every request: its variable parts always have the same length."""
        length = len('{"item":"user000000","at":"2030-01-01T00:00:00.000Z"}')
        token, chunked = self._load.token, self._load.chunked
        lines = [
            f"POST {self._path}/{'tick' if chunked else 'ticks'} HTTP/1.1",
            f"host: {self._host}:{self._port}",
            *([] if token is None else [f"authorization: Bearer {token}"]),
        ]
        if chunked:
            lines += ["transfer-encoding: chunked", "", f"{length:x}", ""]
        else:
            lines += ["content-type: application/json", f"content-length: {length}", "", ""]
        return "\r\n".join(lines).encode()

    async def _wait_for_server(self) -> None:
        deadline = self._steady() + self._load.wait
        where = f"{self._host}:{self._port}"
        is_reported = False
        while not self._stopping.is_set():
            try:
                _, writer = await asyncio.open_connection(self._host, self._port, ssl=self._tls)
            except OSError as exc:
                if self._steady() >= deadline:
                    raise Unreachable(f"no server answers at {where}: {exc}") from exc
                if not is_reported:
                    log.info("no server answers at %s yet: waiting", where)
                    is_reported = True
                await asyncio.sleep(_FIRST_PAUSE)
            else:
                writer.close()
                return

    async def _keep(self) -> None:
        """One connection, opened again whenever it ends."""
        loop = asyncio.get_running_loop()
        pause = _FIRST_PAUSE
        while True:
            try:
                _, line = await loop.create_connection(
                    lambda: _Line(self), self._host, self._port, ssl=self._tls
                )
            except OSError:
                await asyncio.sleep(pause)
                pause = min(pause * 2, _LONGEST_PAUSE)
                continue
            pause = _FIRST_PAUSE
            try:
                await line.ended
            finally:
                line.cut()


class _Line(asyncio.Protocol):
    """One request at a time; the next follows a complete answer."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator
        self._buffer = b""
        self._usual = (-1, 0, b"")
        """A good answer: its size, and the position and text of an end of its head."""
        self._asked = False
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._ask_in(self._generator.pause())

    def connection_lost(self, exc: Exception | None) -> None:
        del exc
        if self._timer is not None:
            self._timer.cancel()
        if self._asked:
            self._asked = False
            self._generator.lost()
        if not self.ended.done():
            self.ended.set_result(None)

    def cut(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if not self._buffer and self._is_usual(data):
            self._asked = False
            self._generator.answered(well=True)
            self._ask_in(self._generator.pause())
            return
        data = self._buffer + data if self._buffer else data
        end = data.find(_HEAD_END)
        if end < 0:
            self._buffer = data
            return
        head = data[:end].lower()
        size = end + 4 + _number(head, _LENGTH)
        if len(data) < size:
            self._buffer = data
            return
        self._buffer = b""
        self._asked = False
        well = data[9:10] == b"2"
        at = head.find(_LENGTH)
        if well and at >= 0 and len(data) == size:
            self._usual = (size, at, data[at : end + 4])
        self._generator.answered(well=well)
        wait = 0.0 if well else min(_number(head, _RETRY_AFTER), _MOST_PATIENCE)
        self._ask_in(max(self._generator.pause(), wait))

    def _is_usual(self, data: bytes) -> bool:
        """Whether it is complete and like the last good one: same length, same end of the head."""
        size, at, tail = self._usual
        return len(data) == size and data[9:10] == b"2" and data.startswith(tail, at)

    def _ask_in(self, wait: float) -> None:
        if wait > 0:
            self._timer = asyncio.get_running_loop().call_later(wait, self._ask)
        else:
            self._ask()

    def _ask(self) -> None:
        request = self._generator.request()
        if request is not None:
            self._asked = True
            self._transport.write(request)


def _number(head: bytes, name: bytes) -> int:
    """The number in a header; 0 without one."""
    at = head.find(name)
    if at < 0:
        return 0
    value = head[at + len(name) :].split(b"\r\n", 1)[0].strip()
    return int(value) if value.isdigit() else 0
