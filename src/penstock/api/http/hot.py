"""The hot way in: `POST /v1/messages`, mounted hot routes and visitors, without ASGI.

Only the plainest requests go this way: HTTP/1.1, a Content-Length within the limit or (of messages)
a chunked body, no unanswered request before it on its connection. Everything else goes the ordinary
way, to the same intake and through the same checks, and gets the same bytes. So does a chunked body
that exceeds its limit.

A client repeats the same head, but for the length of the body. One that was parsed, checked and
accepted is remembered by its bytes; when it is received again on any connection, with a body that
has a length or is one chunk, neither is done again, also where head and body arrive in pieces.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

from uvicorn.config import Config
from uvicorn.server import ServerState

from penstock.api.grants import ANYONE, NOBODY, Grant, check_drafts
from penstock.api.http.answer import Answer, receipt_answer
from penstock.api.http.connection import BoundedProtocol, Pulse, Turn
from penstock.api.http.context import Api
from penstock.api.http.errors import error_answer
from penstock.api.http.hot_rooms import ROOMS, RoomRoutes
from penstock.api.http.hot_route import HotRoute
from penstock.api.verbs import load
from penstock.model.draft import Draft, decode_draft
from penstock.model.errors import PenstockError
from penstock.model.trace import give_trace

AnyRoute: TypeAlias = HotRoute[Any, Any]
"""A route whose decode, submit and answer agree on their types."""


class KnownHead(NamedTuple):
    """A head that was let through before: to these bytes the answer is always the same."""

    route: AnyRoute
    is_chunked: bool
    """Whether its body is; else the head says the length."""
    grant: Grant


KnownHeads: TypeAlias = dict[bytes, KnownHead]
"""Heads without the digits of a Content-Length; shared by all connections of a server."""
MAX_KNOWN = 1_024
MAX_KNOWN_SIZE = 1_024
"""Bytes of a head that is remembered, so that all of them stay small."""
MAX_APART = 4_096
"""Bytes of a request with a known head that are buffered until its body is whole: head and body
often arrive in two pieces.
"""
_HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\n[Cc]ontent-[Ll]ength: ?(\d{1,9})\r\n")
_CHUNK = re.compile(rb"([0-9a-fA-F]{1,8})\r\n")
_LAST_CHUNK = b"\r\n0\r\n\r\n"
NO_CHANGE = ("", "")
UNKNOWN_LENGTH = 1 << 62
"""Stands for the length of a chunked body."""
READ_ALTHOUGH_REFUSED = 16 * 1024
"""Bytes of a message that is refused by its head and read all the same."""


class HotRoutes:
    """The hot routes, by address and method."""

    def __init__(self, api: Api) -> None:
        submit = api.parts.intake.submit
        self._messages: dict[bytes, AnyRoute] = {
            b"/v1/messages": HotRoute(decode_draft, submit, receipt_answer)
        }
        for mount in api.mounts:
            if mount.hot:
                routes: dict[str, AnyRoute] = load(mount.hot)(api)
                self._messages |= {path.encode(): route for path, route in routes.items()}
        self._rooms = (
            None
            if api.rooms is None
            else RoomRoutes(api.rooms, api.visitors, api.parts.settings.rooms.joins_per_client)
        )

    def find(self, method: bytes, url: bytes) -> AnyRoute | None:
        """The fast route for this method and path, or None to fall back to ASGI."""
        route = self._messages.get(url)
        if route is not None:
            return route if method == b"POST" else None
        if self._rooms is None or not url.startswith(ROOMS):
            return None
        if method == b"POST":
            return self._rooms.join(url)
        return self._rooms.ticket(url) if method == b"GET" else None

    def for_visitor(self, method: bytes, url: bytes, address: str) -> AnyRoute | None:
        """The fast route for a visitor without a token, where other callers need one."""
        if self._rooms is None or method != b"POST":
            return None
        return self._rooms.public_join(url, address)


class _NobodyWaits:
    """Stands where uvicorn keeps the event its ASGI task waits on."""

    def set(self) -> None:
        """Does nothing: there is no task to wake."""


class HotTurn:
    """The connection's turn while a hot request is unanswered.

    It replaces uvicorn's cycle, so that uvicorn's own logic queues pipelined requests behind it,
    keeps order, and waits for it at shutdown.
    """

    message_event = _NobodyWaits()

    def __init__(self) -> None:
        self.response_started = False
        self.response_complete = True
        self.disconnected = False
        self.keep_alive = True


class HotProtocol(BoundedProtocol):
    """One connection, with a short way for frequent requests."""

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
        self._head: bytes | None = None
        """The first bytes of the request, while it may still be one read with nothing after it."""
        self._apart = b""
        """A known head and the beginning of its body, which the parser has not been given."""
        self._max_body = api.parts.settings.api.max_body
        self._turn = HotTurn()
        self._speaks_1_1 = False
        """Known once it was seen: a client does not change the version it speaks."""
        self._route: AnyRoute | None = None
        """Set while the body of a hot request is arriving."""
        self._answer_with: Callable[[Any], Answer] = receipt_answer
        self._refusal: PenstockError | None = None
        self._traceparent: bytes | None = None
        self._grant = NOBODY
        self._change = NO_CHANGE
        """The verb and the object that an audit line names for this request."""
        self._length = 0
        """Bytes of the body that is arriving; UNKNOWN_LENGTH: it is chunked."""
        self._pieces: list[bytes] = []
        self._held = 0
        """Bytes of it that count as being received."""

    def data_received(self, data: bytes) -> None:
        if self._apart:
            data, self._apart = self._apart + data, b""
        last: Turn | None = self.cycle
        unanswered = last is not None and not last.response_complete
        if unanswered or self._arriving or self.flow.write_paused:
            super().data_received(data)
            return
        body_at = data.find(_HEAD_END) + 4
        key, length = _key_of(data, body_at)
        head = self._known.get(key)
        if head is not None and head.is_chunked is (length == UNKNOWN_LENGTH):
            body = _whole_body(data, body_at, length)
            if body is not None and len(body) <= min(self._max_body, head.route.max_body):
                self._take_known(head, body)
                return
            if body is None and len(data) < MAX_APART and _is_begun(data, body_at, length):
                self._apart = data
                self._since = self._pulse.now
                return
        is_whole = 4 <= body_at <= MAX_KNOWN_SIZE and data[:2] != b"\r\n"
        self._head = data[:body_at] if is_whole else None
        super().data_received(data)

    def _take_known(self, head: KnownHead, body: bytes) -> None:
        self._since = self._pulse.now
        turn = self._turn
        turn.response_complete = False
        turn.keep_alive = True
        self.cycle = turn  # type: ignore[assignment] # as in on_headers_complete
        self._grant = head.grant
        self._take(head.route, body)

    def on_message_begin(self) -> None:
        # uvicorn's objects are made only for a request that goes the ordinary way.
        self.url = b""
        self.headers = []
        self.begin_message()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # a trailer is none
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        if self.parser.should_upgrade():
            self._upgrade_head = True
            return
        method = self.parser.get_method()
        route = self._routes.find(method, self.url)
        if route is not None:
            headers = dict(self.headers)
            if not route.message and self._is_visitor(headers):
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
        if self._refusal is None:
            size = len(body)
            self.gain(size)
            self._pieces.append(body)
            if size < self._length:  # else it is complete, and not buffered at all
                self._hold(size)
                if self._length == UNKNOWN_LENGTH and self._held > self._limit(self._route):
                    self._turn_ordinary()

    def _limit(self, route: AnyRoute) -> int:
        return min(self._max_body, route.max_body)

    def _turn_ordinary(self) -> None:
        """Hand a request whose body has begun to arrive to the ordinary way."""
        pieces = self._pieces.copy()
        self._let_go()
        self._route = None
        self._turn.response_complete = True
        self._go_the_ordinary_way()
        for piece in pieces:
            super().on_body(piece)

    def _hold(self, size: int) -> None:
        try:
            self._api.receiving.hold(size)
        except PenstockError as exc:
            self._refusal = exc
            self._let_go()
        else:
            self._held += size

    def _let_go(self) -> None:
        self._pieces.clear()
        if self._held:
            self._api.receiving.free(self._held)
            self._held = 0

    def look_after(self, now: float) -> None:
        self._read_on()
        super().look_after(now)

    def shutdown(self) -> None:
        self._read_on()
        super().shutdown()

    def _read_on(self) -> None:
        """Let the parser read a request whose rest did not follow at once, like any other."""
        if self._apart:
            data, self._apart = self._apart, b""
            super().data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._apart = b""
        self._let_go()
        super().connection_lost(exc)

    def on_message_complete(self) -> None:
        route, head, self._head = self._route, self._head, None
        if route is None:
            super().on_message_complete()
            return
        self.end_message()
        self._route = None
        body = b"".join(self._pieces)
        self._let_go()
        if self._refusal is not None:
            self._answer(error_answer(self._refusal))
            return
        trace = self._traceparent
        # Every visitor's GET is another.
        again = trace is None and route.repeats and route.method == b"POST"
        if head is not None and self._turn.keep_alive and again:
            self._remember(head, route)
        self._take(route, body, trace)

    def _remember(self, head: bytes, route: AnyRoute) -> None:
        """A head that was let through, unless the parser has seen its end elsewhere."""
        lines = len(self.headers) + 2
        if head.count(b"\n") == head.count(b"\r\n") == lines:
            if len(self._known) >= MAX_KNOWN:
                self._known.clear()
            key, length = _key_of(head, len(head))
            if length == self._length:
                self._known[key] = KnownHead(route, length == UNKNOWN_LENGTH, self._grant)

    def _take(self, route: AnyRoute, body: bytes, traceparent: bytes | None = None) -> None:
        api = self._api
        self._change = NO_CHANGE
        try:
            if api.in_flight >= api.max_in_flight:
                api.check_load()
            asked = route.decode(body)
            if traceparent is not None:
                give_trace(asked, traceparent.decode("latin-1"))
            grant = self._grant
            is_limited = grant is not ANYONE and grant.is_limited
            if grant.name and route.verb:
                self._change = route.verb, route.target or asked.route
                if is_limited:
                    grant.check_draft(asked)
        except Exception as exc:  # noqa: BLE001 - error_answer logs what is not ours
            self._answer(error_answer(exc))
            return
        self._answer_with = route.answer
        api.in_flight += 1
        if is_limited and route.message and asked.id is not None:
            task = asyncio.get_running_loop().create_task(self._submit_checked(route, asked))
            self.tasks.add(task)  # uvicorn's: it waits for them at shutdown
            task.add_done_callback(self.tasks.discard)
        else:
            route.submit(asked, self._done)

    async def _submit_checked(self, route: AnyRoute, draft: Draft) -> None:
        """Submit a put whose id may be known, if the token covers the stored message too."""
        try:
            (refusal,) = await check_drafts(self._grant, self._api.parts.control, [draft])
        except PenstockError as exc:
            refusal = exc
        if refusal is None:
            route.submit(draft, self._done)
        else:
            self._done(refusal)

    def _plain(self, route: AnyRoute, headers: dict[bytes, bytes]) -> bool:
        """True if this request may go the hot way; a refusal is noted."""
        if (
            len(headers) != len(self.headers)  # a header was repeated
            or not self.answered
            or not (self._speaks_1_1 or self._hears_1_1())
            or self.flow.write_paused
            or b"expect" in headers
            or b"upgrade" in headers
        ):
            return False
        has_body = route.method != b"GET"
        if not self._knows_length(route, headers, has_body=has_body):
            return False
        guard = self._api.guard
        host = headers.get(b"host")
        self._refusal = None
        self._traceparent = headers.get(b"traceparent") if route.message else None
        try:
            guard.check_host(host)
            self._grant = guard.check_token(headers.get(b"authorization"), route.scope)
            if not route.message:
                self._grant.check_unlimited(reading=route.method == b"GET")
            if has_body:
                origin, kind = headers.get(b"origin"), headers.get(b"content-type")
                guard.check_origin(origin, host)
                if not (route.untyped and guard.may_lack_type(kind, origin)):
                    guard.check_type(kind)
            if route.admit is not None:
                route.admit()
        except PenstockError as exc:
            self._refusal = exc
        # A refused body that is large, or chunked and so perhaps endless, is not read: the ordinary
        # way refuses it at once. A small one is: the connection stays open.
        waits_for_body = route.message and self._length <= READ_ALTHOUGH_REFUSED
        return waits_for_body or self._refusal is None

    def _knows_length(
        self, route: AnyRoute, headers: dict[bytes, bytes], *, has_body: bool
    ) -> bool:
        """True if the body's length is given and within the limit, or it is a chunked message."""
        length = headers.get(b"content-length")
        encoding = headers.get(b"transfer-encoding")
        if encoding is not None:
            self._length = UNKNOWN_LENGTH
            return route.message and has_body and length is None and encoding == b"chunked"
        self._length = int(length or 0)
        return (length is not None) == has_body and self._length <= self._limit(route)

    def _is_visitor(self, headers: dict[bytes, bytes]) -> bool:
        return self._api.guard.needs_token and b"authorization" not in headers

    def _for_visitor(self, method: bytes, headers: dict[bytes, bytes]) -> AnyRoute | None:
        if b"x-ticket" in headers:
            return None  # a ticket is checked on the ordinary way
        peer = "" if self.client is None else self.client[0]
        name = self._api.clients.name(peer, headers.get(b"x-forwarded-for"))
        return self._routes.for_visitor(method, self.url, name)

    def _hears_1_1(self) -> bool:
        self._speaks_1_1 = self.parser.get_http_version() == "1.1"
        return self._speaks_1_1

    def _go_the_ordinary_way(self) -> None:
        if not self.parser.should_keep_alive() or self.parser.get_http_version() == "1.0":
            self._read_last()
        url, headers = self.url, self.headers
        super().on_message_begin()
        self.url = url
        self.headers += headers
        for name, value in headers:
            if name == b"expect" and value.lower() == b"100-continue":
                self.expect_100_continue = True
        super().on_headers_complete()

    def _done(self, outcome: object) -> None:
        """Answer with the outcome; must not raise, since the coalescer calls it for many
        requests.
        """
        self._api.in_flight -= 1
        try:
            if isinstance(outcome, Exception):
                answer = error_answer(outcome)
            else:
                answer = self._answer_with(outcome)
                if self._change is not NO_CHANGE:
                    self._api.audit.count(self._grant, *self._change)
        except Exception as exc:  # noqa: BLE001 - error_answer logs what is not ours
            answer = error_answer(exc)
        self._answer(answer)

    def _answer(self, answer: Answer) -> None:
        turn = self._turn
        turn.response_complete = True
        transport = self.transport
        if transport.is_closing():
            return  # the client has disconnected
        pulse = self._pulse
        transport.write(pulse.rendered(answer, keep_alive=turn.keep_alive))
        if not turn.keep_alive:
            transport.close()
        if self.pipeline or self.flow.read_paused or not turn.keep_alive:
            self.on_response_complete()
        else:  # the same, for a connection that waits for its next request
            self.server_state.total_requests += 1
            self._since = pulse.now


