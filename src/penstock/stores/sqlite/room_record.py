"""One room inside a transaction: its record, its line, its tickets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Any, TypeAlias

import msgspec

from penstock.model.admission import Flow, LaneShares
from penstock.model.room import (
    DEFAULT_LANE,
    Room,
    RoomFigures,
    RoomPast,
    RoomSettings,
    RoomState,
    effective_state,
)
from penstock.model.ticket import HOLDS_SLOT, KEEP_ENDED, Outlook, Ticket, TicketState
from penstock.stores.sqlite import room_line as line
from penstock.stores.sqlite.room_line import FIRST_NUMBER
from penstock.stores.sqlite.rows import json_array
from penstock.stores.sqlite.session import Session

WAITING, HOLDING, ENDED = range(3)
Moments: TypeAlias = tuple[int | None, int | None, int | None]
"""The first `until` of each kind of ticket: last seen, loses its slot, is forgotten."""
Lanes: TypeAlias = dict[str, int]
"""Lane → how many wait."""
_ONE_LANE = {DEFAULT_LANE}
_FIELDS = (
    "id", "name", "settings", "state", "epoch", "in_use", "number", "joined", "promoted",
    "admitted", "entered", "gone_left", "gone_expired", "gone_revoked", "credit", "credit_at",
    "attended", "floor", "shares", "flow", "due",
)  # fmt: skip
_LOAD = f"SELECT {', '.join(_FIELDS)} FROM rooms WHERE name = ?"  # noqa: S608 - constants only
_SAVE = f"UPDATE rooms SET {', '.join(f'{name} = ?' for name in _FIELDS[2:])} WHERE id = ?"  # noqa: S608
_STEP = (
    "in_use", "promoted", "admitted", "entered", "gone_expired", "credit", "credit_at", "attended",
    "floor", "shares", "flow", "due",
)  # fmt: skip
_SAVE_STEP = f"UPDATE rooms SET {', '.join(f'{name} = ?' for name in _STEP)} WHERE id = ?"  # noqa: S608
_step_of = attrgetter(*_STEP, "id")
_MAKE = (
    f"INSERT INTO rooms ({', '.join(_FIELDS[1:])})"  # noqa: S608 - constants only
    f" VALUES ({', '.join('?' * (len(_FIELDS) - 1))}) RETURNING id"
)
_TICKET = "user, state, lane, number, joined, until, promoted, entered, pass, instance"
_ASKED = (
    "FROM json_each(?) AS asked CROSS JOIN room_tickets AS t ON t.room = ? AND t.user = asked.value"
)
GET_STATES = f"SELECT t.user, t.state {_ASKED}"
_OF_T = ", ".join(f"t.{name}" for name in _TICKET.split(", "))
GET_TICKETS = f"SELECT {_OF_T} {_ASKED}"
GET_PLACED = f"SELECT {_OF_T}, CASE t.kind WHEN 0 THEN {line.AHEAD} END {_ASKED}"
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
FORGET = """
DELETE FROM room_tickets WHERE room = ? AND user IN (
  SELECT user FROM room_tickets WHERE room = ? AND kind = 2 AND until <= ? LIMIT ?)
"""
_FIRST = "(SELECT min(until) FROM room_tickets WHERE room = {} AND kind = {})"
MOMENTS = (
    f"SELECT asked.value, {', '.join(_FIRST.format('asked.value', kind) for kind in range(3))}"  # noqa: S608
    " FROM json_each(?) AS asked"
)
_SURVEY = f"""
SELECT {", ".join(f"r.{name}" for name in _FIELDS)},
  {", ".join(_FIRST.format("r.id", kind) for kind in range(3))},
  (SELECT waiting FROM room_lanes WHERE room = r.id AND lane = '{DEFAULT_LANE}')
