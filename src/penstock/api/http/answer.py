"""An answer as a value, before any framework has seen it."""

from __future__ import annotations

import msgspec

JSON = "application/json"
NO_STORE = ("cache-control", "no-store")
"""Answers hold payloads, tickets and tokens: no cache on the way may keep them."""


class Answer(msgspec.Struct, frozen=True):
    """Status, body and the headers that are not the same for every answer."""

    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()
    media: str = JSON

    @property
    def all_headers(self) -> tuple[tuple[str, str], ...]:
        """Its own, not to be kept by anybody unless they say otherwise, and the content type."""
        kept = any(name == "cache-control" for name, _ in self.headers)
        return (*self.headers, *(() if kept else (NO_STORE,)), ("content-type", self.media))
