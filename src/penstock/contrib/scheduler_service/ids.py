"""Ids of simulated events, and sets of them that fit into a report.

`ev-3f9a1c-000042` is event 42 of run 3f9a1c. Whoever has the numbers that went in and the numbers
that came out can tell every single event that is missing, however many there were.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterable, Iterator

_ID = re.compile(r"ev-([0-9a-z]{1,20})-([0-9]{6,10})")
_HIGHEST = 100_000_000
"""A larger number is not one of ours: its set would need megabytes."""


def event_id(run: str, number: int) -> str:
    return f"ev-{run}-{number:06d}"


def read_id(text: str) -> tuple[str, int] | None:
    """The run and the number; None: it is no id of a simulated event."""
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
        """True if it is new."""
        place, bit = divmod(number, 8)
        if place >= len(self._bits):
            self._bits.extend(bytes(place + 1 - len(self._bits)))
        if self._bits[place] >> bit & 1:
            return False
        self._bits[place] |= 1 << bit
        self._count += 1
        return True

    def __contains__(self, number: int) -> bool:
        place, bit = divmod(number, 8)
        return place < len(self._bits) and bool(self._bits[place] >> bit & 1)

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for place, byte in enumerate(self._bits):
            for bit in range(8) if byte else ():
                if byte >> bit & 1:
                    yield place * 8 + bit

    def text(self) -> str:
        """For a report. A regular set of a million takes some hundred characters."""
        return base64.b64encode(zlib.compress(bytes(self._bits), 9)).decode()

    @classmethod
    def of_text(cls, text: str) -> Numbers:
        found = cls()
        found._bits = bytearray(zlib.decompress(base64.b64decode(text)))
        found._count = sum(byte.bit_count() for byte in found._bits)
        return found
