"""The stored size of a message, and how a message that is too large is cut."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from penstock.model.errors import TooLarge
from penstock.model.message import Labels, Message, NewMessage

CUT = "penstock-cut"
"""Header of a dead message whose payload was cut: its original size in bytes."""
OWN_HEADERS = "penstock-"
MAX_CUT_HEADERS = 16 * 1024
"""Most bytes of headers that a cut message keeps."""

_json = msgspec.json.Encoder().encode


def stored_size(message: NewMessage | Message) -> int:
    """Bytes of payload, headers, labels, key and the other texts, as stores keep them."""
    return len(message.payload) + size_beside(
        message.headers,
        message.labels,
        message.id,
        message.key,
        message.content_type,
        message.topic or "",
    )


def size_beside(headers: Mapping[str, str] | None, labels: Labels | None, *texts: str) -> int:
    """Bytes of a message without its payload."""
    size = sum(len(text.encode()) for text in texts)
    size += len(_json(headers)) if headers else 0
    return size + (len(_json(labels)) if labels is not None else 0)


def check_whole_size(size: int, limit: int) -> None:
    """Raise TooLarge, with both figures, if the message is over the limit."""
    if size > limit:
        raise TooLarge(
            f"message: {size:,} bytes with its headers, labels and key; the store takes {limit:,}",
            field="payload",
        )


def cut_to(message: NewMessage, max_payload: int, max_message: int | None) -> NewMessage:
    """A dead message that fits: whole if possible, else cut, with the cut noted in its error."""
    most = max_payload if max_message is None else min(max_payload, max_message)
    whole = len(message.payload) <= most
    if whole and (max_message is None or stored_size(message) <= max_message):
        return message
    headers = _some_of(message.headers or {}, min(MAX_CUT_HEADERS, most // 2))
    shorter = msgspec.structs.replace(message, payload=b"", labels=None, headers=headers or None)
    room = most if max_message is None else min(most, max_message - stored_size(shorter) - 200)
    kept = message.payload[: max(0, room)]
    cut_text = f"{len(kept):,} of {len(message.payload):,} bytes of the payload are kept"
    return msgspec.structs.replace(
        shorter,
        payload=kept,
        headers={**headers, CUT: str(len(message.payload))},
        dead=f"{message.dead} ({cut_text})",
    )


def _some_of(headers: Mapping[str, str], most: int) -> dict[str, str]:
    """Penstock's own headers, and as many of the others as fit."""
    kept = {name: value for name, value in headers.items() if name.startswith(OWN_HEADERS)}
    left = most - size_beside(kept, None)
    for name, value in headers.items():
        size = size_beside({name: value}, None)
        if name not in kept and size <= left:
            kept[name] = value
            left -= size
    return kept
