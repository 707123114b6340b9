"""Ids as fields of Redis: shorter where they can be, in the order of their texts."""

from __future__ import annotations

from collections.abc import Sequence

_DASHES = (8, 13, 18, 23)


def pack_id(text: str) -> bytes:
    """The id as a field: a UUID in 16 bytes, anything else as it is.

    A text of 16 characters gets a zero byte, which no text has, so that it cannot be taken for
    a UUID. Both orders are those of the texts.
    """
    if len(text) == 36 and text[8:24:5] == "----" and text == text.lower():
        try:
            packed = bytes.fromhex(text.replace("-", ""))
        except ValueError:
            return text.encode()
        if len(packed) == 16:  # no blanks, which fromhex passes over, and no fifth dash
            return packed
    return text.encode() + b"\0" if len(text) == 16 else text.encode()


def pack_ids(texts: Sequence[str]) -> list[bytes]:
    """`pack_id` of many. UUIDs, which nearly all are, are read all at once."""
    packed = _joined_uuids(texts)
    if packed is None:
        return [pack_id(text) for text in texts]
    return [packed[at : at + 16] for at in range(0, len(packed), 16)]


def joined_ids(texts: Sequence[str]) -> tuple[bytes, int | list[int]]:
    """The same, one after the other, and how long each is; one number: all of them."""
    packed = _joined_uuids(texts)
    if packed is not None:
        return packed, 16
    members = [pack_id(text) for text in texts]
    return b"".join(members), [*map(len, members)]


def _joined_uuids(texts: Sequence[str]) -> bytes | None:
    """None: they are not all UUIDs."""
    number, joined = len(texts), "".join(texts)
    if len(joined) == 36 * number and all(joined[at::36] == "-" * number for at in _DASHES):
        try:
            packed = bytes.fromhex(joined.replace("-", ""))
        except ValueError:
            return None
        # No blanks, capitals or more dashes, and no long text that makes up for a short one.
        if len(packed) == 16 * number and joined == joined.lower() and {*map(len, texts)} <= {36}:
            return packed
    return None


def unpack_id(member: bytes) -> str:
    if len(member) == 16:
        text = member.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return member.rstrip(b"\0").decode()
