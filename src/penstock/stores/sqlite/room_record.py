"""One room inside a transaction: its record, its line, its tickets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import msgspec

from penstock.model.admission import LOT_BITS, Flow, LaneShares
from penstock.model.room import (
    DEFAULT_LANE,
    Room,
    RoomFigures,
    RoomPast,
    RoomSettings,
    RoomState,
)
from penstock.model.ticket import HOLDS_SLOT, KEEP_ENDED, Outlook, Ticket, TicketState
from penstock.stores.sqlite.session import Session

WAITING, HOLDING, ENDED = range(3)
FIRST_NUMBER = 1 << (LOT_BITS + 1)
"""Places given in order of arrival lie above every lot."""
PLACE_BITS = 8
_FIELDS = (
    "id", "name", "settings", "state", "epoch", "in_use", "number", "joined", "promoted",
    "admitted", "entered", "gone_left", "gone_expired", "gone_revoked", "credit", "credit_at",
    "attended", "floor", "shares", "flow", "due",
)  # fmt: skip
_LOAD = f"SELECT {', '.join(_FIELDS)} FROM rooms WHERE name = ?"  # noqa: S608 - constants only
_SAVE = f"UPDATE rooms SET {', '.join(f'{name} = ?' for name in _FIELDS[2:])} WHERE id = ?"  # noqa: S608
_MAKE = (
    f"INSERT INTO rooms ({', '.join(_FIELDS[1:])})"  # noqa: S608 - constants only
    f" VALUES ({', '.join('?' * (len(_FIELDS) - 1))}) RETURNING id"
)
_TICKET = "user, state, lane, number, joined, until, promoted, entered, pass, instance"
GET_TICKET = f"SELECT {_TICKET} FROM room_tickets WHERE room = ? AND user = ?"  # noqa: S608
PUT_TICKET = """
INSERT INTO room_tickets
  (room, user, kind, until, state, lane, number, joined, promoted, entered, pass, instance)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (room, user) DO UPDATE SET
  kind = excluded.kind, until = excluded.until, state = excluded.state, lane = excluded.lane,
  number = excluded.number, joined = excluded.joined, promoted = excluded.promoted,
  entered = excluded.entered, pass = excluded.pass, instance = excluded.instance
"""
FIRST_IN_LANE = f"""
SELECT {_TICKET} FROM room_tickets WHERE room = ? AND lane = ? AND kind = 0
ORDER BY number, user LIMIT ?
"""  # noqa: S608 - constants only
OVER = f"""
SELECT {_TICKET} FROM room_tickets WHERE room = ? AND kind = ? AND until <= ?
ORDER BY until, user LIMIT ?
"""  # noqa: S608 - constants only
FIRST_UNTIL = """
SELECT until FROM room_tickets WHERE room = ? AND kind = ? AND until IS NOT NULL
ORDER BY until LIMIT 1
"""
FORGET = """
DELETE FROM room_tickets WHERE room = ? AND user IN (
  SELECT user FROM room_tickets WHERE room = ? AND kind = 2 AND until <= ? LIMIT ?)