def _key_of(data: bytes, end: int) -> tuple[bytes, int]:
    """The key that a head is remembered by, and its body's length; without one, UNKNOWN_LENGTH."""
    found = _LENGTH.search(data, 0, end)
    if found is None:
        return data[:end], UNKNOWN_LENGTH
    # A head that was remembered has no NUL: where the length was cut out stays known.
    return data[: found.start(1)] + b"\0" + data[found.end(1) : end], int(found[1])


def _whole_body(data: bytes, at: int, length: int) -> bytes | None:
    """The body that begins there, if nothing is behind it; of a chunked one, if it is one chunk."""
    if length != UNKNOWN_LENGTH:
        return data[at:] if len(data) - at == length else None
    size = _CHUNK.match(data, at)
    if size is None:
        return None
    end = size.end() + int(size[1], 16)
    return data[size.end() : end] if data[end:] == _LAST_CHUNK and end > size.end() else None


def _is_begun(data: bytes, at: int, length: int) -> bool:
    """True if these bytes may become a whole body with those still to arrive."""
    if length != UNKNOWN_LENGTH:
        return len(data) - at < length
    size = _CHUNK.match(data, at)
    if size is None:
        return len(data) == at  # the head alone
    rest = data[size.end() + int(size[1], 16) :]
    return len(rest) < len(_LAST_CHUNK) and _LAST_CHUNK.startswith(rest)
