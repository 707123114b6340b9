"""Names of a room's keys: the Dispatcher's own, and ours beside them.

In a cluster the room is the hash tag, so that a script's keys share a slot, and every room has
streams of its own.
"""

from __future__ import annotations

WAITING = "WAITING:"
LANES = 3
"""Lanes besides the default one."""
_NAMES = (
    b"PENSTOCK_ROOM:",
    b"ENTRY_QUEUE_SLOTS:",
    WAITING.encode(),
    *(b"PENSTOCK_ROOM_LANE_%d:" % number for number in range(1, LANES + 1)),
    b"WAITING_QUEUE_INDEX_RECORD:",
    b"WAITING_USER_IDS:",
    b"PENSTOCK_ROOM_TICKETS:",
    b"PENSTOCK_ROOM_SEEN:",
    b"PENSTOCK_ROOM_HELD:",
    b"PENSTOCK_ROOM_GONE:",
)
ENTRY = "ENTRY"
DISPATCH = "DISPATCH"
GROUP = "ENTRY_QUEUE"
ROOMS = "PENSTOCK_ROOMS"
"""ZSET of every room that is known, by the moment to look at it next."""
SCANNED = "PENSTOCK_ROOMS_SCANNED"
"""Set while nobody needs to look for rooms that other programs made."""
CURSOR = "PENSTOCK_ROOMS_CURSOR"
"""Where the search for rooms that other programs made goes on."""
SECRET = "PENSTOCK_ROOMS_SECRET"  # noqa: S105 - a key's name
WAKE = "PENSTOCK_ROOMS_WAKE"
"""Channel: rooms in which there is something to do, and turns."""
TURNS = b"\0"
"""Begins news of a room and of those who were let in there, with such bytes between them, and with
two between such news of several rooms."""


def encode(text: str) -> bytes:
    """Names and users that are not UTF-8 come back as the bytes they were."""
    return text.encode("utf-8", "surrogateescape")


def decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def room_keys(room: str, *, cluster: bool) -> list[bytes]:
    """In the order of room_common.lua."""
    tag = encode(f"{{{room}}}" if cluster else room)
    keys = [name + tag for name in _NAMES]
    keys.append(stream(ENTRY, room, cluster=cluster))
    return keys


def stream(name: str, room: str, *, cluster: bool) -> bytes:
    return encode(f"{name}:{{{room}}}" if cluster else name)


def room_of(waiting: bytes, *, cluster: bool) -> str | None:
    """The room of a WAITING key; None for a name that is no room's."""
    name = decode(waiting).removeprefix(WAITING)
    if cluster:
        if not (name.startswith("{") and name.endswith("}")):
            return None
        name = name[1:-1]
    return name or None
