"""Cut a body of any length into its items as it arrives, holding one item at most."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol, TypeAlias

from penstock.model.errors import Malformed, PenstockError, TooLarge

Item: TypeAlias = bytes | PenstockError
"""The bytes of one item, or why there are none."""


class Splitter(Protocol):
    def feed(self, data: bytes) -> Iterator[Item]:
        """The items that are complete with this piece of the body."""
        ...

    def end(self) -> Iterator[Item]:
        """What the end of the body completes or leaves broken."""
        ...


class Lines:
    """NDJSON: a line an item. Empty lines are nothing; one too long is its own error."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> Iterator[Item]:
        first, *others = data.split(b"\n")
        self._add(first)
        if not others:
            return
        yield from self._take()
        *whole, last = others
        for line in whole:
            if len(line) > self._limit:
                yield self._too_long()
            elif line and not line.isspace():
                yield line
        self._add(last)

    def end(self) -> Iterator[Item]:
        yield from self._take()

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


# Everything up to the next bracket or comma that is not inside a string; a string that has not
# ended yet does not match. Possessive, so that no input makes it try twice.
_NEXT = re.compile(rb'(?:[^"\[\]{},]++|"(?:[^"\\]++|\\.)*+")*+([\[\]{},])', re.DOTALL)
_OPEN = b"[{"
_CLOSE = b"]}"
_SPACE = b" \t\r\n"


class Array:
    """A JSON array: its elements, cut where the brackets say; each is judged by itself later."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        """Everything before this in the buffer has been looked at."""
        self._look_again = 0
        """A string without an end: look again when the buffer is this long."""
        self._depth = 0
        self._dropping = False
        """The element under way was too large: skip to its end."""
        self._done = False
        self._broken = False
        self._items = 0

    def feed(self, data: bytes) -> Iterator[Item]:
        if self._broken:
            return
        self._buffer += data
        if len(self._buffer) >= self._look_again:
            yield from self._cut()

    def end(self) -> Iterator[Item]:
        if not self._broken:
            yield from self._cut()
        if not self._broken and not self._done:
            yield self._break("not valid JSON: the array does not end")

    def _cut(self) -> Iterator[Item]:
        buffer, start, position = self._buffer, 0, self._scanned
        # memoryview-free on purpose: a match holds the buffer, so it is released before del
        while not self._done and (found := _NEXT.match(buffer, position)) is not None:
            at, mark = found.start(1), found[1]
            position = found.end()
            del found
            if self._depth == 0:
                if mark != b"[" or buffer[start:at].strip(_SPACE):
                    yield self._break("the body must be a JSON array of messages")
                    return
                self._depth, start = 1, position
            elif mark in _OPEN:
                self._depth += 1
            elif mark in _CLOSE:
                self._depth -= 1
                if self._depth == 0:
                    self._done = True
                    yield from self._element(bytes(buffer[start:at]), last=True)
                    start = position
            elif self._depth == 1:
                yield from self._element(bytes(buffer[start:at]), last=False)
                start = position
        yield from self._keep(start, position)

    def _keep(self, start: int, position: int) -> Iterator[Item]:
        """Keep only what belongs to the element under way, within the limit."""
        buffer = self._buffer
        if self._done:
            rest = bytes(buffer[position:]).strip(_SPACE)
            buffer.clear()
            self._scanned = 0
            if rest:
                yield self._break("not valid JSON: something follows the array")
            return
        del buffer[:start]
        self._scanned = position - start
        if len(buffer) > self._limit:
            if self._depth == 0:
                yield self._break("the body must be a JSON array of messages")
                return
            self._dropping = True
        if self._dropping:
            del buffer[: self._scanned]
            self._scanned = 0
            if len(buffer) > self._limit:  # one string longer than any message may be
                yield self._break("an element is too large to be read")
                return
        unread = len(buffer) - self._scanned
        self._look_again = len(buffer) + min(unread // 2, 1 << 20)

    def _element(self, text: bytes, *, last: bool) -> Iterator[Item]:
        self._items += 1
        if self._dropping or len(text) > self._limit:
            self._dropping = False
            yield TooLarge(f"the message is longer than {self._limit:,} bytes")
        elif text.strip(_SPACE):
            yield text
        elif not last or self._items > 1:
            yield self._break("not valid JSON: an element is missing before a comma or the end")

    def _break(self, reason: str) -> Malformed:
        """Nothing after this can be trusted to be where it seems to be."""
        self._broken = True
        self._buffer.clear()
        return Malformed(reason)
