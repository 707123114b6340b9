"""The hot way in: `POST /v1/messages`, `POST /ticks` and visitors answered without ASGI.

Only the plainest requests go this way: HTTP/1.1, a Content-Length within the limit, nothing
unanswered before it on its connection. Everything else goes the ordinary way, to the same intake
and through the same checks, and gets the same bytes.

A client says the same head again and again. One that was parsed, checked and let through is
remembered by its bytes; when it comes again, whole and with its body, neither is done again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from uvicorn.config import Config
from uvicorn.server import ServerState

from penstock.api.http.answer import JSON, Answer
from penstock.api.http.connection import BoundedProtocol, Pulse, Turn, render
from penstock.api.http.context import Api
from penstock.api.http.errors import error_answer
from penstock.api.http.hot_rooms import ROOMS, RoomRoutes
from penstock.api.http.hot_route import HotRoute
from penstock.api.http.messages import receipt_answer
from penstock.api.http.ticks import decode_tick, tick_answer, ticks_route
from penstock.model.draft import decode_draft
from penstock.model.errors import PenstockError
from penstock.model.trace import give_trace

AnyRoute: TypeAlias = HotRoute[Any, Any]
"""What a route's decode makes its submit takes, and what that tells its answer takes."""


class KnownHead(NamedTuple):
    """A head that was let through before: to these bytes the answer is always the same."""

    route: AnyRoute
    length: int
    """Of the body."""


KnownHeads: TypeAlias = dict[bytes, KnownHead]
"""Shared by all connections of a server."""
MAX_KNOWN = 1_024
MAX_KNOWN_SIZE = 1_024
"""Bytes: so that what is remembered stays small."""
_HEAD_END = b"\r\n\r\n"


class HotRoutes:
    """What goes the hot way, by address and method."""

    def __init__(self, api: Api) -> None:
        route, submit = ticks_route(api), api.parts.intake.submit
        self._messages = {
            b"/v1/messages": HotRoute(decode_draft, submit, receipt_answer),
            b"/ticks": HotRoute(lambda body: decode_tick(body, route), submit, tick_answer),
        }
        self._rooms = (
            None
            if api.rooms is None
            else RoomRoutes(api.rooms, api.visitors, api.parts.settings.rooms.joins_per_client)
        )

    def find(self, method: bytes, url: bytes) -> AnyRoute | None:
        """None: the ordinary way."""
        route = self._messages.get(url)
        if route is not None:
            return route if method == b"POST" else None
        if self._rooms is None or not url.startswith(ROOMS):
            return None
        if method == b"POST":
            return self._rooms.join(url)
        return self._rooms.ticket(url) if method == b"GET" else None

    def for_visitor(self, method: bytes, url: bytes, address: str) -> AnyRoute | None:
        """What somebody without a token may ask for where others need one."""
        if self._rooms is None or method != b"POST":
            return None
        return self._rooms.public_join(url, address)


class _NobodyWaits:
    """Stands where uvicorn keeps the event its ASGI task waits on."""

    def set(self) -> None:
        """There is no task to wake."""


class HotTurn:
    """The connection's turn while a hot request is unanswered.

    It stands in the place of uvicorn's cycle, so that uvicorn's own logic queues what is
    pipelined behind it, keeps order, and waits for it at shutdown.
    """

    message_event = _NobodyWaits()

    def __init__(self) -> None:
        self.response_started = False
        self.response_complete = True
        self.disconnected = False
        self.keep_alive = True


