"""Cut a body of any length into its items as it arrives, buffering one item at most.

Whole well-formed pieces of a body are decoded together; only around an error is each item decoded
on its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, Protocol, TypeAlias

from penstock.model.draft import Draft, decode_drafts
from penstock.model.errors import Malformed, PenstockError, TooLarge


class Block(NamedTuple):
    """Items that were read together."""

    drafts: list[Draft]
    size: int
    """Bytes as received."""


PAUSE = Block([], 0)
"""No items: many bytes were scanned, and other requests may have their turn."""
MARKS = 2_048
"""Brackets and commas scanned between two pauses."""
MAX_DEPTH = 1_000
"""Brackets inside each other."""

Item: TypeAlias = bytes | PenstockError | Block
"""The bytes of one item, or why there are none; or many items at once."""


class Splitter(Protocol):
    @property
    def held(self) -> int:
        """Bytes buffered until more arrives."""
        ...

    def feed(self, data: bytes) -> Iterator[Item]:
        """The items that are complete with this piece of the body."""
        ...

    def end(self) -> Iterator[Item]:
        """The items that the end of the body completes or leaves broken."""
        ...


class Lines:
    """NDJSON: a line an item. Empty lines are nothing; one too long is its own error."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        self._size = 0

    @property
    def held(self) -> int:
        return self._size if self._rest else 0

    def feed(self, data: bytes) -> Iterator[Item]:
        start = data.find(b"\n") + 1
        end = data.rfind(b"\n") + 1
        if not end:
            self._add(data)
            return
        self._add(data[:start])
        yield from self._take()
        yield from self._whole(data[start:end])
        self._add(data[end:])

    def end(self) -> Iterator[Item]:
        yield from self._take()

    def _whole(self, lines: bytes) -> Iterator[Item]:
        drafts = decode_drafts(lines, lines=True) if len(lines) <= self._limit else None
        if drafts is not None:
            if drafts:
                yield Block(drafts, len(lines))
            return
        for line in lines.split(b"\n"):
            if len(line) > self._limit:
                yield self._too_long()
            elif line and not line.isspace():
                yield line

    def _add(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > self._limit:
            self._rest.clear()  # only the length of it matters now
        elif piece:
            self._rest.append(piece)

    def _take(self) -> Iterator[Item]:
        too_long = self._size > self._limit
        line = b"".join(self._rest)
        self._rest.clear()
        self._size = 0
        if too_long:
            yield self._too_long()
        elif line and not line.isspace():
            yield line

    def _too_long(self) -> TooLarge:
        return TooLarge(f"the line is longer than {self._limit:,} bytes")


# Matches what is neither a mark nor inside a string; an unfinished string does not match.
# Possessive throughout, so that no input makes them try twice.
_STRING = rb'"(?:[^"\\]++|\\.)*+"'
_AT_TOP = re.compile(rb'(?:[^"\[\]{},]++|' + _STRING + rb")*+([\[\]{},])", re.DOTALL)
_INSIDE = re.compile(rb'(?:[^"\[\]{}]++|' + _STRING + rb")*+([\[\]{}])", re.DOTALL)
_NO_MARK = re.compile(rb'(?:[^"\[\]{},]++|,|' + _STRING + rb")*+", re.DOTALL)
_REST_OF_STRING = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_SPACE = b" \t\r\n"


class Array:
    """A JSON array: its elements, cut where the brackets say; each is decoded separately later."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        """The current element; of one too large only the part not scanned yet."""
        self._scanned = 0
        """Everything before this in the buffer has been scanned."""
        self._look_again = 0
        """A string without an end: look again when the buffer is this long."""
        self._block_at = 0
        """Try to read many at once when the buffer is this long."""
        self._depth = 0
        self._dropping = False
        """The element under way is too large: only its end matters."""
        self._in_string = False
        """While dropping: inside a string."""
        self._items = 0
        self._done = False
        self._broken = False
        self._marks = 0

    @property
    def held(self) -> int:
        return len(self._buffer)

    def feed(self, data: bytes) -> Iterator[Item]:
        if self._broken:
            return
        self._buffer += data
        if self._depth == 0 and self._buffer.lstrip(_SPACE)[:1] == b"[":
            self._depth = 1
            del self._buffer[: self._buffer.index(b"[") + 1]
        if self._depth and not self._dropping and len(self._buffer) >= self._block_at:
            yield from self._block()
        if len(self._buffer) >= self._look_again:
            yield from self._cut()

    def end(self) -> Iterator[Item]:
        if not self._broken:
            yield from self._cut()
        if not self._broken and not self._done:
            yield self._break("not valid JSON: the array does not end")

    def _block(self) -> Iterator[Item]:
        """Decode everything up to an apparent end of an element together, if it parses as whole
        elements.

        A cut inside an element or a string leaves something open, and then it does not parse.
        """
        buffer = self._buffer
        end = buffer.rfind(b"},") + 1
        if not 0 < end <= self._limit:
            return
        drafts = decode_drafts(b"[" + buffer[:end] + b"]", lines=False)
        if drafts is None:
            self._block_at = 2 * len(buffer)  # not again and again over the same large element
            return
        self._block_at = 0
        self._items += len(drafts)
        yield Block(drafts, end)
        del buffer[: end + 1]
        self._depth, self._scanned, self._look_again = 1, 0, 0

    def _cut(self) -> Iterator[Item]:
        """Yield the elements that end in the buffer; keep the one that does not."""
        start = 0
        if self._in_string and not self._leave_string():
            return
        while not self._done and (mark := self._next_mark()) is not None:
            at = self._scanned - 1
            self._marks += 1
            if self._marks % MARKS == 0:
                yield PAUSE
            if self._depth == 0:
                if mark != b"[" or self._buffer[:at].strip(_SPACE):
                    yield self._break("the body must be a JSON array of messages")
                    return
                self._depth, start = 1, self._scanned
            elif mark in b"[{":
                self._depth += 1
                if self._depth > MAX_DEPTH:
                    yield self._break(f"the JSON is nested more than {MAX_DEPTH:,} deep")
                    return
            elif mark in b"]}":
                self._depth -= 1
                self._done = self._depth == 0
            if self._done or (mark == b"," and self._depth == 1):
                yield from self._element(bytes(self._buffer[start:at]), mark)
                start = self._scanned
            if self._broken:
                return
        yield from self._keep(start)

    def _next_mark(self) -> bytes | None:
        """The next bracket, or comma at the top, that is not inside a string; moves past it."""
        pattern = _AT_TOP if self._depth <= 1 else _INSIDE
        found = pattern.match(self._buffer, self._scanned)
        if found is None:
            return None
        self._scanned = found.end()
        return bytes(found[1])

    def _element(self, text: bytes, mark: bytes) -> Iterator[Item]:
        self._items += 1
        if mark == b"}":
            yield self._break("not valid JSON: the array is ended by a brace")
        elif self._dropping or len(text) > self._limit:
            self._dropping = False
            yield TooLarge(f"the message is longer than {self._limit:,} bytes")
        elif text.strip(_SPACE):
            yield text
        elif mark == b"," or self._items > 1:
            yield self._break("not valid JSON: an element is missing before a comma or the end")

    def _keep(self, start: int) -> Iterator[Item]:
        """Drop everything but the current element, and that too when it is too large."""
        buffer = self._buffer
        del buffer[:start]
        self._scanned -= start
        if self._done:
            if buffer.strip(_SPACE):
                yield self._break("not valid JSON: something follows the array")
            buffer.clear()
            self._scanned = 0
            return
        if self._depth == 0 and buffer.strip(_SPACE):
            yield self._break("the body must be a JSON array of messages")
            return
        if self._dropping or len(buffer) > self._limit:
            self._drop()
        unread = len(buffer) - self._scanned
        self._look_again = 0 if self._in_string else len(buffer) + min(unread // 2, 1 << 20)

    def _drop(self) -> None:
        self._dropping = True
        found = _NO_MARK.match(self._buffer, self._scanned)
        end = len(self._buffer) if found is None else found.end()
        del found  # it holds on to the buffer
        self._in_string = end < len(self._buffer)
        del self._buffer[: end + 1]
        self._scanned = 0
        if self._in_string:
            self._leave_string()

    def _leave_string(self) -> bool:
        """Drop the rest of a string; False when it goes on."""
        found = _REST_OF_STRING.match(self._buffer)
        end = 0 if found is None else found.end()
        del found
        ended = self._buffer[end : end + 1] == b'"'
        self._in_string = not ended
        del self._buffer[: end + ended]  # a backslash whose pair has not arrived yet stays
        return ended

    def _break(self, reason: str) -> Malformed:
        """Mark the array as broken: the boundaries of later elements cannot be known."""
        self._broken = True
        self._buffer.clear()
        return Malformed(reason)
