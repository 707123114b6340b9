"""A simulated provider: takes webhooks over HTTP, as slowly and unreliably as configured.

It refuses what a real one refuses: another method than POST, a body that is too large, a request
that is not signed when it has a secret, more than its rate. `GET /stats` says what it got.

    async with Provider(Manners(latency=0.05, failure_rate=0.02)) as provider:
        … send to provider.url …
"""

from __future__ import annotations

import asyncio
import math
import random
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from types import TracebackType
from typing import Self, cast

import httptools
import msgspec

from penstock.model.envelope import DUE
from penstock.model.errors import InvalidMessage
from penstock.model.lateness import Lateness
from penstock.model.signing import Signer
from penstock.model.times import parse_moment
from penstock.sim.requests import LOOPBACK, Received, Requests, bound

STATS = "/stats"
STAGE = "received"
MAX_BODY = 8 * 1024 * 1024
TOLERANCE = 300.0
"""Most seconds by which a signature's timestamp may be off."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """The provider's configured behaviour."""

    latency: float = 0.0
    """Mean seconds of an answer; exponentially distributed."""
    failure_rate: float = 0.0
    """Share of requests answered 500 after their latency."""
    refuse_rate: float = 0.0
    """Share of requests answered 400 after their latency."""
    rate_limit: float | None = None
    """Most requests per second; more are answered 429 with Retry-After."""
    secret: str | None = None
    """Require a Standard Webhooks signature made with this secret."""


class Stats(msgspec.Struct, kw_only=True):
    """The requests received since the start."""

    requests: int = 0
    accepted: int = 0
    failed: int = 0
    """Requests answered 500, by the failure rate."""
    limited: int = 0
    """Requests answered 429."""
    refused: int = 0
    """Requests answered 400, 401, 405 or 413."""
    repeats: int = 0
    """Requests accepted with an attempt above the first."""
    bytes: int = 0
    """Bytes of the accepted bodies."""
    early: int = 0
    """Requests that arrived before they were due, by this machine's clock."""
    lateness_ms: dict[str, int | None] = {}
    """Time from due to arrival."""


class Accepted(msgspec.Struct, frozen=True):
    """One accepted request in the totals."""

    id: str
    at: int
    """Epoch milliseconds."""
    attempt: int
    receivers: list[str]
    """The receivers of a notification."""


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """One request and its answer."""

    request: Received
    status: int
    said: str
    """The body of the answer."""
    late: int | None
    """Milliseconds from due to arrival; None if the request names no due time."""
    headers: str = ""
    """More header lines of the answer."""
    delay: float = 0.0
    """Seconds by which the answer is delayed."""


class Provider:
    """Listens on a port, of the loopback by default; calls `on_answered` with every request."""

    def __init__(
        self,
        manners: Manners | None = None,
        *,
        host: str = LOOPBACK,
        port: int = 0,
        on_answered: Callable[[Answered], None] | None = None,
        chance: random.Random | None = None,
        now: Callable[[], float] = time.time,
        each: bool = False,
    ) -> None:
        """`each`: record every request (some 300 bytes each)."""
        self._manners = manners or Manners()
        self._on_answered = on_answered
        self._chance = chance or random.Random()
        self._now = now
        self._signer = None if self._manners.secret is None else Signer(self._manners.secret)
        self._limit = Allowance(self._manners.rate_limit, now())
        self._stats = Stats()
        self.accepted: list[Accepted] | None = [] if each else None
        """Every accepted request, if they are recorded."""
        self.arrivals: list[int] = []
        """The arrival of every request, if they are recorded."""
        self._lateness = Lateness()
        self._lines: set[_Line] = set()
        self._server: asyncio.Server | None = None
        self._socket = bound(port, host)
        self.port: int = self._socket.getsockname()[1]
        self.url = f"http://{host}:{self.port}"

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Line(self), sock=self._socket)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._server is not None:
            self._server.close()
        for line in list(self._lines):
            line.cut()

    def stats(self) -> Stats:
        quantiles = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        lateness = {name: self._lateness.quantile(share) for name, share in quantiles.items()}
        return msgspec.structs.replace(
            self._stats, early=self._lateness.early, lateness_ms=lateness
        )

    def came(self, line: _Line) -> int:
        self._lines.add(line)
        return len(self._lines)

    def went(self, line: _Line) -> None:
        self._lines.discard(line)

    def take(self, request: Received) -> Answered:
        """Count the request and decide its answer."""
        if request.method == "GET" and request.path == STATS:
            said = msgspec.json.encode(self.stats()).decode()
            kind = "content-type: application/json\r\n"
            return Answered(request=request, status=200, said=said, late=None, headers=kind)
        answered = self._judge(request)
        self._count(answered)
        if self._on_answered is not None:
            self._on_answered(answered)
        return answered

    def _judge(self, request: Received) -> Answered:
        late = _late(request)

        def answer(status: int, said: str, headers: str = "", delay: float = 0.0) -> Answered:
            return Answered(
                request=request, status=status, said=said, late=late, headers=headers, delay=delay
            )

        if request.method != "POST":
            return answer(405, "only POST is taken", "allow: POST\r\n")
        if len(request.body) > MAX_BODY:
            return answer(413, f"more than {MAX_BODY} bytes")
        if (problem := self._unsigned(request)) is not None:
            return answer(401, problem)
        if (wait := self._limit.take(self._now())) > 0:
            return answer(429, "too many requests", f"retry-after: {math.ceil(wait)}\r\n")
        mean = self._manners.latency
        delay = self._chance.expovariate(1 / mean) if mean else 0.0
        return answer(*self._drawn(), delay=delay)

    def _drawn(self) -> tuple[int, str]:
        """The answer to a request that nothing is wrong with."""
        chance, manners = self._chance.random(), self._manners
        if chance < manners.failure_rate:
            return 500, "simulated failure"
        if chance < manners.failure_rate + manners.refuse_rate:
            return 400, "simulated refusal"
        return 200, "ok"

    def _unsigned(self, request: Received) -> str | None:
        """Why the signature is invalid; None if it is valid or not required."""
        if self._signer is None:
            return None
        headers = request.headers
        signatures = headers.get("webhook-signature")
        timestamp = headers.get("webhook-timestamp", "")
        if signatures is None or not (timestamp.isascii() and timestamp.isdigit()):
            return "not signed"
        if abs(self._now() - int(timestamp)) > TOLERANCE:
            return "the signature's timestamp is too far off"
        signed = (headers.get("webhook-id", ""), int(timestamp), request.body)
        return None if self._signer.signed(signatures, *signed) else "the signature does not match"

    def _count(self, answered: Answered) -> None:
        stats = self._stats
        stats.requests += 1
        if self.accepted is not None:
            self.arrivals.append(answered.request.at)
            if answered.status == 200:
                self.accepted.append(_accepted(answered.request))
        match answered.status:
            case 200:
                stats.accepted += 1
                stats.repeats += answered.request.attempt > 1
                stats.bytes += len(answered.request.body)
                if answered.late is not None:
                    self._lateness.add((answered.late,))
            case 500:
                stats.failed += 1
            case 429:
                stats.limited += 1
            case _:
                stats.refused += 1


