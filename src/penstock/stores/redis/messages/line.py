"""The line of a key on routes that keep turns (line.lua): the entry of a waiting message."""

from __future__ import annotations

from penstock.model.lifecycle import has_begun
from penstock.model.message import Message
from penstock.model.route import KeyLimit

UNBOUNDED = KeyLimit(1 << 31)
"""The limit of a claim without one: turns are kept all the same, for workers that have one."""


def line_entry(message: Message, member: bytes) -> bytes:
    """The entry of a waiting message in the line of its key (line.lua)."""
    mark = b"\0\0" if has_begun(message) else b"\0\1"
    return message.key.encode() + mark + message.due.to_bytes(6, "big") + member
