"""The fields of a decision batch that are passed on unchanged (`process`, `order` …)."""

from __future__ import annotations

import msgspec

OWN_FIELDS = frozenset({"decision", "tta", "notify_msg"})
"""The fields that the format reads; all others are passed on."""

_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])


def other_fields(batch: bytes) -> bytes:
    """A batch's other fields as JSON, `"name":value,` each."""
    return b"".join(
        b"%s:%s," % (msgspec.json.encode(name), bytes(value))
        for name, value in _fields.decode(batch).items()
        if name not in OWN_FIELDS
    )
