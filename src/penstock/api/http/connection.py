"""One connection: uvicorn's httptools protocol, kept in bounds.

What it adds: a request that stops arriving is answered 408 and cut, a head past its limit 431,
what is not HTTP 400 in our own shape; idle connections and readers that do not read are closed.
One sweep over all connections serves in place of a timer a request.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from penstock.api.http.answer import Answer
from penstock.api.http.errors import BodyTimeout, HeadTooLarge, error_answer
from penstock.model.errors import Malformed, PenstockError
from penstock.settings import ApiSettings

MAX_HEAD = 64 * 1024
"""Bytes of request line and headers, beyond what the first read brought."""
PROGRESS = 1024
"""A body has moved when it has grown by this much: a drip is no progress."""


class Pulse:
    """What all connections share: a coarse clock, and the headers of every answer, rendered."""

    def __init__(self, settings: ApiSettings) -> None:
        self.body_timeout = settings.body_timeout / 1000
        self.keep_alive = settings.keep_alive / 1000
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

    def plain(self, answer: Answer) -> bytes:
        """What `render` makes of JSON without headers of its own, on a connection that stays."""
        head = self._heads.get(answer.status)
        if head is None:
            length = b"0\r\n\r\n"
            empty = Answer(answer.status, b"")
            head = render(empty, self.headers, keep_alive=True).removesuffix(length)
            self._heads[answer.status] = head
        return b"%b%d\r\n\r\n%b" % (head, len(answer.body), answer.body)


class Turn(Protocol):
    """The part of uvicorn's RequestResponseCycle that a connection asks about."""

    response_started: bool
    response_complete: bool
    keep_alive: bool
    disconnected: bool


def render(answer: Answer, headers: bytes, *, keep_alive: bool) -> bytes:
    """The whole answer, with its headers in the order uvicorn sends ours in."""
    more = b""
    if answer.headers:
        more = "".join([f"{name}: {value}\r\n" for name, value in answer.headers]).encode("latin-1")
    return b"%b%b%bcontent-type: %b\r\ncontent-length: %d\r\n%b\r\n%b" % (
        STATUS_LINE[answer.status],
        headers,
        more,
        answer.media.encode("latin-1"),
        len(answer.body),
        b"" if keep_alive else b"connection: close\r\n",
        answer.body,
    )


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
        """When the request last moved, or when the connection became idle."""
        self._arriving = False
        self._in_head = False
        self._head_size = 0
        self._gained = 0
        self._stuck_since: float | None = None
        """Since when the client does not read what it is sent."""

    def data_received(self, data: bytes) -> None:
        began_before = self._in_head
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError:
            self.refuse(Malformed("this is not a valid HTTP/1.1 request"))
            return
        except httptools.HttpParserUpgrade:
            return  # nothing here to upgrade to: it is answered as the plain request it also is
        if self._in_head and began_before:
            self._head_size += len(data)
            if self._head_size > MAX_HEAD:
                self.refuse(HeadTooLarge(f"the headers are larger than {MAX_HEAD:,} bytes"))

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
        if self._gained >= PROGRESS:
            self._gained = 0
            self._since = self._pulse.now

    def on_message_complete(self) -> None:
        self._arriving = False
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Like uvicorn's, but for the keep-alive timer: `look_after` is that."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
        else:
            self._since = self._pulse.now

    def pause_writing(self) -> None:
        self._stuck_since = self._pulse.now
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stuck_since = None
        super().resume_writing()

    def look_after(self, now: float) -> None:
        """Called again and again: close what stalls."""
        if self.transport.is_closing():
            return
        if self._stuck_since is not None:
            if now - self._stuck_since > self._pulse.body_timeout:
                self.transport.abort()
        elif self._arriving:
            if self.flow.read_paused or (self._in_head and not self.answered):
                self._since = now  # it is we who are slow
            elif now - self._since > self._pulse.body_timeout:
                self.refuse(BodyTimeout("the request stopped arriving"))
        elif self.answered and now - self._since > self._pulse.keep_alive:
            self.transport.close()

    def refuse(self, exc: PenstockError) -> None:
        """Answer what cannot go on and close; nothing is said out of turn."""
        if self.transport.is_closing():
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
        self.transport.close()

    @property
    def answered(self) -> bool:
        """Nothing is being worked on."""
        turn: Turn | None = self.cycle
        return turn is None or turn.response_complete