class HotProtocol(BoundedProtocol):
    """One connection, with a short way for the requests that come by the ten thousand."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        pulse: Pulse,
        api: Api,
        routes: HotRoutes,
        known: KnownHeads,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop, pulse=pulse)
        self._api = api
        self._routes = routes
        self._known = known
        self._first: bytes | None = None
        """What the request began with, while it may still be one read with nothing after it."""
        self._max_body = api.parts.settings.api.max_body
        self._turn = HotTurn()
        self._speaks_1_1 = False
        """Known once it was seen: a client does not change the version it speaks."""
        self._route: AnyRoute | None = None
        """Set while the body of a hot request is arriving."""
        self._answer_with: Callable[[Any], Answer] = receipt_answer
        self._refusal: PenstockError | None = None
        self._traceparent: bytes | None = None
        self._pieces: list[bytes] = []

    def data_received(self, data: bytes) -> None:
        last: Turn | None = self.cycle
        unanswered = last is not None and not last.response_complete
        if unanswered or self._arriving or self.flow.write_paused:
            self._first = None
            super().data_received(data)
            return
        body_at = data.find(_HEAD_END) + 4
        head = self._known.get(data[:body_at])
        if head is not None and len(data) - body_at == head.length:
            self._since = self._pulse.now
            turn = self._turn
            turn.response_complete = False
            turn.keep_alive = True
            self.cycle = turn  # type: ignore[assignment] # as in on_headers_complete
            self._take(head.route, data[body_at:])
            return
        self._first = data
        super().data_received(data)
        self._first = None

    def on_message_begin(self) -> None:
        # What uvicorn makes here is made only for a request that goes the ordinary way.
        self.url = b""
        self.headers = []
        self.begin_message()

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        headers = dict(self.headers)
        method = self.parser.get_method()
        route = self._routes.find(method, self.url)
        if route is not None and not route.message and self._is_visitor(headers):
            route = self._for_visitor(method, headers)
        if route is None or not self._plain(route, headers):
            self._go_the_ordinary_way()
            return
        self.end_head()
        self._route = route
        turn = self._turn
        turn.response_complete = False
        turn.keep_alive = self.parser.should_keep_alive()
        self.cycle = turn  # type: ignore[assignment] # it answers to all that is asked of a cycle

    def on_body(self, body: bytes) -> None:
        if self._route is None:
            super().on_body(body)
            return
        self.gain(len(body))
        if self._refusal is None:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        route = self._route
        if route is None:
            super().on_message_complete()
            return
        self._arriving = False
        self._route = None
        body = b"".join(self._pieces)
        self._pieces.clear()
        if self._refusal is not None:
            self._answer(error_answer(self._refusal))
            return
        trace = self._traceparent
        # Every visitor's GET is another.
        again = trace is None and route.repeats and route.method == b"POST"
        if self._first is not None and self._turn.keep_alive and again:
            self._remember(self._first, route, len(body))
        self._take(route, body, trace)

    def _remember(self, request: bytes, route: AnyRoute, length: int) -> None:
        """The head of a request that came in one piece and was let through."""
        size = len(request) - length
        head = request[:size]
        if size <= MAX_KNOWN_SIZE and head.find(_HEAD_END) == size - 4:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            self._known[head] = KnownHead(route, length)

    def _take(self, route: AnyRoute, body: bytes, traceparent: bytes | None = None) -> None:
        api = self._api
        try:
            if api.in_flight >= api.max_in_flight:
                api.check_load()
            asked = route.decode(body)
            if traceparent is not None:
                give_trace(asked, traceparent.decode("latin-1"))
        except Exception as exc:  # noqa: BLE001 - error_answer logs what is not ours
            self._answer(error_answer(exc))
            return
        self._answer_with = route.answer
        api.in_flight += 1
        route.submit(asked, self._done)

    def _plain(self, route: AnyRoute, headers: dict[bytes, bytes]) -> bool:
        """Whether this request may go the hot way; its refusal, if any, is noted."""
        if (
            len(headers) != len(self.headers)  # one of them came twice
            or not self.answered
            or not (self._speaks_1_1 or self._hears_1_1())
            or self.flow.write_paused
            or b"transfer-encoding" in headers
            or b"expect" in headers
            or b"upgrade" in headers
        ):
            return False
        length = headers.get(b"content-length")
        if (length is None) != (route.method == b"GET") or int(length or 0) > self._max_body:
            return False
        guard = self._api.guard
        host = headers.get(b"host")
        self._refusal = None
        self._traceparent = headers.get(b"traceparent") if route.message else None
        try:
            guard.check_host(host)
            guard.check_token(headers.get(b"authorization"), route.scope)
            if length is not None:
                guard.check_origin(headers.get(b"origin"), host)
                guard.check_type(headers.get(b"content-type"))
        except PenstockError as exc:
            self._refusal = exc
        return route.message or self._refusal is None

    def _is_visitor(self, headers: dict[bytes, bytes]) -> bool:
        return self._api.guard.needs_token and b"authorization" not in headers

    def _for_visitor(self, method: bytes, headers: dict[bytes, bytes]) -> AnyRoute | None:
        if b"x-ticket" in headers:
            return None  # a ticket is checked on the ordinary way
        address = "" if self.client is None else self.client[0]
        return self._routes.for_visitor(method, self.url, address)

    def _hears_1_1(self) -> bool:
        self._speaks_1_1 = self.parser.get_http_version() == "1.1"
        return self._speaks_1_1

    def _go_the_ordinary_way(self) -> None:
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        for name, value in headers:
            super().on_header(name, value)
        super().on_headers_complete()

    def _done(self, outcome: object) -> None:
        """It is durable, or refused: called by those who saw to it, whom nothing may disturb."""
        self._api.in_flight -= 1
        try:
            if isinstance(outcome, Exception):
                answer = error_answer(outcome)
            else:
                answer = self._answer_with(outcome)
        except Exception as exc:  # noqa: BLE001 - error_answer logs what is not ours
            answer = error_answer(exc)
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        turn = self._turn
        turn.response_complete = True
        transport = self.transport
        if transport.is_closing():
            return  # the client has gone
        pulse = self._pulse
        if turn.keep_alive and not answer.headers and answer.media is JSON:
            transport.write(pulse.plain(answer))
        else:
            transport.write(render(answer, pulse.headers, keep_alive=turn.keep_alive))
            if not turn.keep_alive:
                transport.close()
        if self.pipeline or self.flow.read_paused or not turn.keep_alive:
            self.on_response_complete()
        else:  # the same, for a connection that waits for its next request
            self.server_state.total_requests += 1
            self._since = pulse.now
