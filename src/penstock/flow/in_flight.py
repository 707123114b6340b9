"""IN FLIGHT: the bytes that a worker holds, over all lanes, from the claim until it is settled."""

from __future__ import annotations

from penstock.model.size import CALL_BYTES, IN_FLIGHT_BYTES
from penstock.time.clock import Alarm

TIMES_FREE = 3
"""A lane holds at most so many times what is free: one with a dead sink leaves a quarter of all to
the others, two leave a seventh."""
WORTH_A_CLAIM = 64
"""Of the whole, this part at least must be free for a lane that holds something to claim more: one
claim for some, not one for each message that is settled."""


def room_for(lane: int, free: int) -> int:
    """Bytes that a lane with so many in flight may add, by its share of what is free."""
    return (TIMES_FREE * free - lane) // (TIMES_FREE + 1)


class InFlight:
    """Shared by all lanes of a worker."""

    def __init__(self, max_bytes: int = IN_FLIGHT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._waiting: set[Alarm] = set()

    def room(self, lane: int) -> int:
        """Bytes that a lane with so many in flight may claim now; 0: it must wait."""
        room = room_for(lane, self._max_bytes - self._bytes)
        return min(room, CALL_BYTES) if room * WORTH_A_CLAIM >= self._max_bytes else 0

    def add(self, number: int) -> None:
        self._bytes += number

    def remove(self, number: int) -> None:
        self._bytes -= number
        if self._waiting:
            for alarm in self._waiting:
                alarm.ring()
            self._waiting.clear()

    def tell(self, alarm: Alarm) -> None:
        """Ring it once, when some of it is settled, whoever's it is."""
        self._waiting.add(alarm)
