"""One connection: uvicorn's httptools protocol, with limits.

It adds: a request that stops arriving is answered 408 and cut, a head past its limit 431, a request
that is not HTTP 400 in our own shape; idle connections and readers that do not read are closed. One
sweep over all connections replaces a timer per request.
"""

from __future__ import annotations

import asyncio
import resource
from collections.abc import Iterable
from functools import partial
from typing import Any, Protocol, cast

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)
from uvicorn.server import ServerState

from penstock.api.http.answer import AT_ONCE, BODILESS, JSON, Answer
from penstock.api.http.errors import (
    BodyTimeout,
    HeadTooLarge,
    TooManyConnections,
    error_answer,
)
from penstock.model.errors import Malformed, PenstockError
from penstock.settings import ApiSettings

MAX_HEAD = 64 * 1024
"""Bytes of request line and headers, beyond those of the first read."""
PROGRESS = 1024
"""A body has moved when it has grown by this much: a drip is no progress."""

OTHER_FILES = 64
"""Files a process opens besides connections of clients."""
SURPLUS = 256
"""Connections above the limit that are answered; more are cut without a word."""
FRESH = 5.0
"""Seconds that a server which stops waits for a request that is on its way."""
SURPLUS_SECONDS = 1.0
"""Seconds that a connection beyond the limit has to send its request."""
LINGER = 5.0
"""Seconds that the rest of a last request may take to arrive after its answer."""
_OFFER = frozenset({b"connection", b"upgrade"})


class Pulse:
    """State that all connections share: a coarse clock, and the rendered headers of every
    answer.
    """

    def __init__(self, settings: ApiSettings) -> None:
        self.body_timeout = settings.body_timeout / 1000
        self.keep_alive = settings.keep_alive / 1000
        self.max_connections = min(settings.max_connections, most_connections())
        self.turned_away = 0
        """Connections refused since the last beat."""
        self.period = max(0.02, min(1.0, self.body_timeout / 4, self.keep_alive / 4))
        self.now = 0.0
        self.headers = b""
        self._heads: dict[int, bytes] = {}
        """Status → how a plain JSON answer with it begins, up to its length."""

    def beat(self, now: float, headers: list[tuple[bytes, bytes]]) -> None:
        self.now = now
        rendered = b"".join([b"%b: %b\r\n" % pair for pair in headers])
        if rendered != self.headers:
            self.headers = rendered
            self._heads.clear()

    def rendered(self, answer: Answer, *, keep_alive: bool) -> bytes:
        """The whole answer, with the headers of every answer."""
        if keep_alive and not answer.headers and answer.media is JSON:
            return self.plain(answer)
        return render(answer, self.headers, keep_alive=keep_alive)

    def plain(self, answer: Answer) -> bytes:
        """The bytes of `render` for JSON without headers of its own, on a connection that stays."""
        head = self._heads.get(answer.status)
        if head is None:
            length = b"0\r\n\r\n"
            empty = Answer(answer.status, b"")
            head = render(empty, self.headers, keep_alive=True).removesuffix(length)
            self._heads[answer.status] = head
        return b"%b%d\r\n\r\n%b" % (head, len(answer.body), answer.body)


def most_connections() -> int:
    """Connections the process can have with the files it may open."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if files == resource.RLIM_INFINITY else max(1, files - OTHER_FILES)


class Turn(Protocol):
    """The part of uvicorn's RequestResponseCycle that a connection asks about."""

    response_started: bool
    response_complete: bool
    keep_alive: bool
    disconnected: bool


def render(answer: Answer, headers: bytes, *, keep_alive: bool) -> bytes:
    """The whole answer, with its headers in the order uvicorn sends ours in."""
    own = "".join([f"{name}: {value}\r\n" for name, value in answer.all_headers])
    return b"%b%b%bcontent-length: %d\r\n%b\r\n%b" % (
        STATUS_LINE[answer.status],
        headers,
        own.encode("latin-1"),
        len(answer.body),
        b"" if keep_alive else b"connection: close\r\n",
        answer.body,
    )


