"""FLOORS: where claims begin to read, so that they do not scan entries claimed before.

A claimed message leaves a dead entry in the index of the scheduled. Vacuum removes it, but not
while an older transaction is open elsewhere in the database: then a claim from the beginning of the
index would read all dead entries, more with every message sent. So a process that has claimed a lot
begins behind its last claim.

A floor is only a hint. A put of this process, or a wake-up from another, below it lowers it; other
messages below it (of a claim that was rolled back elsewhere, of a transaction that was committed
late) are found by a read from the beginning every 200 ms, or less often if it is slow.

Measured (`python -m bench postgres`, beside an open transaction, on a busy machine): after 150,000
messages 0.37 times the throughput of the start without floors; with them it does not fall.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, TypeAlias

BUSY = 5_000
"""Messages that a process claims of a route before it uses floors for it."""
EVERY = 0.2
"""Seconds between two reads from the beginning, as often as workers poll without wake-ups."""
SHARE = 10
"""A look from the beginning that took long is followed by none for so many times as long …"""
LONGEST = 10.0
"""… but for no more seconds than these."""
PRIORITIES = 10
Place: TypeAlias = tuple[int, str]
"""(due, id): the order of claims within a priority."""
BEGINNING: Place = (-1, "")
ANYWHERE = {"floor_dues": [-1] * PRIORITIES, "floor_ids": [""] * PRIORITIES}
"""Values of the statements that take floors, for a look from the beginning."""


def behind(due: int) -> Mapping[str, Any]:
    """The values of a read from that due time on."""
    return {"floor_dues": [due - 1] * PRIORITIES, "floor_ids": ["\U0010ffff"] * PRIORITIES}


class Look:
    """One claim: where it begins, and the nearest messages put during it."""

    def __init__(self, route: str, floors: list[Place] | None) -> None:
        self.route = route
        self.is_full = floors is None
        self.values: Mapping[str, Any] = ANYWHERE
        if floors is not None:
            self.values = {
                "floor_dues": [due for due, _ in floors],
                "floor_ids": [message_id for _, message_id in floors],
            }
        self.begun = time.monotonic()
        self.lowest: int | None = None
        self.last: dict[int, Place] = {}
        """Priority → the last claimed place."""
        self.claimed = 0


class Floors:
    """The floors of every route that this process claims; used by the threads of its lanes."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._floors: dict[str, list[Place]] = defaultdict(lambda: [BEGINNING] * PRIORITIES)
        self._claimed: dict[str, int] = defaultdict(int)
        self._full_at: dict[str, float] = defaultdict(float)
        self._under_way: set[Look] = set()

    def look(self, route: str) -> Look:
        """Begin a claim; `end` must follow."""
        with self._lock:
            is_busy = self._claimed[route] >= BUSY and time.monotonic() < self._full_at[route]
            look = Look(route, list(self._floors[route]) if is_busy else None)
            self._under_way.add(look)
            return look

    def looked(self, look: Look) -> None:
        """The first answer is there."""
        if look.is_full:
            took = time.monotonic() - look.begun
            pause = min(LONGEST, max(EVERY, SHARE * took))
            with self._lock:
                self._full_at[look.route] = time.monotonic() + pause

    def end(self, look: Look, *, committed: bool) -> None:
        with self._lock:
            self._under_way.discard(look)
            if not committed:
                return
            self._claimed[look.route] += look.claimed
            floors = self._floors[look.route]
            for priority, place in look.last.items():
                if look.lowest is not None and look.lowest <= place[0]:
                    place = (look.lowest - 1, "")  # noqa: PLW2901 - no further than that
                floors[priority] = place

    def lower(self, wakes: Iterable[tuple[str, int]]) -> None:
        """Something of the route is due then that may not have been there before."""
        with self._lock:
            for route, due in wakes:
                for look in self._under_way:
                    if look.route == route and (look.lowest is None or due < look.lowest):
                        look.lowest = due
                if route in self._floors:
                    floors = self._floors[route]
                    below = (due - 1, "")
                    floors[:] = [min(place, below) for place in floors]
