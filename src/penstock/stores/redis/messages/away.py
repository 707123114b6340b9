"""Messages that live away from their ids: how their records, and the pointers to them, tell."""

from __future__ import annotations

AWAY = 128
"""The flag of a message whose id has a pointer in its own partition."""
ELSEWHERE = 7
"""The state of a record that is such a pointer, and no message."""


def as_away(record: bytes) -> bytes:
    """The record of a message, with the mark that a pointer leads to it."""
    return record[:1] + bytes((record[1] | AWAY,)) + record[2:]


def is_away(record: bytes) -> bool:
    return record[1] & AWAY != 0


def target_of(record: bytes) -> int | None:
    """The partition a pointer leads to; None: it is a message."""
    return int.from_bytes(record[6:9], "little") if record[0] == ELSEWHERE else None
