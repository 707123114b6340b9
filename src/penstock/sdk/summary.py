"""The summary of a stream of messages."""

from __future__ import annotations

import msgspec

from penstock.model.errors import PenstockError

MAX_REFUSALS = 1_000


class Refusal(msgspec.Struct, frozen=True):
    """A message of a stream that was not stored."""

    index: int
    """Its index, counted from 0."""
    id: str | None
    error: PenstockError


class StreamSummary(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a stream, counted by outcome."""

    received: int
    accepted: int
    """Durable, duplicates included."""
    duplicates: int
    refused: int
    refusals: tuple[Refusal, ...] = ()
    """The first thousand refusals."""
