"""What every handler works with, and how a request is read."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import TypeAlias
from urllib.parse import parse_qsl, unquote_to_bytes

from litestar.di import NamedDependency

from penstock.api.audit import Audit
from penstock.api.http.answers import HttpRequest
from penstock.api.http.auth import JSON_TYPES, Guard, header
from penstock.api.http.clients import Clients
from penstock.api.http.live import Live
from penstock.api.http.receiving import Holding, Receiving
from penstock.api.http.visitors import Visitors
from penstock.flow.status import Status
from penstock.flow.worker import Worker
from penstock.model.errors import InvalidMessage, Malformed, Overloaded, TooLarge, UnknownMessage
from penstock.model.identity import is_id
from penstock.rooms.parts import RoomParts
from penstock.version import __version__
from penstock.wiring import Parts

VERSION = __version__
LIMITED = {"limited": True}
"""Of handlers that a token limited to routes or classes may call: they check both themselves."""
MAX_IN_FLIGHT = 20_000
"""Single puts waiting for the store at most; more are answered 429."""
SMALL_BODY = 64 * 1024
"""Bytes of a body that carries no payload: filters, rooms, policies, ticks."""
VISITOR_BODY = 4 * 1024
"""Bytes of what a visitor sends."""

_VERSION = re.compile(r'("?)(\d{1,18})\1', re.ASCII)


@dataclass(slots=True)
class Api:
    """The parts of this process, as the handlers see them."""

    parts: Parts
    guard: Guard
    worker: Worker | None = None
    max_in_flight: int = MAX_IN_FLIGHT
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server stops: streams end."""
    started: float = field(default_factory=time.monotonic)
    in_flight: int = 0
    """Single puts that came in and are not answered."""
    rooms: RoomParts | None = None
    """None: this store keeps no waiting rooms."""
    visitors: Visitors = field(default_factory=Visitors)
    audit: Audit = field(default_factory=Audit)
    clients: Clients = field(init=False)
    receiving: Receiving = field(init=False)
    status: Status = field(init=False)
    live: Live = field(init=False)

    def __post_init__(self) -> None:
        settings = self.parts.settings.api
        self.clients = Clients(settings.trusted_proxies)
        self.receiving = Receiving(max(settings.max_receiving, settings.max_body))
        self.status = self.parts.status()
        self.live = Live(self.status, self.parts.store.clock, self.closing, self.rooms)

    def check_load(self) -> None:
        if self.in_flight >= self.max_in_flight:
            raise Overloaded(f"{self.in_flight:,} messages are waiting for the store already")


TheApi: TypeAlias = NamedDependency[Api]
"""The Api, as a handler is given it."""


class ClientGone(Exception):
    """The client left before its request was complete: nobody is there to answer."""


async def body_chunks(request: HttpRequest) -> AsyncIterator[bytes]:
    """The body as it arrives; the protocol cuts those that stall."""
    more = True
    while more:
        event = await request.receive()
        if event["type"] != "http.request":
            raise ClientGone
        if event["body"]:
            yield event["body"]
        more = event["more_body"]


async def read_body(
    request: HttpRequest,
    api: Api,
    types: frozenset[bytes] = JSON_TYPES,
    *,
    most: int | None = None,
    untyped: bool = False,
) -> bytes:
    """A whole body of one of these content types, within the limit; `most` is one of its own.

    `untyped`: programs may leave the content type out.
    """
    headers = request.scope["headers"]
    kind = header(headers, b"content-type")
    if not (untyped and api.guard.may_lack_type(kind, header(headers, b"origin"))):
        api.guard.check_type(kind, types)
    limit = api.parts.settings.api.max_body
    if most is not None:
        limit = min(limit, most)
    too_large = TooLarge(f"the body is larger than {limit:,} bytes")
    declared = header(headers, b"content-length")
    if declared is not None and int(declared) > limit:
        raise too_large
    body = bytearray()
    with Holding(api.receiving) as holding:
        async for chunk in body_chunks(request):
            body += chunk
            if len(body) > limit:
                raise too_large
            holding.become(len(body))
    return bytes(body)


def client_of(request: HttpRequest, api: Api) -> str:
    """Who sent it, for limits."""
    client = request.scope["client"]
    forwarded = [value for name, value in request.scope["headers"] if name == b"x-forwarded-for"]
    peer = "" if client is None else client[0]
    return api.clients.name(peer, b",".join(forwarded) if forwarded else None)


def path_id(raw: str) -> str:
    """One raw path segment, percent-decoded exactly once → a message id."""
    text = unquote_to_bytes(raw).decode("latin-1")
    if not is_id(text):  # such an id was never accepted
        raise UnknownMessage(text[:200])
    return text


def version_wanted(request: HttpRequest) -> int | None:
    """`If-Match: 3`, `"3"` or `*` (any)."""
    value = header(request.scope["headers"], b"if-match")
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    if text == "*":
        return None
    match = _VERSION.fullmatch(text)
    if match is None:
        raise InvalidMessage("if-match", 'must be a version such as 3 or "3", or *')
    return int(match[2])


def traceparent(request: HttpRequest) -> str | None:
    """The trace the request is part of, for messages without one of their own."""
    value = header(request.scope["headers"], b"traceparent")
    return None if value is None else value.decode("latin-1")


def page_limit(text: str | None, default: int, most: int) -> int:
    """The query's `limit`."""
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= most:
        raise InvalidMessage("limit", f"must be 1-{most}")
    return int(text)


def query(request: HttpRequest, known: frozenset[str]) -> dict[str, str]:
    """The query's parameters; an unknown or repeated one is an error, not a silent no."""
    try:
        pairs = parse_qsl(
            request.scope["query_string"].decode("ascii"),
            keep_blank_values=True,
            errors="strict",
            max_num_fields=50,
        )
    except ValueError as exc:  # UnicodeDecodeError too
        raise Malformed("the query is not readable") from exc
    found: dict[str, str] = {}
    for name, value in pairs:
        if name not in known:
            raise InvalidMessage(
                name[:100], f"no such parameter; known: {', '.join(sorted(known))}"
            )
        if name in found:
            raise InvalidMessage(name, "is given more than once")
        if value:  # `state=` is the same as leaving it out
            found[name] = value
    return found
