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
