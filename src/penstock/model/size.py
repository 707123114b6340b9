"""Sizes of messages, and batches bounded in bytes as well as in number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

MIB = 1024 * 1024
ANY_SIZE = 1 << 62
"""A number of bytes that limits nothing."""
IN_FLIGHT_BYTES = 64 * MIB
"""Most bytes in flight in a worker, over all routes, unless configured."""
CALL_BYTES = 4 * MIB
"""Most payload bytes of one store call in either direction: a claim, a put."""
PAGE_BYTES = 4 * MIB
"""Payload bytes of one page of a list, approximately."""
FIRST_READ = 16
"""Records of unknown size that are read first …"""
READ_MORE = 8
"""… and the most by which the next read may exceed the last."""


class Sized(Protocol):
    """The fields of a message that determine its size."""

    @property
    def payload(self) -> bytes: ...

    @property
    def headers(self) -> dict[str, str] | None: ...


M = TypeVar("M", bound=Sized)


def size_of(message: Sized) -> int:
    """Bytes of payload and headers, which make up nearly all of a large message."""
    headers = message.headers
    return len(message.payload) + (_size_of_headers(headers) if headers else 0)


def _size_of_headers(headers: Mapping[str, str]) -> int:
    return sum(len(name) + len(value) for name, value in headers.items())


def total_size(messages: Iterable[Sized]) -> int:
    messages = list(messages)
    headers = [message.headers for message in messages if message.headers]
    return sum([len(m.payload) for m in messages]) + sum(map(_size_of_headers, headers))


def fitting(sizes: Iterable[int], max_bytes: int, at_least: int = 1) -> int:
    """How many of the first sizes fit into `max_bytes` together, at least `at_least`."""
    number = total = 0
    for size in sizes:
        total += size
        if total > max_bytes and number >= at_least:
            break
        number += 1
    return number


def in_calls(messages: Sequence[M], max_bytes: int = CALL_BYTES) -> list[Sequence[M]]:
    """The messages in order, in parts of at most `max_bytes` (or of one message)."""
    if total_size(messages) <= max_bytes:
        return [messages] if messages else []
    parts: list[Sequence[M]] = []
    while messages:
        number = fitting(map(size_of, messages), max_bytes)
        parts.append(messages[:number])
        messages = messages[number:]
    return parts


class Filling(Generic[M]):
    """A page while it is filled: at most so many messages, and so many bytes.

    Where no size is known before a record is read, it also says how many to read next: a few at
    first, then by the average so far. Many small messages cost few calls, and large ones are not
    read in vain.
    """

    def __init__(self, limit: int, max_bytes: int = PAGE_BYTES) -> None:
        self.items: list[M] = []
        self._limit = limit
        self._left = max_bytes
        self._number = self._bytes = 0

    def next_read(self, most: int) -> int:
        """How many records to read next: at least 1 and at most `most`."""
        if not self._number:
            return max(1, min(FIRST_READ, most))
        average = max(1, self._bytes // self._number)
        fitting = self._left // average + 1
        return max(1, min(most, fitting, READ_MORE * self._number))

    def have_read(self, number: int, size: int) -> None:
        """Note that records were read, whether they belong to the page or not."""
        self._number += number
        self._bytes += size

    def add(self, message: M) -> bool:
        """Add a message; False if the page is full, and this one begins the next."""
        size = size_of(message)
        if len(self.items) >= self._limit or (self.items and size > self._left):
            return False
        self.items.append(message)
        self._left -= size
        return True
