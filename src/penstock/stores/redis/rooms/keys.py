"""Names of a room's keys: the Dispatcher's own, and ours beside them.

A store with the usual prefix has exactly the Dispatcher's names; another prefix begins every name,
so that two stores on one server share no room. In a cluster the room is the hash tag, so that a
script's keys share a slot, and every room has streams of its own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from penstock.model.durations import Durations
from penstock.redis_kit.address import PREFIX
from penstock.redis_kit.breaker import Patience
from penstock.redis_kit.connect import Server
from penstock.redis_kit.runner import Runner

WAITING = "WAITING:"
RECORDS = "WAITING_QUEUE_INDEX_RECORD:"
SLOTS = "ENTRY_QUEUE_SLOTS:"
LANES = 3
"""Lanes besides the default one."""
_NAMES = (
    b"PENSTOCK_ROOM:",
    SLOTS.encode(),
    WAITING.encode(),
    *(b"PENSTOCK_ROOM_LANE_%d:" % number for number in range(1, LANES + 1)),
    RECORDS.encode(),
    b"WAITING_USER_IDS:",
    b"PENSTOCK_ROOM_TICKETS:",
    b"PENSTOCK_ROOM_SEEN:",
    b"PENSTOCK_ROOM_HELD:",
    b"PENSTOCK_ROOM_GONE:",
    b"PENSTOCK_ROOM_UNRECORDED:",
    b"PENSTOCK_ROOM_LATE:",
)
_GLOB = re.compile(r"[*?\[\]\\^]")
"""Characters that SCAN would take for a pattern."""
ENTRY = "ENTRY"
DISPATCH = "DISPATCH"
GROUP = "ENTRY_QUEUE"
TURNS = b"\0"
"""Begins news of a room and of those who were let in there, with such bytes between them, and with
two between such news of several rooms."""
PATIENCE = Patience(
    waits=(1.0, 1.0, 1.0), retries_slow=True, trip_after=1, first_open=5.0, longest_open=5.0
)
"""Three tries more, a second apart; then callers are refused until one call gets through."""


def encode(text: str) -> bytes:
    """Names and users that are not UTF-8 come back as the bytes they were."""
    return text.encode("utf-8", "surrogateescape")


def decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


class RoomNames:
    """The names that one store gives to its rooms' keys."""

    def __init__(self, prefix: str, *, cluster: bool) -> None:
        own = "" if prefix == PREFIX else f"{prefix}:"
        self._begin = own.encode()
        self._cluster = cluster
        self.waiting = f"{own}{WAITING}"
        """Begins the name of every line."""
        self.foreign = tuple(f"{own}{name}" for name in (WAITING, RECORDS, SLOTS))
        """Begin the names of the keys that other programs write."""
        self.lines = _GLOB.sub(r"\\\g<0>", self.waiting) + "*"
        """Matches the name of every line, as SCAN is told it."""
        self.rooms = f"{own}PENSTOCK_ROOMS"
        """ZSET of every room that is known, by the moment to look at it next."""
        self.put = f"{own}PENSTOCK_ROOMS_PUT"
        """ZSET of the rooms that were PUT, likewise: for processes that serve no others."""
        self.signer = f"{own}PENSTOCK_ROOMS_SIGNER"
        """The id of the key that processes with `rooms.keys` sign with: no other signs then."""
        self.scanned = f"{own}PENSTOCK_ROOMS_SCANNED"
        """Set while nobody needs to look for rooms that other programs made."""
        self.cursor = f"{own}PENSTOCK_ROOMS_CURSOR"
        """Where the search for rooms that other programs made goes on."""
        self.secret = f"{own}PENSTOCK_ROOMS_SECRET"
        self.wake = f"{own}PENSTOCK_ROOMS_WAKE"
        """Channel: rooms in which there is something to do, and turns."""

    def of_room(self, room: str) -> list[bytes]:
        """In the order of common.lua."""
        tag = encode(f"{{{room}}}" if self._cluster else room)
        begin = self._begin
        return [*(begin + name + tag for name in _NAMES), self.stream(ENTRY, room)]

    def stream(self, name: str, room: str) -> bytes:
        return self._begin + encode(f"{name}:{{{room}}}" if self._cluster else name)

    def room_written(self, key: bytes) -> str | None:
        """The room of a key that other programs write; None for any other."""
        name = decode(key)
        return next(
            (self._room(name, begin) for begin in self.foreign if name.startswith(begin)), None
        )

    def room_of(self, waiting: bytes) -> str | None:
        """The room of a line; None for a name that is no line's."""
        name = decode(waiting)
        return self._room(name, self.waiting) if name.startswith(self.waiting) else None

    def _room(self, key: str, begin: str) -> str | None:
        name = key.removeprefix(begin)
        if self._cluster:
            if not (name.startswith("{") and name.endswith("}")):
                return None
            name = name[1:-1]
        return name or None


class RoomRunner(Runner):
    """A Runner with the names of the rooms' keys."""

    def __init__(
        self,
        server: Server,
        name: str,
        prefix: str = PREFIX,
        *,
        patience: Patience | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.times = Durations()
        """Of scripts that were answered."""
        super().__init__(
            server,
            name,
            patience=patience or PATIENCE,
            durations=self.times,
            monotonic=monotonic,
        )
        self.names = RoomNames(prefix, cluster=server.cluster)
