"""Commands packed in C: redis-py's asyncio connections do it in Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import hiredis

Argument: TypeAlias = bytes | str | int


def packed(command: Sequence[Argument]) -> bytes:
    # hiredis takes a tuple of any length; its stub says of one.
    data: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]
    return data


def packed_beginning(command: Sequence[Argument]) -> bytes:
    """What a command of which only the last four arguments differ always begins with."""
    return b"*%d\r\n" % (len(command) + 4) + packed(command).partition(b"\r\n")[2]


def packed_end(one: bytes, two: bytes, three: bytes, four: bytes) -> bytes:
    """Those that differ, of a command where there are four of them."""
    return b"$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n$%d\r\n%b\r\n" % (
        len(one),
        one,
        len(two),
        two,
        len(three),
        three,
        len(four),
        four,
    )
