"""Answers as values, so that both ways in (the router and the hot way) give the same bytes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Protocol, TypeAlias

import msgspec

from penstock.model.outcome import Receipt
from penstock.model.times import format_moment
from penstock.model.view import Accepted

AsgiScope: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]
JsonValue: TypeAlias = msgspec.Struct | Mapping[str, object] | Sequence[msgspec.Struct]

JSON = "application/json"
NO_STORE = ("cache-control", "no-store")
"""Answers hold payloads, tickets and tokens: no cache on the way may keep them."""
BODILESS = frozenset({204, 304})
"""Statuses of answers that have no body, and so no length of one."""
AT_ONCE = "penstock.at_once"
"""The scope's key for the function that sends a whole Answer in one write, on our own
connections.
"""

_encode = msgspec.json.Encoder().encode


class Reply(Protocol):
    """A handler's result, which can send itself."""

    async def send(self, receive: Receive, send: Send) -> None: ...


class Answer(msgspec.Struct, frozen=True):
    """Status, body and the headers that are not the same for every answer."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    media: str = JSON

    @property
    def all_headers(self) -> tuple[tuple[str, str], ...]:
        """Its own headers, `no-store` unless they set caching, and the content type."""
        kept = any(name == "cache-control" for name, _ in self.headers)
        return (*self.headers, *(() if kept else (NO_STORE,)), ("content-type", self.media))

    async def send(self, receive: Receive, send: Send) -> None:
        del receive
        length = None if self.status in BODILESS else len(self.body)
        await send_head(send, self.status, self.all_headers, length)
        await send({"type": "http.response.body", "body": self.body})


class Stream:
    """An answer that goes on until its chunks end or the client leaves."""

    def __init__(
        self, chunks: AsyncGenerator[bytes, None], *headers: tuple[str, str], media: str
    ) -> None:
        self._chunks = chunks
        self._headers = (*headers, ("content-type", media))

    async def send(self, receive: Receive, send: Send) -> None:
        async with contextlib.aclosing(self._chunks):
            await send_head(send, 200, self._headers)
            tasks = [asyncio.ensure_future(each) for each in (self._pump(send), _gone(receive))]
            try:
                await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                pumped, _ = await asyncio.gather(*tasks, return_exceptions=True)
        if isinstance(pumped, Exception):
            raise pumped

    async def _pump(self, send: Send) -> None:
        async for chunk in self._chunks:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def receipt_answer(receipt: Receipt) -> Answer:
    """201 for a new message, 200 for an id seen before."""
    due = format_moment(receipt.due)
    shown = Accepted(receipt.id, receipt.state, due, receipt.duplicate)
    return Answer(200 if receipt.duplicate else 201, _encode(shown))


def json_answer(value: JsonValue, status: int = 200, *headers: tuple[str, str]) -> Answer:
    return Answer(status, _encode(value), headers)


async def send_head(
    send: Send, status: int, headers: Sequence[tuple[str, str]], length: int | None = None
) -> None:
    """The status and the headers, in the order that `connection.render` has them too."""
    encoded = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    if length is not None:
        encoded.append((b"content-length", b"%d" % length))
    await send({"type": "http.response.start", "status": status, "headers": encoded})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
