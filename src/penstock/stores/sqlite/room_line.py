"""The line of a room: how many wait in each lane, and in each block of places.

A place is found by adding up the blocks before it, not by counting everybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from penstock.model.admission import LOT_BITS
from penstock.stores.sqlite.room_admitted import Row
from penstock.stores.sqlite.session import Session

FIRST_NUMBER = 1 << (LOT_BITS + 1)
"""Places given in order of arrival lie above every lot."""
PLACE_BITS = 8
_LOT_SHIFT = LOT_BITS - 10

COUNT_LANE = """
INSERT INTO room_lanes (room, lane, waiting) VALUES (?, ?, ?)
ON CONFLICT (room, lane) DO UPDATE SET waiting = waiting + excluded.waiting
"""
COUNT_BLOCK = """
INSERT INTO room_blocks (room, lane, block, waiting) VALUES (?, ?, ?, ?)
ON CONFLICT (room, lane, block) DO UPDATE SET waiting = waiting + excluded.waiting
"""
DROP_EMPTY = "DELETE FROM room_blocks WHERE room = ? AND lane = ? AND block = ? AND waiting <= 0"
LEAVE_LANE = "UPDATE room_lanes SET waiting = waiting - ? WHERE room = ? AND lane = ?"
LEAVE_BLOCK = (
    "UPDATE room_blocks SET waiting = waiting - ? WHERE room = ? AND lane = ? AND block = ?"
)
DROP_BEFORE = "DELETE FROM room_blocks WHERE room = ? AND lane = ? AND block < ?"
LANES = """
SELECT room, lane, waiting FROM json_each(?) AS asked
CROSS JOIN room_lanes ON room_lanes.room = asked.value
"""
BLOCK_OF = f"iif(t.number < {FIRST_NUMBER}, t.number >> {_LOT_SHIFT}, t.number >> {PLACE_BITS})"
FIRST_OF_BLOCK = (
    f"iif(t.number < {FIRST_NUMBER},"
    f" t.number >> {_LOT_SHIFT} << {_LOT_SHIFT}, t.number >> {PLACE_BITS} << {PLACE_BITS})"
)
AHEAD = f"""
(SELECT coalesce(sum(b.waiting), 0) FROM room_blocks AS b
 WHERE b.room = t.room AND b.lane = t.lane AND b.block < {BLOCK_OF})
+ (SELECT count(*) FROM room_tickets AS o
   WHERE o.room = t.room AND o.lane = t.lane AND o.kind = 0
     AND o.number >= {FIRST_OF_BLOCK} AND (o.number, o.user) < (t.number, t.user))
"""  # noqa: S608 - constants only
"""How many are before the ticket t."""
MOVE_TICKETS = "UPDATE room_tickets SET lane = ? WHERE room = ? AND lane = ? AND kind = 0"
MOVE_BLOCKS = """
INSERT INTO room_blocks (room, lane, block, waiting)
SELECT room, ?, block, waiting FROM room_blocks WHERE room = ? AND lane = ?
ON CONFLICT (room, lane, block) DO UPDATE SET waiting = waiting + excluded.waiting
"""
MOVE_COUNT = """
INSERT INTO room_lanes (room, lane, waiting)
SELECT room, ?, waiting FROM room_lanes WHERE room = ? AND lane = ?
ON CONFLICT (room, lane) DO UPDATE SET waiting = waiting + excluded.waiting
"""
DROP_BLOCKS = "DELETE FROM room_blocks WHERE room = ? AND lane = ?"
DROP_LANE = "DELETE FROM room_lanes WHERE room = ? AND lane = ?"


def block_of(number: int) -> int:
    """Grows with the number: 1,024 blocks of lots, then blocks of 256 places."""
    return number >> _LOT_SHIFT if number < FIRST_NUMBER else number >> PLACE_BITS


def join(session: Session, room: int, places: Iterable[tuple[str, int]]) -> None:
    """People line up, given as (lane, number)."""
    _save(session, _count(room, places))


def leave(session: Session, room: int, places: Iterable[tuple[str, int]]) -> None:
    """They are out of the line."""
    leave_all(session, _count(room, places))


def _count(room: int, places: Iterable[tuple[str, int]]) -> Counter[tuple[int, str, int]]:
    return Counter((room, lane, block_of(number)) for lane, number in places)


def leave_all(session: Session, gone: Counter[tuple[int, str, int]]) -> None:
    """So many are out of each block of each line."""
    if gone:
        _save(session, {place: -number for place, number in gone.items()})
        session.connection.executemany(DROP_EMPTY, list(gone))


class Heads:
    """The first people of many lines go; written together in the end."""

    def __init__(self) -> None:
        self._lanes: list[tuple[int, int, str]] = []
        self._emptied: list[tuple[int, str]] = []
        self._before: list[tuple[int, str, int]] = []
        self._last: list[tuple[int, int, str, int]] = []

    def leave(self, room: int, lane: str, rows: Sequence[Row], left: int) -> None:
        """These, in their order; `left` stay. Whole blocks go but perhaps the last."""
        self._lanes.append((len(rows), room, lane))
        if left <= 0:
            self._emptied.append((room, lane))
            return
        last = block_of(rows[-1][0])
        if block_of(rows[0][0]) != last:
            self._before.append((room, lane, last))
        of_last = sum(block_of(row[0]) == last for row in rows)
        self._last.append((of_last, room, lane, last))

    def save(self, session: Session) -> None:
        for statement, rows in (
            (LEAVE_LANE, self._lanes),
            (DROP_BLOCKS, self._emptied),
            (DROP_BEFORE, self._before),
            (LEAVE_BLOCK, self._last),
        ):
            if rows:
                session.connection.executemany(statement, rows)


def _save(session: Session, steps: dict[tuple[int, str, int], int]) -> None:
    lanes: Counter[tuple[int, str]] = Counter()
    for (room, lane, _), step in steps.items():
        lanes[room, lane] += step
    blocks = [(*place, step) for place, step in steps.items()]
    session.connection.executemany(COUNT_BLOCK, blocks)
    session.connection.executemany(COUNT_LANE, [(*lane, step) for lane, step in lanes.items()])


def move(session: Session, room: int, lane: str, to: str) -> None:
    """Everybody of a lane waits on in another, in the order of their numbers."""
    for statement in (MOVE_TICKETS, MOVE_BLOCKS, MOVE_COUNT):
        session.execute(statement, (to, room, lane))
    for statement in (DROP_BLOCKS, DROP_LANE):
        session.execute(statement, (room, lane))
