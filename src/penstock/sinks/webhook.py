"""http(s):// — POSTs each message, signed by the Standard Webhooks scheme.

| the other side                                   | outcome                                 |
|--------------------------------------------------|-----------------------------------------|
| answers 2xx (whatever the body does then)        | delivered                               |
| answers 408, 425, 429, 5xx                       | retry, not before its Retry-After       |
| answers something that is not HTTP               | retry                                   |
| answers 3xx (never followed) or another 4xx      | dead                                    |
| takes the request and does not answer in time    | retry: that message's own affair        |
| is not there, cuts the line                      | retry; the circuit breaker counts it    |

A *kept-alive* connection may be closed by the other side in the very moment it is used again, or
after it acted and before it answered: the sender cannot tell which. So that is a retry too, after a
moment and as the next attempt, and the circuit breaker does not count it.
"""

from __future__ import annotations

import asyncio
import base64
import io
import re
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

import aiohttp
import msgspec

from penstock.model.answers import Scrubber, retry_after
from penstock.model.envelope import Envelope
from penstock.model.errors import SinkUnavailable
from penstock.model.headers import CONNECTION
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead, Retry, SendOutcome
from penstock.model.shown import shown_webhook
from penstock.model.signing import Signer
from penstock.ports.sink import Sink, SinkOptions
from penstock.tls import client_context

CONCURRENCY = 100
KEEP_ALIVE = 30.0
MAX_ANSWER = 4 * 1024
"""Bytes read of an answer's body; the connection of a longer one is not reused."""
ANSWER_PATIENCE = 1.0
"""Seconds to wait for an answer's body: its status has already decided the outcome."""
STALE_WAIT = 0.05
"""Seconds until a message is retried whose kept-alive connection was closed during the send."""
LONG_SEGMENT = 16
"""Length from which a segment of the path is treated as a secret."""
LARGE = 1024 * 1024
"""Bytes from which a body is written in pieces, so that the event loop can run in between."""

PROXY_LOGIN = 407
"""Status of a proxy that rejects the login: it says nothing about the message."""
_RETRIED = frozenset({408, 425, 429})
_PRIVATE_NAME = re.compile("auth|cookie|key|pass|secret|sign|token", re.IGNORECASE)


class WebhookOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Options in the route's table only: the query of the URL belongs to the receiver."""

    proxy: str | None = None
    """Send through this HTTP proxy (`http://user:password@host:port`), by CONNECT for https. Unset:
    directly; the environment's proxies are not used."""
    tls_ca: str | None = None
    """File of certificates to trust; unset: the system's."""
    tls_cert: str | None = None
    """File of the client certificate, if the receiver requires one."""
    tls_key: str | None = None
    """File of the certificate's key; unset: it is in the same file."""

    def __repr__(self) -> str:
        return type(self).__name__  # never show the proxy's password


class _Stale(Exception):
    """A kept-alive connection ended without an answer."""


class _Line:
    """The state of the connection that carries a message."""

    __slots__ = ("connected", "reused")

    def __init__(self) -> None:
        self.connected = False
        self.reused = False


