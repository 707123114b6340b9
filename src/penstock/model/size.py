"""How large messages are, and how many of them are taken at once: bounded in bytes as in number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

MIB = 1024 * 1024
ANY_SIZE = 1 << 62
"""A number of bytes that bounds nothing."""
IN_FLIGHT_BYTES = 64 * MIB
"""What a worker holds at most, over all routes, unless it is set otherwise."""
CALL_BYTES = 4 * MIB
"""Payload that one call of a store carries at most, there or back: a claim, a put."""
PAGE_BYTES = 4 * MIB
"""Payload that one page of a list carries, about."""
FIRST_READ = 16
"""Records of unknown size that are read at once …"""
READ_MORE = 8
"""… and at most so many times as many as were read before."""


class Sized(Protocol):
    """A message, as far as its size is concerned."""

    @property
    def payload(self) -> bytes: ...

    @property
    def headers(self) -> dict[str, str] | None: ...


M = TypeVar("M", bound=Sized)


def size_of(message: Sized) -> int:
    """Bytes of payload and headers, which is nearly all that a large message consists of."""
    headers = message.headers
    return len(message.payload) + (_size_of_headers(headers) if headers else 0)


def _size_of_headers(headers: Mapping[str, str]) -> int:
    return sum(len(name) + len(value) for name, value in headers.items())


def total_size(messages: Iterable[Sized]) -> int:
    messages = list(messages)
    headers = [message.headers for message in messages if message.headers]
    return sum([len(m.payload) for m in messages]) + sum(map(_size_of_headers, headers))


def fitting(sizes: Iterable[int], max_bytes: int, at_least: int = 1) -> int:
    """How many of the first of these are at most so many bytes together, or `at_least`."""
    number = total = 0
    for size in sizes:
        total += size
        if total > max_bytes and number >= at_least:
            break
        number += 1
    return number


def in_calls(messages: Sequence[M], max_bytes: int = CALL_BYTES) -> list[Sequence[M]]:
    """The messages in their order, in parts of at most so many bytes (or of one message)."""
    if total_size(messages) <= max_bytes:
        return [messages] if messages else []
    parts: list[Sequence[M]] = []
    while messages:
        number = fitting(map(size_of, messages), max_bytes)
        parts.append(messages[:number])
        messages = messages[number:]
    return parts


class Filling(Generic[M]):
    """A page while it is filled: so many messages, and so many bytes, at most.

    Where no size is known before a record is read, it also says how many to read next: a few at
    first, then by the average so far. Many small ones cost few calls, and large ones are not read
    in vain.
    """

    def __init__(self, limit: int, max_bytes: int = PAGE_BYTES) -> None:
        self.items: list[M] = []
        self._limit = limit
        self._left = max_bytes
        self._number = self._bytes = 0

    def next_read(self, most: int) -> int:
        """At least 1 and at most so many."""
        if not self._number:
            return max(1, min(FIRST_READ, most))
        average = max(1, self._bytes // self._number)
        fitting = self._left // average + 1
        return max(1, min(most, fitting, READ_MORE * self._number))

    def have_read(self, number: int, size: int) -> None:
        """So many records of so many bytes, whether they belong to the page or not."""
        self._number += number
        self._bytes += size

    def add(self, message: M) -> bool:
        """False: the page is full, and this one begins the next."""
        size = size_of(message)
        if len(self.items) >= self._limit or (self.items and size > self._left):
            return False
        self.items.append(message)
        self._left -= size
        return True