class Allowance:
    """A token bucket of one second's worth; without a rate it is never empty."""

    def __init__(self, rate: float | None, now: float) -> None:
        self._rate = rate
        self._most = max(1.0, rate or 0.0)
        self._left = self._most
        self._at = now

    def take(self, now: float) -> float:
        """Take one token and return 0, or return the seconds until there is one."""
        if self._rate is None:
            return 0.0
        self._left = min(self._most, self._left + max(0.0, now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return (1 - self._left) / self._rate
        self._left -= 1
        return 0.0


class _Line(asyncio.Protocol):
    """One connection: requests are answered in order, each after its delay."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._waiting: deque[Received] = deque()
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self._requests = Requests(self._provider.came(self), max_body=MAX_BODY + 1)

    def connection_lost(self, exc: Exception | None) -> None:
        del exc  # clients may disconnect at any time
        self._provider.went(self)
        if self._timer is not None:
            self._timer.cancel()

    def data_received(self, data: bytes) -> None:
        try:
            self._requests.feed(data)
        except (httptools.HttpParserError, UnicodeDecodeError):
            self._transport.write(_answer(400, "not HTTP", "connection: close\r\n"))
            self._transport.close()
            return
        self._waiting.extend(self._requests.complete())
        self._next()

    def cut(self) -> None:
        self._transport.abort()

    def _next(self) -> None:
        while self._waiting and self._timer is None:
            answered = self._provider.take(self._waiting.popleft())
            if answered.delay:
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(answered.delay, self._late_answer, answered)
            else:
                self._write(answered)

    def _late_answer(self, answered: Answered) -> None:
        self._timer = None
        self._write(answered)
        self._next()

    def _write(self, answered: Answered) -> None:
        self._transport.write(_answer(answered.status, answered.said, answered.headers))


def _answer(status: int, said: str, headers: str) -> bytes:
    body = said.encode()
    phrase = HTTPStatus(status).phrase
    head = f"HTTP/1.1 {status} {phrase}\r\ncontent-length: {len(body)}\r\n{headers}\r\n"
    return head.encode() + body


class _Params(msgspec.Struct, frozen=True):
    receivers: tuple[str, ...] = ()


class _Data(msgspec.Struct, frozen=True):
    params: _Params = _Params()


class _Notification(msgspec.Struct, frozen=True):
    data: _Data = _Data()


_notification = msgspec.json.Decoder(_Notification)


def _accepted(request: Received) -> Accepted:
    try:
        receivers = _notification.decode(request.body).data.params.receivers
    except (msgspec.MsgspecError, UnicodeDecodeError):
        receivers = ()
    return Accepted(request.id, request.at, request.attempt, list(receivers))


def _late(request: Received) -> int | None:
    due = request.headers.get(DUE)
    if due is None:
        return None
    try:
        return request.at - parse_moment(due)
    except InvalidMessage:
        return None