"""
TOUCH = "UPDATE room_tickets SET until = max(until, ?) WHERE room = ? AND user = ? AND kind = 0"
COUNT_BLOCK = """
INSERT INTO room_blocks (room, lane, block, waiting) VALUES (?, ?, ?, ?)
ON CONFLICT (room, lane, block) DO UPDATE SET waiting = waiting + excluded.waiting
"""
DROP_EMPTY = "DELETE FROM room_blocks WHERE room = ? AND lane = ? AND block = ? AND waiting <= 0"
LANES = "SELECT lane, sum(waiting) FROM room_blocks WHERE room = ? GROUP BY lane"
BLOCKS_BEFORE = (
    "SELECT coalesce(sum(waiting), 0) FROM room_blocks WHERE room = ? AND lane = ? AND block < ?"
)
BEFORE_IN_BLOCK = """
SELECT count(*) FROM room_tickets
WHERE room = ? AND lane = ? AND kind = 0 AND number >= ? AND (number, user) < (?, ?)
"""
CLEAR = ("DELETE FROM room_tickets WHERE room = ?", "DELETE FROM room_blocks WHERE room = ?")
_GONE = {
    TicketState.LEFT: "gone_left",
    TicketState.EXPIRED: "gone_expired",
    TicketState.REVOKED: "gone_revoked",
}


def block_of(number: int) -> int:
    """Grows with the number: 1,024 blocks of lots, then blocks of 256 places."""
    return number >> (LOT_BITS - 10) if number < FIRST_NUMBER else number >> PLACE_BITS


def first_of_block(block: int) -> int:
    lots = block << (LOT_BITS - 10)
    return lots if lots < FIRST_NUMBER and block < 1 << 11 else block << PLACE_BITS


class Record(msgspec.Struct):
    """A row of `rooms`, changed here and saved in the end."""

    id: int
    name: str
    settings: str
    state: str
    epoch: int = 1
    in_use: int = 0
    number: int = FIRST_NUMBER
    joined: int = 0
    promoted: int = 0
    admitted: int = 0
    entered: int = 0
    gone_left: int = 0
    gone_expired: int = 0
    gone_revoked: int = 0
    credit: int = 0
    credit_at: int = 0
    attended: int = 0
    floor: int = 0
    shares: str = "{}"
    flow: str = "{}"
    due: int | None = None

    @property
    def room(self) -> Room:
        return Room(
            name=self.name,
            settings=settings_of(self.settings),
            state=RoomState(self.state),
            epoch=self.epoch,
        )

    def read_flow(self) -> Flow:
        return msgspec.json.decode(self.flow, type=Flow)

    def read_shares(self) -> LaneShares:
        return msgspec.json.decode(self.shares, type=LaneShares)


@lru_cache(maxsize=1024)
def settings_of(text: str) -> RoomSettings:
    return msgspec.json.decode(text, type=RoomSettings)


def to_json(value: RoomSettings | Flow | LaneShares) -> str:
    return msgspec.json.encode(value).decode()


def load(session: Session, name: str) -> Record | None:
    row = session.execute(_LOAD, (name,)).fetchone()
    return None if row is None else Record(*row)


def save(session: Session, record: Record) -> None:
    values = msgspec.structs.astuple(record)
    session.execute(_SAVE, (*values[2:], record.id))


def make(session: Session, record: Record) -> None:
    values = msgspec.structs.astuple(record)
    (record.id,) = session.execute(_MAKE, values[1:]).fetchone()


# --- tickets ---


def to_ticket(row: Sequence[Any]) -> Ticket:
    user, state, lane, number, joined, until, promoted, entered, pass_id, instance = row
    kind = TicketState(state)
    waiting = kind is TicketState.WAITING
    return Ticket(
        user=user,
        state=kind,
        lane=lane,
        number=number,
        joined=joined,
        seen=until if waiting else None,
        promoted=promoted,
        until=until if kind in HOLDS_SLOT else None,
        entered=entered,
        pass_id=pass_id,
        instance=instance,
    )


def ticket_row(room: int, ticket: Ticket, forget: int | None = None) -> Sequence[Any]:
    """The values of PUT_TICKET."""
    if ticket.state is TicketState.WAITING:
        kind, until = WAITING, ticket.seen
    elif ticket.state in HOLDS_SLOT:
        kind, until = HOLDING, ticket.until
    else:
        kind, until = ENDED, forget
    return (
        room, ticket.user, kind, until, ticket.state.value, ticket.lane, ticket.number,
        ticket.joined, ticket.promoted, ticket.entered, ticket.pass_id, ticket.instance,
    )  # fmt: skip


def find(session: Session, record: Record, user: str) -> Ticket | None:
    row = session.execute(GET_TICKET, (record.id, user)).fetchone()
    return None if row is None else to_ticket(row)


def placed(session: Session, record: Record, user: str) -> Ticket | None:
    """The ticket, with its place while it waits."""
    ticket = find(session, record, user)
    if ticket is None or ticket.state is not TicketState.WAITING:
        return ticket
    block = block_of(ticket.number)
    line = (record.id, ticket.lane)
    (before,) = session.execute(BLOCKS_BEFORE, (*line, block)).fetchone()
    inside = (*line, first_of_block(block), ticket.number, ticket.user)
    (beside,) = session.execute(BEFORE_IN_BLOCK, inside).fetchone()
    return msgspec.structs.replace(ticket, ahead=before + beside)


def count_line(session: Session, record: Record, tickets: Sequence[Ticket], step: int) -> None:
    """Keep the blocks right: +1 for those who line up, -1 for those who go."""
    blocks = Counter((ticket.lane, block_of(ticket.number)) for ticket in tickets)
    for (lane, block), number in blocks.items():
        session.execute(COUNT_BLOCK, (record.id, lane, block, step * number))
        if step < 0:
            session.execute(DROP_EMPTY, (record.id, lane, block))


def lanes(session: Session, record: Record) -> dict[str, int]:
    counted = dict(session.execute(LANES, (record.id,)).fetchall())
    return {lane: counted.get(lane, 0) for lane in settings_of(record.settings).lanes}


def end(
    session: Session, record: Record, tickets: Sequence[Ticket], state: TicketState, now: int
) -> list[Ticket]:
    """These tickets end; those that held a slot give it back."""
    waiting = [ticket for ticket in tickets if ticket.state is TicketState.WAITING]
    count_line(session, record, waiting, -1)
    held = Counter(ticket.state for ticket in tickets if ticket.state in HOLDS_SLOT)
    record.in_use -= held.total()
    record.admitted -= held[TicketState.ADMITTED]
    record.entered -= held[TicketState.ENTERED]
    setattr(record, _GONE[state], getattr(record, _GONE[state]) + len(tickets))
    ended = [
        msgspec.structs.replace(ticket, state=state, until=None, seen=None) for ticket in tickets
    ]
    rows = [ticket_row(record.id, ticket, now + KEEP_ENDED) for ticket in ended]
    session.connection.executemany(PUT_TICKET, rows)
    return ended


def outlook(session: Session, record: Record, now: int) -> Outlook:
    room = record.room
    return Outlook(
        room=room,
        state=room.state_at(now),
        in_use=record.in_use,
        waiting=lanes(session, record),
        a_minute=record.read_flow().a_minute(now),
    )


KEEP_PAST = """
INSERT INTO room_past (room, joined, promoted, gone_left, gone_expired) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (room) DO UPDATE SET
  joined = joined + excluded.joined, promoted = promoted + excluded.promoted,
  gone_left = gone_left + excluded.gone_left, gone_expired = gone_expired + excluded.gone_expired
