"""The fields of a decision batch that are handed on as they came (`process`, `order` …)."""

from __future__ import annotations

import msgspec

OWN_FIELDS = frozenset({"decision", "tta", "notify_msg"})
"""What the format reads of a batch; all else is handed on."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def other_fields(batch: bytes) -> bytes:
    """What a batch says besides its verdict, moment and notifications: `"name":value,` each."""
    return b"".join(
        b"%s:%s," % (msgspec.json.encode(name), bytes(value))
        for name, value in _fields.decode(batch).items()
        if name not in OWN_FIELDS
    )
