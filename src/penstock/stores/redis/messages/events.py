"""A record's own timeline, packed: each event with its length before it, the last ones kept.

Lua packs and cuts them in the same way (record.lua).
"""

from __future__ import annotations

from struct import Struct

import msgspec

from penstock.model.message import Event

MAX_EVENTS = 20
MAX_DETAIL = 200

_LENGTH = Struct("<H")
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(tuple[int, str, str | bool | None, int | bool | None])


def pack_event(at: int, event: str, detail: str | None = None, attempt: int | None = None) -> bytes:
    if detail is not None:
        detail = detail[:MAX_DETAIL]
    return _piece(_encode((at, event, detail, attempt)))


def add_events(events: bytes, *more: bytes) -> bytes:
    """The last MAX_EVENTS of all."""
    pieces = [*_pieces(events), *more]
    return b"".join(pieces[-MAX_EVENTS:])


def read_events(events: bytes) -> list[Event]:
    lines = []
    for piece in _pieces(events):
        at, event, detail, attempt = _decoder.decode(piece[2:])
        lines.append(
            Event(
                at=at,
                event=event,
                detail=detail if isinstance(detail, str) else None,
                attempt=None if isinstance(attempt, bool) else attempt,
            )
        )
    return lines


def _pieces(events: bytes) -> list[bytes]:
    pieces: list[bytes] = []
    at = 0
    while at < len(events):
        end = at + 2 + _LENGTH.unpack_from(events, at)[0]
        pieces.append(events[at:end])
        at = end
    return pieces


def _piece(packed: bytes) -> bytes:
    return _LENGTH.pack(len(packed)) + packed