"""
GET_PAST = "SELECT joined, promoted, gone_left, gone_expired FROM room_past WHERE room = ?"


def keep_past(session: Session, record: Record) -> None:
    """The epoch ends: what it came to is added to what the earlier ones did."""
    counts = (record.joined, record.promoted, record.gone_left, record.gone_expired)
    session.execute(KEEP_PAST, (record.id, *counts))


def figures(session: Session, record: Record, now: int) -> RoomFigures:
    seen = outlook(session, record, now)
    past = session.execute(GET_PAST, (record.id,)).fetchone()
    return RoomFigures(
        room=seen.room,
        state=seen.state,
        in_use=record.in_use,
        waiting=sum(seen.waiting.values()),
        admitted=record.admitted,
        entered=record.entered,
        left=record.gone_left,
        expired=record.gone_expired,
        revoked=record.gone_revoked,
        joined=record.joined,
        promoted=record.promoted,
        a_minute=seen.a_minute,
        before=RoomPast() if past is None else RoomPast(*past),
    )


MOVE_LANE = "UPDATE room_tickets SET lane = ? WHERE room = ? AND lane = ? AND kind = 0"
MOVE_BLOCKS = """
INSERT INTO room_blocks (room, lane, block, waiting)
SELECT room, ?, block, waiting FROM room_blocks WHERE room = ? AND lane = ?
ON CONFLICT (room, lane, block) DO UPDATE SET waiting = waiting + excluded.waiting
"""
DROP_BLOCKS = "DELETE FROM room_blocks WHERE room = ? AND lane = ?"


def move_lanes(session: Session, record: Record, kept: RoomSettings) -> None:
    """Those of a lane that goes wait on in the default one, in their order."""
    for lane in settings_of(record.settings).lanes.keys() - kept.lanes.keys():
        session.execute(MOVE_LANE, (DEFAULT_LANE, record.id, lane))
        session.execute(MOVE_BLOCKS, (DEFAULT_LANE, record.id, lane))
        session.execute(DROP_BLOCKS, (record.id, lane))
