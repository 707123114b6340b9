"""Ids of simulated events, and sets of them that fit into a report.

`ev-3f9a1c-000042` is event 42 of run 3f9a1c. From the numbers sent and the numbers received a test
can name every missing event, however many there were.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable, Iterator

_ID = re.compile(r"ev-([0-9a-z]{1,20})-([0-9]{6,10})")
_HIGHEST = 100_000_000
"""A larger number is not a simulated event's: its set would need megabytes."""


def event_id(run: str, number: int) -> str:
    return f"ev-{run}-{number:06d}"


def read_id(text: str) -> tuple[str, int] | None:
    """The run and the number; None if it is not the id of a simulated event."""
    found = _ID.fullmatch(text)
    if found is None or int(found[2]) > _HIGHEST:
        return None
    return found[1], int(found[2])


class Numbers:
    """A set of numbers, one bit each."""

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._bits = bytearray()
        self._count = 0
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> bool:
        """Add a number; True if it is new."""
        index, bit = divmod(number, 8)
        if index >= len(self._bits):
            self._bits.extend(bytes(index + 1 - len(self._bits)))
        if self._bits[index] >> bit & 1:
            return False
        self._bits[index] |= 1 << bit
        self._count += 1
        return True

    def __contains__(self, number: int) -> bool:
        index, bit = divmod(number, 8)
        return index < len(self._bits) and bool(self._bits[index] >> bit & 1)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for index, byte in enumerate(self._bits):
            for bit in range(8) if byte else ():
                if byte >> bit & 1:
                    yield index * 8 + bit

    def text(self) -> str:
        """The set as text for a report.

        A regular set of a million takes some hundred characters.
        """
        return base64.b64encode(zlib.compress(bytes(self._bits), 9)).decode()

    @classmethod
    def of_text(cls, text: str) -> Numbers:
        found = cls()
        found._bits = bytearray(zlib.decompress(base64.b64decode(text)))
        found._count = sum(byte.bit_count() for byte in found._bits)
        return found