class WebhookSink:
    max_batch = 1
    concurrency = CONCURRENCY

    def __init__(
        self,
        url: SplitResult,
        envelope: Envelope,
        signer: Signer | None,
        scrub: Scrubber,
        *,
        timeout: float,
        proxy: str | None = None,
        tls: ssl.SSLContext | bool = True,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.host = url.netloc
        self.name = shown_webhook(url)
        self._url = url
        self._target = url.geturl()
        self._envelope = envelope
        self._signer = signer
        self._scrub = scrub
        self._timeout = timeout
        self._proxy = proxy
        self._tls = tls
        self._now = now
        tracing = aiohttp.TraceConfig()
        tracing.on_connection_reuseconn.append(_note_reuse)
        tracing.on_connection_create_end.append(_note_connection)
        self._session = aiohttp.ClientSession(
            # No limit here: the route's limit on sends in flight applies.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE, ssl=tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None),
            headers={"user-agent": "penstock", "accept-encoding": "identity"},
            auto_decompress=False,  # a compressed answer must not expand beyond the bytes read
            trace_configs=[tracing],
        )

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        return [await self._post(message) for message in batch]

    async def _post(self, message: Message) -> SendOutcome:
        deadline = asyncio.get_running_loop().time() + self._timeout
        line = _Line()
        try:
            async with asyncio.timeout_at(deadline):
                response = await self._exchange(message, line)
        except (aiohttp.ClientError, OSError, _Stale) as exc:  # a TimeoutError is an OSError
            return self._failure(exc, line)
        except ValueError as exc:  # raised by the client for this message: nothing was sent
            return Dead(self._scrub(f"{self.host}: cannot be a request: {exc}"))
        try:
            # An answer that is already complete has released its connection: no need to wait.
            whole = response.content.is_eof() and 200 <= response.status < 300
            body = b"" if whole else await _beginning(response, deadline)
            return self._judge(response, body)
        finally:
            response.close()

    def _failure(self, exc: Exception, line: _Line) -> Retry:
        """The retry of a send that got no answer."""
        if isinstance(exc, TimeoutError):
            if not line.connected:
                late = f"{self.host}: no connection in {self._timeout:g} s"
                return Retry(late, unreachable=True, unsure=False)
            return Retry(f"{self.host}: no answer in {self._timeout:g} s", unsure=True)
        if isinstance(exc, _Stale):
            closed = f"{self.host}: closed a kept-alive connection unanswered"
            return Retry(closed, STALE_WAIT, unsure=True)
        if isinstance(exc, aiohttp.ClientHttpProxyError):
            refused = f"{self.host}: the proxy answered {exc.status}"
            return Retry(refused, unreachable=True, unsure=False)
        if isinstance(exc, aiohttp.ClientResponseError):
            strange = self._scrub(f"{self.host}: the answer is not HTTP ({exc.message})")
            return Retry(strange, unsure=True)
        sent = not isinstance(exc, aiohttp.ClientConnectorError)
        trouble = self._scrub(f"{self.host}: {_trouble(exc)}")
        return Retry(trouble, unreachable=True, unsure=sent)

    async def _exchange(self, message: Message, line: _Line) -> aiohttp.ClientResponse:
        payload = message.payload
        try:
            return await self._session.post(
                self._target,
                data=payload if len(payload) <= LARGE else io.BytesIO(payload),
                headers=self._headers(message),
                allow_redirects=False,
                proxy=self._proxy,
                trace_request_ctx=line,
            )
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as exc:
            if line.reused:
                raise _Stale from exc
            raise

    def _headers(self, message: Message) -> dict[str, str]:
        headers = {
            name: value
            for name, value in self._envelope.headers(message).items()
            if name.lower() not in CONNECTION
        }
        timestamp = int(self._now())
        # Outer blanks of a header's value are lost on the wire: sign the value without them.
        webhook_id = message.id.strip()
        headers["webhook-id"] = webhook_id
        headers["webhook-timestamp"] = str(timestamp)
        if self._signer is not None:
            signature = self._signer.sign(webhook_id, timestamp, message.payload)
            headers["webhook-signature"] = signature
        return headers

    def _judge(self, response: aiohttp.ClientResponse, body: bytes) -> SendOutcome:
        status = response.status
        if 200 <= status < 300:
            return DELIVERED
        if 300 <= status < 400:
            return Dead(f"{self.host} answered {status}: redirects are not followed")
        said = self._scrub(body.decode(errors="replace"))
        error = f"{self.host} answered {status}"
        of_proxy = status == PROXY_LOGIN and self._proxy is not None
        if status in _RETRIED or status >= 500 or of_proxy:
            wish = response.headers.get("retry-after")
            return Retry(error, after=retry_after(wish, self._now()), answer=said)
        return Dead(error, answer=said)

    async def check(self) -> None:
        """Open a connection, to the proxy if there is one, and close it.

        A request is not sent: it might have an effect at the receiver.
        """
        first = self._url if self._proxy is None else urlsplit(self._proxy)
        secure = first.scheme == "https"
        port = first.port or (443 if secure else 80)
        try:
            async with asyncio.timeout(self._timeout):
                _, writer = await asyncio.open_connection(
                    first.hostname, port, ssl=self._tls if secure else None
                )
                writer.close()
        except OSError as exc:  # a TimeoutError is one too, with an empty text
            reason = str(exc) or f"no connection in {self._timeout:g} s"
            raise SinkUnavailable(f"{self.host} cannot be reached: {reason}") from exc

    async def close(self) -> None:
        await self._session.close()


async def open_sink(url: str, options: SinkOptions) -> Sink:
    own = options.read(WebhookOptions)
    parts = urlsplit(url)
    try:
        usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() for character in url):
        raise options.wrong(f"must be {parts.scheme}://host[:port]/path")
    login = _login(parts)
    options = replace(options, headers={**login, **options.headers})
    try:
        signer = None if options.secret is None else Signer(options.secret)
    except ValueError as exc:
        raise options.wrong(str(exc), "secret") from exc
    scrub = Scrubber(_private(parts, options))
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2], fragment="")
    own_tls = own.tls_ca or own.tls_cert or own.tls_key
    return WebhookSink(
        bare,
        options.envelope(),
        signer,
        scrub,
        timeout=options.timeout,
        proxy=_checked_proxy(own, options),
        tls=client_context(options.wrong, own.tls_ca, own.tls_cert, own.tls_key)
        if own_tls
        else True,
    )


