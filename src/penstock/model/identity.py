"""Ids made here, and the partition that an id or key maps to."""

from __future__ import annotations

import random
from zlib import crc32

DEFAULT_PARTITIONS = 8
"""The number of partitions of a new store, unless it is configured."""


def partition_of(text: str, total: int) -> int:
    """The partition of an id or key: the same in every process, for as long as the store lives."""
    return crc32(text.encode()) % total


_VARIANT = 0x8000_0000_0000_0000
_COUNTERS = tuple(f"-7{number:03x}-" for number in range(0x1000))


class IdMaker:
    """Makes UUIDv7 texts that only increase within one process.

    Increasing ids keep a store's index append-only, which is several times faster than random ones.
    `chance` is injected so that a simulation repeats exactly.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._millis = 0
        self._begins = ""
        """The common prefix of the ids of this millisecond."""
        self._counter = 0

    def make(self, now: int) -> str:
        if now > self._millis:
            self._move_on(now, self._chance.getrandbits(10))  # room to grow below 12 bits
        elif self._counter < 0xFFF:
            self._counter += 1
        else:
            self._move_on(self._millis + 1, 0)
        # Written in one go and sliced: faster than one number for each part.
        ends = "%x" % (_VARIANT | self._chance.getrandbits(62))
        return f"{self._begins}{_COUNTERS[self._counter]}{ends[:4]}-{ends[4:]}"

    def _move_on(self, millis: int, counter: int) -> None:
        self._millis = millis
        self._counter = counter
        self._begins = f"{millis >> 16:08x}-{millis & 0xFFFF:04x}"
