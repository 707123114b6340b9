"""A request on the ordinary way: its verb, its grant, and how it is read."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import parse_qsl, unquote_to_bytes

from penstock.api.grants import NOBODY, Grant
from penstock.api.http.answer import AsgiScope, Receive
from penstock.api.http.auth import JSON_TYPES
from penstock.api.http.context import Api
from penstock.api.http.receiving import Holding
from penstock.api.verbs import Verb
from penstock.model.draft import is_id, is_key
from penstock.model.errors import (
    InvalidMessage,
    Malformed,
    TooLarge,
    UnknownMessage,
    UnknownThing,
)
from penstock.model.room import is_room_name

_VERSION = re.compile(r'("?)(\d{1,18})\1', re.ASCII)


class ClientGone(Exception):
    """The client disconnected before its request was complete, so it cannot be answered."""


class Request:
    """The argument of every handler."""

    __slots__ = ("_receive", "_scope", "_segments", "api", "grant", "headers", "verb")

    def __init__(
        self,
        api: Api,
        verb: Verb,
        segments: tuple[str, ...],
        headers: dict[bytes, bytes],
        scope: AsgiScope,
        receive: Receive,
    ) -> None:
        self.api = api
        self.verb = verb
        self.headers = headers
        self.grant: Grant = NOBODY
        """The grant of its token, once the router has accepted it."""
        self._segments = segments
        self._scope = scope
        self._receive = receive

    def raw(self, name: str) -> str:
        """A segment of the path as it was sent."""
        return self._segments[self.verb.in_path.index(name)]

    def arg(self, name: str) -> str:
        """A segment of the path, decoded; UnknownThing if it cannot be a name of its kind."""
        return _READ[name](self.raw(name))

    @property
    def args(self) -> list[str]:
        """Every named segment of the path."""
        return [self.arg(name) for name in self.verb.in_path]

    def text(self, name: str) -> str | None:
        """A header, if it was sent."""
        value = self.headers.get(name.encode())
        return None if value is None else value.decode("latin-1")

    @property
    def version(self) -> int | None:
        """`If-Match: 3`, `"3"` or `*` (any)."""
        text = self.text("if-match")
        if text is None or text.strip() == "*":
            return None
        match = _VERSION.fullmatch(text.strip())
        if match is None:
            raise InvalidMessage("if-match", 'must be a version such as 3 or "3", or *')
        return int(match[2])

    @property
    def client(self) -> str:
        """The client's name, for rate limits."""
        client: tuple[str, int] | None = self._scope["client"]
        forwarded = [value for name, value in self._scope["headers"] if name == b"x-forwarded-for"]
        peer = "" if client is None else client[0]
        return self.api.clients.name(peer, b",".join(forwarded) if forwarded else None)

    def query(self) -> dict[str, str]:
        """The query's parameters; an unknown or repeated one is an error, not a silent no."""
        try:
            pairs = parse_qsl(
                self._scope["query_string"].decode("ascii"),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=50,
            )
        except ValueError as exc:  # UnicodeDecodeError too
            raise Malformed("the query is not readable") from exc
        known, found = self.verb.query, dict[str, str]()
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

    async def chunks(self) -> AsyncIterator[bytes]:
        """Yield the body as it arrives; the protocol cuts one that stalls."""
        more = True
        while more:
            chunk, more = await self._chunk()
            if chunk:
                yield chunk

    async def _chunk(self) -> tuple[bytes, bool]:
        """The bytes that have arrived, and whether more follows."""
        event: Any = await self._receive()
        if event["type"] != "http.request":
            raise ClientGone
        return event["body"], event["more_body"]

    @property
    def has_body(self) -> bool:
        """True if the client announced a body of at least one byte."""
        length = self.headers.get(b"content-length", b"0")
        return b"transfer-encoding" in self.headers or int(length) > 0

    async def body(
        self,
        types: frozenset[bytes] = JSON_TYPES,
        *,
        most: int | None = None,
        untyped: bool = False,
    ) -> bytes:
        """A whole body of one of these content types, within the limit; `most` is one of its own.

        `untyped`: programs may leave the content type out.
        """
        guard, headers = self.api.guard, self.headers
        kind = headers.get(b"content-type")
        if not (untyped and guard.may_lack_type(kind, headers.get(b"origin"))):
            guard.check_type(kind, types)
        limit = self.api.parts.settings.api.max_body
        if most is not None:
            limit = min(limit, most)
        declared = headers.get(b"content-length")
        if declared is not None and int(declared) > limit:
            raise _too_large(limit)
        first, more = await self._chunk()
        body = bytearray(first)
        with Holding(self.api.receiving) as holding:
            while len(body) <= limit:
                holding.become(len(body))
                if not more:
                    return bytes(body)
                chunk, more = await self._chunk()
                body += chunk
        raise _too_large(limit)


def page_limit(text: str | None, default: int, most: int) -> int:
    """The query's `limit`."""
    if text is None:
        return default
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text[:9]) <= most:
        raise InvalidMessage("limit", f"must be 1-{most}")
    return int(text)


def path_text(raw: str) -> str:
    """One raw segment of a path, percent-decoded exactly once."""
    try:
        return unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as exc:
        raise UnknownThing("no such path: it is not UTF-8") from exc


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body is larger than {limit:,} bytes")


def _message_id(raw: str) -> str:
    text = unquote_to_bytes(raw).decode("latin-1")
    if not is_id(text):  # such an id was never accepted
        raise UnknownMessage(text[:200])
    return text


def _named(what: str, field: str) -> Callable[[str], str]:
    """Reads the name of a thing, which is written as an id."""

    def read(raw: str) -> str:
        try:
            return _message_id(raw)
        except UnknownMessage as exc:
            raise UnknownThing(f"no such {what}", field=field) from exc

    return read


def _key(raw: str) -> str:
    """A key of any script."""
    try:
        text = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as exc:
        raise UnknownThing("the key in the path is not UTF-8", field="key") from exc
    if not is_key(text):
        raise UnknownThing("no such key", field="key")
    return text


def _room(raw: str) -> str:
    name = path_text(raw)
    if not is_room_name(name):
        raise UnknownThing(f"no room named {name[:100]!r}", field="room")
    return name


_READ: dict[str, Callable[[str], str]] = {
    "id": _message_id,
    "name": _named("route", "route"),
    "policy": _named("policy or list", "id"),
    "rule": _named("recurring rule", "id"),
    "suppression": _named("policy or list", "id"),
    "key": _key,
    "room": _room,
    "user": path_text,
}
"""The function that reads each name in a path of the table."""