def _checked_proxy(own: WebhookOptions, options: SinkOptions) -> str | None:
    if own.proxy is None:
        return None
    try:
        parts = urlsplit(own.proxy)
        usable = parts.scheme == "http" and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or any(character.isspace() for character in own.proxy):
        raise options.wrong("must be http://[user:password@]host:port", "proxy")
    return own.proxy


def _login(parts: SplitResult) -> dict[str, str]:
    if parts.username is None and parts.password is None:
        return {}
    pair = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
    return {"authorization": "Basic " + base64.b64encode(pair.encode()).decode()}


def _private(parts: SplitResult, options: SinkOptions) -> list[str]:
    """Texts that an answer may echo and that must not appear in errors."""
    password = parts.password or ""
    private = [password, unquote(password), *(options.secret or "").split()]
    # The path too, as a whole and each segment long enough to be a secret.
    private += [parts.path, unquote(parts.path), f"{parts.path}?{parts.query}"]
    private += [part for part in parts.path.split("/") if len(part) >= LONG_SEGMENT]
    private += [value for _, value in parse_qsl(parts.query)]
    for name, value in options.headers.items():
        if _PRIVATE_NAME.search(name):
            private += value.split()
    return private


async def _note_reuse(_session: object, trace: SimpleNamespace, _params: object) -> None:
    trace.trace_request_ctx.connected = trace.trace_request_ctx.reused = True


async def _note_connection(_session: object, trace: SimpleNamespace, _params: object) -> None:
    trace.trace_request_ctx.connected = True


async def _beginning(response: aiohttp.ClientResponse, deadline: float) -> bytes:
    """The beginning of the answer's body, up to a limit of bytes and of time."""
    got = bytearray()
    patience = asyncio.get_running_loop().time() + ANSWER_PATIENCE
    try:
        async with asyncio.timeout_at(min(deadline, patience)):
            while len(got) < MAX_ANSWER and (chunk := await response.content.readany()):
                got += chunk
    except (TimeoutError, aiohttp.ClientError, OSError):
        return bytes(got)
    return bytes(got)


def _trouble(exc: Exception) -> str:
    if isinstance(exc, aiohttp.ServerDisconnectedError):
        return "closed the connection without an answer"
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        return f"cannot connect: {exc.certificate_error}"
    if isinstance(exc, aiohttp.ClientConnectorError):
        return f"cannot connect: {exc.os_error.strerror or exc.os_error}"
    return f"connection failed: {exc}"