def plain_head(
    method: bytes, url: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """The head of a request without its offer of another protocol, asking to close after it."""
    lines = [b"%b %b HTTP/%b" % (method, url, version.encode("ascii"))]
    lines += [b"%b: %b" % pair for pair in headers if pair[0] not in _OFFER]
    return b"\r\n".join([*lines, b"connection: close", b"", b""])


class LingeringTransport:
    """Closes a connection when its last request has been read to the end, not before.

    A socket closed with unread bytes resets the connection, and the client loses the answer.
    """

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self.reading = True
        self._closing = False
        self.write = transport.write
        self.abort = transport.abort
        self.pause_reading = transport.pause_reading
        self.resume_reading = transport.resume_reading

    def is_closing(self) -> bool:
        return self._closing or self._transport.is_closing()

    def close(self) -> None:
        self._closing = True
        if not self.reading:
            self._transport.close()

    def end_reading(self) -> None:
        self.reading = False
        if self._closing:
            self._transport.close()


class BoundedProtocol(HttpToolsProtocol):
    """uvicorn's protocol with limits on time and size."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        pulse: Pulse,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._pulse = pulse
        self._since = pulse.now
        """When the request last progressed, or when the connection became idle."""
        self._arriving = False
        self._in_head = False
        self._head_size = 0
        self._gained = 0
        self._stuck_since: float | None = None
        """Since when the client has not read its answers."""
        self._waits_until: float | None = None
        """How long the stop of the server waits for this connection's request."""
        self._upgrade_head = False
        """The parser has read a head that offers another protocol, and stops after it."""
        self._reads_last = False
        """The request being read offered another protocol: no other is read after it."""
        self._reads_no_more = False
        self._surplus = False
        """True if the connection limit was reached before this one."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn
        super().connection_made(transport)
        self._since = self._pulse.now
        surplus = len(self.connections) - self._pulse.max_connections
        if surplus > 0:
            self._pulse.turned_away += 1
            self._surplus = self._arriving = True
        if surplus > SURPLUS:
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._reads_no_more or self._surplus:
            if self._surplus:
                self._turn_away()
            return
        began_before = self._in_head
        try:
            self._feed(data)
        except httptools.HttpParserError:
            if not self._reads_no_more:
                self.refuse(Malformed("this is not a valid HTTP/1.1 request"))
            return
        if self._in_head and began_before:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self.refuse(HeadTooLarge(f"the headers are larger than {MAX_HEAD:,} bytes"))

    def _turn_away(self) -> None:
        most = self._pulse.max_connections
        exc = TooManyConnections(f"{most:,} connections are open already", retry_after=1)
        self.transport.write(render(error_answer(exc), self._pulse.headers, keep_alive=False))
        self.transport.close()

    def _feed(self, data: bytes) -> None:
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as exc:
            self._feed_as_plain(data[exc.args[0] :])

    def _feed_as_plain(self, rest: bytes) -> None:
        """Read a request that offers another protocol (`Upgrade: h2c`) as the plain one it also is.

        The parser stops at the end of such a head and would take the body for the next request. So
        a fresh parser gets the same head without the offer, then the body. The connection closes
        after the answer: a proxy may believe that it has switched protocols.
        """
        method = self.parser.get_method()
        if method == b"CONNECT":
            self.refuse(Malformed("this is no proxy: CONNECT leads nowhere"))
            return
        head = plain_head(method, self.url, self.parser.get_http_version(), self.headers)
        self._upgrade_head = False
        self._read_last()
        self.parser = httptools.HttpRequestParser(self)
        self.parser.feed_data(head + rest)

    def _read_last(self) -> None:
        """The request whose head was read is the last one of its connection."""
        if not self._reads_last:
            self._reads_last = True
            self.transport = cast("asyncio.Transport", LingeringTransport(self.transport))

    def on_message_begin(self) -> None:
        self.begin_message()
        super().on_message_begin()

    def begin_message(self) -> None:
        self._arriving = self._in_head = True
        self._head_size = 0
        self._since = self._pulse.now

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self.end_head()

    def end_head(self) -> None:
        self._in_head = False
        self._gained = 0
        self._since = self._pulse.now

    def on_body(self, body: bytes) -> None:
        self.gain(len(body))
        super().on_body(body)

    def gain(self, size: int) -> None:
        self._gained += size
        if self._gained >= PROGRESS and not self.answered:  # else it is of no use to anybody
            self._gained = 0
            self._since = self._pulse.now

    def on_message_complete(self) -> None:
        if self._upgrade_head:
            return  # it is the head alone that is complete
        self.end_message()
        super().on_message_complete()

    def end_message(self) -> None:
        self._arriving = False
        if self._reads_last:
            self._reads_no_more = True
            self._lingering.end_reading()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        cycle.scope[AT_ONCE] = partial(self._answer_at_once, cycle)  # type: ignore[literal-required] # ASGI lets a scope carry more
        super()._start_asgi_task(cycle, app)

    def _answer_at_once(self, cycle: RequestResponseCycle, answer: Answer) -> bool:
        """Send a whole answer in one write; False: it has to go through ASGI's `send`.

        The same bytes in the same order: tests/integration/http/test_at_once.py holds it to that.
        One system call less: `GET /healthz` takes 38 in place of 53 µs of CPU, a put 81 in place
        of 94 (`python -m bench http --ordinary`).
        """
        if (
            cycle.disconnected
            or self.flow.write_paused
            or answer.status in BODILESS
            or cycle.scope["method"] == "HEAD"
        ):
            return False
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(self._pulse.rendered(answer, keep_alive=cycle.keep_alive))
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()
        return True

    def on_response_complete(self) -> None:
        """Like uvicorn's, but for the keep-alive timer: `look_after` is that."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            self._since = self._pulse.now
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._since = self._pulse.now

    def shutdown(self) -> None:
        """Close it once nothing is being worked on; called again and again until it is closed.

        A connection that was just taken, or has begun a request, is given FRESH to send it whole:
        its client could not know that this server stops.
        """
        turn: Turn | None = self.cycle
        if turn is None or self._arriving:
            now = asyncio.get_running_loop().time()
            if self._waits_until is None:
                is_fresh = self._pulse.now - self._since < FRESH
                self._waits_until = now + FRESH if is_fresh else now
            if now < self._waits_until:
                return
        if self._reads_last and self.answered:
            self._lingering.end_reading()
        super().shutdown()

    def pause_writing(self) -> None:
        self._stuck_since = self._pulse.now
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    def look_after(self, now: float) -> None:
        """Close the connection if it stalls; called regularly."""
        if self.transport.is_closing():
            if self._reads_last and self._lingering.reading and now - self._since > LINGER:
                self.transport.abort()
            return
        if self._surplus:
            if now - self._since > SURPLUS_SECONDS:
                self.transport.close()
        elif self._stuck_since is not None:
            if now - self._stuck_since > self._pulse.body_timeout:
                self.transport.abort()
        elif self._arriving:
            if self.flow.read_paused or (self._in_head and not self.answered):
                self._since = now  # the server is the slow side
            elif now - self._since > self._pulse.body_timeout:
                self.refuse(BodyTimeout("the request stopped arriving"))
        elif self.answered and now - self._since > self._pulse.keep_alive:
            self.transport.close()

    def refuse(self, exc: PenstockError) -> None:
        """Answer with an error and close; never answers out of turn."""
        if self.transport.is_closing():
            self.transport.abort()  # answered already, and the rest cannot be read
            return
        turn: Turn | None = self.cycle
        if turn is not None and not turn.response_complete:
            if self._in_head or self.pipeline:
                turn.keep_alive = False  # a request before it is still to be answered
                self.flow.pause_reading()
                return
            if turn.response_started:
                self.transport.abort()
                return
            turn.disconnected = True
        elif self._arriving and not self._in_head:
            self.transport.abort()  # answered already, and its body never ended
            return
        self.transport.write(render(error_answer(exc), self._pulse.headers, keep_alive=False))
        if self._reads_last:
            self._lingering.end_reading()
        self.transport.close()

    @property
    def _lingering(self) -> LingeringTransport:
        return cast("LingeringTransport", self.transport)

    @property
    def answered(self) -> bool:
        """True if no request of this connection is being worked on."""
        turn: Turn | None = self.cycle
        return turn is None or turn.response_complete
