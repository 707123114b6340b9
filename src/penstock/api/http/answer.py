"""An answer as a value, before any framework has seen it."""

from __future__ import annotations

import msgspec

JSON = "application/json"


class Answer(msgspec.Struct, frozen=True):
    """Status, body and the headers that are not the same for every answer."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    media: str = JSON
