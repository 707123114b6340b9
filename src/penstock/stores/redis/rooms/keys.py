"""Names of a room's keys: the Dispatcher's own, and Penstock's beside them.

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
"""Characters that SCAN treats as a pattern."""
ENTRY = "ENTRY"
DISPATCH = "DISPATCH"
GROUP = "ENTRY_QUEUE"
TURNS = b"\0"
"""Prefix of a publication about a room and its admitted visitors; such bytes separate these, and
two of them separate the publications of several rooms."""
PATIENCE = Patience(
    waits=(1.0, 1.0, 1.0), retries_slow=True, trip_after=1, first_open=5.0, longest_open=5.0
)
"""Three retries, a second apart; then callers are refused until one call succeeds."""


def encode(text: str) -> bytes:
    """A name or user as bytes; names that are not UTF-8 become their original bytes again."""
    return text.encode("utf-8", "surrogateescape")


def decode(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


class RoomNames:
    """The names of one store's room keys."""

    def __init__(self, prefix: str, *, cluster: bool) -> None:
        own = "" if prefix == PREFIX else f"{prefix}:"
        self._begin = own.encode()
        self._cluster = cluster
        self.waiting = f"{own}{WAITING}"
        """Prefix of every line's key."""
        self.foreign = tuple(f"{own}{name}" for name in (WAITING, RECORDS, SLOTS))
        """Prefixes of the keys that other programs write."""
        self.lines = _GLOB.sub(r"\\\g<0>", self.waiting) + "*"
        """SCAN pattern of every line's key."""
        self.rooms = f"{own}PENSTOCK_ROOMS"
        """ZSET of every known room, scored by the moment of its next promotion."""
        self.put = f"{own}PENSTOCK_ROOMS_PUT"
        """ZSET of the rooms that were PUT, likewise: for processes that serve no others."""
        self.signer = f"{own}PENSTOCK_ROOMS_SIGNER"
        """The id of the key that processes with `rooms.keys` sign with: no others may sign then."""
        self.scanned = f"{own}PENSTOCK_ROOMS_SCANNED"
        """Set while no process needs to search for rooms of other programs."""
        self.cursor = f"{own}PENSTOCK_ROOMS_CURSOR"
        """The cursor of the search for rooms of other programs."""
        self.secret = f"{own}PENSTOCK_ROOMS_SECRET"
        self.wake = f"{own}PENSTOCK_ROOMS_WAKE"
        """Channel: rooms with work to do, and admissions."""

    def of_room(self, room: str) -> list[bytes]:
        """The keys of a room, in the order of common.lua."""
        tag = encode(f"{{{room}}}" if self._cluster else room)
        begin = self._begin
        return [*(begin + name + tag for name in _NAMES), self.stream(ENTRY, room)]

    def stream(self, name: str, room: str) -> bytes:
        return self._begin + encode(f"{name}:{{{room}}}" if self._cluster else name)

    def room_written(self, key: bytes) -> str | None:
        """The room of a key that other programs write; None for any other key."""
        name = decode(key)
        return next(
            (self._room(name, begin) for begin in self.foreign if name.startswith(begin)), None
        )

    def room_of(self, waiting: bytes) -> str | None:
        """The room of a line's key; None for any other key."""
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
    """A Runner that knows the names of the rooms' keys."""

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
        """Durations of the scripts that were answered."""
        super().__init__(
            server,
            name,
            patience=patience or PATIENCE,
            durations=self.times,
            monotonic=monotonic,
        )
        self.names = RoomNames(prefix, cluster=server.cluster)
