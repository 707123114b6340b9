"""HISTORY: the last 15 minutes of every room's line, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from penstock.model.room import RoomFigures
from penstock.model.room_view import RoomCurves, RoomHistoryView
from penstock.model.times import format_moment

STEP = 5
"""Seconds between two looks."""
LENGTH = 180
"""Number of looks kept: a quarter of an hour."""
MOST = 50
"""Most rooms kept, by name: as many as a dashboard shows."""


class _Seen(msgspec.Struct, frozen=True, array_like=True, gc=False):
    waiting: int
    inside: int
    capacity: int


class RoomHistory:
    """Curves of the rooms' figures, fed at most once per step."""

    def __init__(self) -> None:
        self._looks: deque[tuple[int, dict[str, _Seen]]] = deque(maxlen=LENGTH)

    def due(self, now: int) -> bool:
        """Whether it is time for another look; also true after the clock went back."""
        return not self._looks or self._looks[-1][0] != _slot(now)

    def add(self, now: int, rooms: Sequence[RoomFigures]) -> None:
        if self._looks and self._looks[-1][0] >= _slot(now):
            self._looks.clear()  # the clock went back: later looks have no position any more
        seen = {
            each.room.name: _Seen(
                each.waiting, each.admitted + each.entered, each.room.settings.capacity
            )
            for each in rooms[:MOST]
        }
        self._looks.append((_slot(now), seen))

    def view(self, now: int) -> RoomHistoryView:
        last, newest = self._looks[-1] if self._looks else (_slot(now), {})
        looks = {slot: seen for slot, seen in self._looks if slot > last - LENGTH}
        first = min(looks, default=last)
        slots = range(first, last + 1)
        rooms = {}
        for name in newest:
            seen = [looks.get(slot, {}).get(name) for slot in slots]
            rooms[name] = RoomCurves(
                waiting=[None if each is None else each.waiting for each in seen],
                inside=[None if each is None else each.inside for each in seen],
                capacity=[None if each is None else each.capacity for each in seen],
            )
        return RoomHistoryView(step=STEP, from_=format_moment(first * STEP * 1000), rooms=rooms)


def _slot(now: int) -> int:
    return now // (STEP * 1000)
