"""Rooms, tickets and lines in their tables: load, write, count. The statements are in rooms.sql.

A line is counted by lane and by block of places: a place is found by adding up the blocks before
it, not by counting everybody.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import msgspec

from penstock.model.room import DEFAULT_LANE, Room, RoomSettings, RoomState
from penstock.model.room_admission import LOT_BITS
from penstock.model.room_steps import FIRST_NUMBER, Moments, RoomRecord, Tally
from penstock.model.ticket import HOLDS_SLOT, KEEP_ENDED, Ticket, TicketState
from penstock.stores.sql.tx import Row, Tx

WAITING, HOLDING, ENDED = range(3)
"""The kinds of tickets in the table, which differ in the meaning of their `until`."""
Lanes: TypeAlias = dict[str, int]
"""Lane → how many wait."""
PLACE_BITS = 8
_LOT_SHIFT = LOT_BITS - 10
_ONE_LANE = {DEFAULT_LANE}
_STATES = {state.value: state for state in RoomState}
"""A look into this is cheaper than to make one of a text."""
_TICKET_STATES = {state.value: state for state in TicketState}
_encode = msgspec.json.Encoder().encode
_settings = msgspec.json.Decoder(RoomSettings)
_tally = msgspec.json.Decoder(Tally)


class StoredRoom(NamedTuple):
    """A row of `rooms`."""

    id: int
    record: RoomRecord


class Surveyed(NamedTuple):
    """The values of one room that a promotion needs."""

    id: int
    record: RoomRecord
    lanes: Lanes
    moments: Moments
    forget: int | None
    """When to forget the first ended ticket."""


@lru_cache(maxsize=1024)
def _settings_of(text: str) -> RoomSettings:
    return _settings.decode(text)


def _to_stored(row: Row) -> StoredRoom:
    number, name, settings, state, epoch, tally = row
    room = Room(name=name, settings=_settings_of(settings), state=_STATES[state], epoch=epoch)
    return StoredRoom(number, RoomRecord(room, _tally.decode(tally)))


def load(tx: Tx, name: str, *, lock: bool = True) -> StoredRoom | None:
    """The room; with `lock` no other process changes it before this transaction ends."""
    row = tx.one("room_locked" if lock else "room", (name,))
    return None if row is None else _to_stored(row)


def survey(tx: Tx, names: Sequence[str]) -> dict[str, Surveyed]:
    """Room name → its values, for rooms that exist."""
    found: dict[str, Surveyed] = {}
    with_lanes = []
    for row in tx.query("survey", {"names": tx.array(names)}):
        stored = _to_stored(row[:6])
        seen, ends, forget, waiting = row[6:]
        if stored.record.room.settings.lanes.keys() != _ONE_LANE:
            with_lanes.append(stored)
        lanes = {DEFAULT_LANE: waiting or 0}
        found[row[1]] = Surveyed(*stored, lanes, Moments(seen, ends), forget)
    if with_lanes:
        counted = _lanes_of(tx, with_lanes)
        for stored in with_lanes:
            name = stored.record.room.name
            found[name] = found[name]._replace(lanes=counted[stored.id])
    return found


def moments(tx: Tx, rooms: Sequence[int]) -> dict[int, Moments]:
    """Room → its moments as they are now."""
    rows = tx.query("moments", {"rooms": tx.array(rooms)})
    return {room: Moments(seen, ends) for room, seen, ends, _ in rows}


def lanes(tx: Tx, stored: StoredRoom) -> Lanes:
    """Waiting visitors by lane, from the stored numbers."""
    return _lanes_of(tx, [stored])[stored.id]


def _lanes_of(tx: Tx, rooms: Sequence[StoredRoom]) -> dict[int, Lanes]:
    found = {room.id: dict.fromkeys(room.record.room.settings.lanes, 0) for room in rooms}
    for room, lane, waiting in tx.query("lanes", {"rooms": tx.array(list(found))}):
        if lane in found[room]:
            found[room][lane] = waiting
    return found


def make(tx: Tx, record: RoomRecord, due: int) -> None:
    room, tally = record.room, _encode(record.tally).decode()
    settings = _encode(room.settings).decode()
    tx.execute("make_room", (room.name, settings, room.state.value, room.epoch, tally, due))


def save(tx: Tx, number: int, record: RoomRecord, due: int) -> None:
    """Write every column of the record."""
    room, tally = record.room, _encode(record.tally).decode()
    settings = _encode(room.settings).decode()
    tx.execute("save_room", (settings, room.state.value, room.epoch, tally, due, number))


def tally_text(record: RoomRecord) -> str:
    """The tally as text, as in its column."""
    return _encode(record.tally).decode()


# --- tickets ---


def to_ticket(row: Row, ahead: int | None = None) -> Ticket:
    user, name, lane, number, joined, until, promoted, entered, pass_id, instance = row
    state = _TICKET_STATES[name]
    return Ticket(
        user=user,
        state=state,
        lane=lane,
        number=number,
        joined=joined,
        ahead=ahead,
        seen=until if state is TicketState.WAITING else None,
        promoted=promoted,
        until=until if state in HOLDS_SLOT else None,
        entered=entered,
        pass_id=pass_id,
        instance=instance,
    )


def tickets(tx: Tx, room: int, users: Sequence[str]) -> dict[str, Ticket]:
    """User → ticket, for users who have one."""
    rows = tx.query("tickets", {"users": tx.array(users), "room": room})
    return {row[0]: to_ticket(row) for row in rows}


def placed(tx: Tx, room: int, users: Sequence[str]) -> dict[str, Ticket]:
    """User → ticket with the number of visitors ahead, for users who have one."""
    if not users:
        return {}
    rows = tx.query("placed_tickets", {"users": tx.array(users), "room": room})
    return {row[0]: to_ticket(row[:-1], row[-1]) for row in rows}


def put_tickets(tx: Tx, room: int, changed: Iterable[Ticket], now: int) -> None:
    """Write tickets as a step leaves them."""
    tx.many("put_ticket", [_ticket_row(room, ticket, now) for ticket in changed])


def _ticket_row(room: int, ticket: Ticket, now: int) -> Row:
    state = ticket.state
    if state is TicketState.WAITING:
        kind, until = WAITING, ticket.seen
    elif state in HOLDS_SLOT:
        kind, until = HOLDING, ticket.until
    else:
        kind, until = ENDED, now + KEEP_ENDED
    return (
        room, ticket.user, kind, until, state.value, ticket.lane, ticket.number,
        ticket.joined, ticket.promoted, ticket.entered, ticket.pass_id, ticket.instance,
    )  # fmt: skip


# --- lines ---


def block_of(number: int) -> int:
    """Grows with the number: 1,024 blocks of lots, then blocks of 256 places."""
    return number >> _LOT_SHIFT if number < FIRST_NUMBER else number >> PLACE_BITS


def line_up(tx: Tx, room: int, new: Iterable[Ticket]) -> None:
    """Count new tickets in."""
    _count(tx, Counter((room, one.lane, block_of(one.number)) for one in new))


def leave_line(tx: Tx, room: int, gone: Iterable[Ticket]) -> None:
    """Count tickets out that waited anywhere in the line."""
    left = Counter((room, one.lane, block_of(one.number)) for one in gone)
    if left:
        _count(tx, {place: -number for place, number in left.items()})
        tx.many("drop_empty_block", list(left))


def _count(tx: Tx, steps: dict[tuple[int, str, int], int]) -> None:
    by_lane: Counter[tuple[int, str]] = Counter()
    for (room, lane, _), step in steps.items():
        by_lane[room, lane] += step
    tx.many("count_block", [(*place, step) for place, step in steps.items()])
    tx.many("count_lane", [(*lane, step) for lane, step in by_lane.items()])


def move_lane(tx: Tx, room: int, lane: str, to: str) -> None:
    """Everybody of a lane waits on in another."""
    for name in ("move_tickets", "move_blocks", "move_count"):
        tx.execute(name, (to, room, lane))
    for name in ("drop_blocks", "drop_lane"):
        tx.execute(name, (room, lane))


class Heads:
    """The first of many lines are let in; written together in the end."""

    def __init__(self) -> None:
        self._writes: dict[str, list[Row]] = {
            "leave_lane": [],
            "drop_blocks": [],
            "drop_blocks_before": [],
            "leave_block": [],
        }

    def leave(self, room: int, lane: str, numbers: Sequence[int], left: int) -> None:
        """These, in their order; `left` stay. Whole blocks go but perhaps the last."""
        writes = self._writes
        writes["leave_lane"].append((len(numbers), room, lane))
        if left <= 0:
            writes["drop_blocks"].append((room, lane))
            return
        last = block_of(numbers[-1])
        if block_of(numbers[0]) != last:
            writes["drop_blocks_before"].append((room, lane, last))
        of_last = sum(block_of(number) == last for number in numbers)
        writes["leave_block"].append((of_last, room, lane, last))

    def save(self, tx: Tx) -> None:
        for name, rows in self._writes.items():
            if rows:
                tx.many(name, rows)