FROM json_each(?) AS asked CROSS JOIN rooms AS r ON r.name = asked.value
"""  # noqa: S608 - constants only
TOUCH = "UPDATE room_tickets SET until = max(until, ?) WHERE room = ? AND user = ? AND kind = 0"
CLEAR = tuple(
    f"DELETE FROM {table} WHERE room = ?"  # noqa: S608 - constants only
    for table in ("room_tickets", "room_blocks", "room_lanes")
)
STATES = {state.value: state for state in RoomState}
"""A look into this is cheaper than to make one of a text."""
_flow = msgspec.json.Decoder(Flow)
_encode = msgspec.json.Encoder().encode
_GONE = {
    TicketState.LEFT: "gone_left",
    TicketState.EXPIRED: "gone_expired",
    TicketState.REVOKED: "gone_revoked",
}


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
            state=STATES[self.state],
            epoch=self.epoch,
        )

    def state_at(self, now: int) -> RoomState:
        return effective_state(STATES[self.state], settings_of(self.settings).opens_at, now)

    def read_flow(self) -> Flow:
        return _flow.decode(self.flow)

    def read_shares(self) -> LaneShares:
        return msgspec.json.decode(self.shares, type=LaneShares)


@lru_cache(maxsize=1024)
def settings_of(text: str) -> RoomSettings:
    return msgspec.json.decode(text, type=RoomSettings)


def to_json(value: RoomSettings | Flow | LaneShares) -> str:
    return _encode(value).decode()


def load(session: Session, name: str) -> Record | None:
    row = session.execute(_LOAD, (name,)).fetchone()
    return None if row is None else Record(*row)


def survey(session: Session, names: Sequence[str]) -> dict[str, tuple[Record, Lanes, Moments]]:
    """Of those that exist: the record, how many wait in each lane, and the moments."""
    found = {}
    in_lanes = []
    for row in session.execute(_SURVEY, (json_array(names),)):
        record = Record(*row[:-4])
        if settings_of(record.settings).lanes.keys() != _ONE_LANE:
            in_lanes.append(record)
        found[record.name] = record, {DEFAULT_LANE: row[-1] or 0}, row[-4:-1]
    if in_lanes:
        lanes = lanes_of(session, in_lanes, json_array([record.id for record in in_lanes]))
        for record in in_lanes:
            found[record.name] = record, lanes[record.id], found[record.name][2]
    return found


def save_steps(session: Session, found: Sequence[Record]) -> None:
    """What a promotion may have changed."""
    session.connection.executemany(_SAVE_STEP, [_step_of(record) for record in found])


def save(session: Session, record: Record) -> None:
    values = msgspec.structs.astuple(record)
    session.execute(_SAVE, (*values[2:], record.id))


def make(session: Session, record: Record) -> None:
    values = msgspec.structs.astuple(record)
    (record.id,) = session.execute(_MAKE, values[1:]).fetchone()


def moments(session: Session, ids: str) -> dict[int, Moments]:
    """Of rooms given as a JSON array of ids."""
    return {row[0]: row[1:] for row in session.execute(MOMENTS, (ids,))}


def lanes(session: Session, record: Record) -> Lanes:
    """However many they are, nobody is counted."""
    return lanes_of(session, [record], json_array([record.id]))[record.id]


def lanes_of(session: Session, found: Sequence[Record], ids: str) -> dict[int, Lanes]:
    """The same for many rooms, whose ids are also given as a JSON array."""
    by_room = {record.id: dict.fromkeys(settings_of(record.settings).lanes, 0) for record in found}
    for room, lane, waiting in session.execute(line.LANES, (ids,)):
        if lane in by_room[room]:
            by_room[room][lane] = waiting
    return by_room


# --- tickets ---


def to_ticket(row: Sequence[Any], ahead: int | None = None) -> Ticket:
    user, state, lane, number, joined, until, promoted, entered, pass_id, instance = row
    kind = TicketState(state)
    waiting = kind is TicketState.WAITING
    return Ticket(
        user=user,
        state=kind,
        lane=lane,
        number=number,
        joined=joined,
        ahead=ahead,
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


def find(session: Session, record: Record, users: Sequence[str]) -> dict[str, Ticket]:
    """Tickets of those who have one."""
    rows = session.execute(GET_TICKETS, (json_array(users), record.id)).fetchall()
    return {row[0]: to_ticket(row) for row in rows}


def states(session: Session, record: Record, users: Sequence[str]) -> dict[str, TicketState]:
    """Of those who have a ticket."""
    rows = session.execute(GET_STATES, (json_array(users), record.id))
    return {user: TicketState(state) for user, state in rows}


def placed(session: Session, record: Record, users: Sequence[str]) -> dict[str, Ticket]:
    """Tickets of those who have one, with the place of those who wait."""
    if not users:
        return {}
    rows = session.execute(GET_PLACED, (json_array(users), record.id)).fetchall()
    return {row[0]: to_ticket(row[:-1], row[-1]) for row in rows}


def end(
    session: Session, record: Record, tickets: Sequence[Ticket], state: TicketState, now: int
) -> list[Ticket]:
    """These tickets end; those that held a slot give it back."""
    waiting = [ticket for ticket in tickets if ticket.state is TicketState.WAITING]
    line.leave(session, record.id, [(ticket.lane, ticket.number) for ticket in waiting])
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


def move_lanes(session: Session, record: Record, kept: RoomSettings) -> None:
    """Those of a lane that goes wait on in the default one, in their order."""
    for lane in settings_of(record.settings).lanes.keys() - kept.lanes.keys():
        line.move(session, record.id, lane, DEFAULT_LANE)
