"""PROMOTE, on SQLite: one room's atomic step inside a transaction."""

from __future__ import annotations

from collections import Counter

from msgspec.structs import replace

from penstock.model.admission import (
    ATTEND_MS,
    OUTAGE_MS,
    admissible,
    earn,
    next_credit_at,
    silent_before,
)
from penstock.model.room import RoomState
from penstock.model.ticket import Promotion, Ticket, TicketState
from penstock.stores.sqlite import room_record as records
from penstock.stores.sqlite.room_record import HOLDING, WAITING, Record
from penstock.stores.sqlite.session import Session


def promote(session: Session, name: str, now: int, limit: int) -> Promotion:
    record = records.load(session, name)
    if record is None:
        return Promotion(room=name)
    _attend(session, record, now, limit)
    over, silent = _expire(session, record, now, limit)
    admitted = _admit(session, record, now, limit)
    waiting = sum(records.lanes(session, record).values())
    look_at = _look_at(session, record, now, waiting)
    # Nobody else writes here: the next moment is known, but a line must be seen to.
    moments = [look_at] if look_at is not None else []
    record.due = min([*moments, now + ATTEND_MS] if waiting else moments, default=None)
    records.save(session, record)
    return Promotion(
        room=name,
        admitted=tuple(admitted),
        expired=over + silent,
        more=limit in (over, silent, len(admitted)),
        look_at=look_at,
    )


def _attend(session: Session, record: Record, now: int, limit: int) -> None:
    session.execute(records.FORGET, (record.id, record.id, now, limit))
    if now - record.attended > OUTAGE_MS:
        record.floor = now
    if now - record.attended >= ATTEND_MS:
        record.attended = now


def _expire(session: Session, record: Record, now: int, limit: int) -> tuple[int, int]:
    over = session.execute(records.OVER, (record.id, HOLDING, now, limit)).fetchall()
    cutoff = silent_before(records.settings_of(record.settings), record.floor, now)
    silent = []
    if cutoff is not None:
        silent = session.execute(records.OVER, (record.id, WAITING, cutoff, limit)).fetchall()
    ended = [records.to_ticket(row) for row in (*over, *silent)]
    if ended:
        records.end(session, record, ended, TicketState.EXPIRED, now)
    return len(over), len(silent)


def _admit(session: Session, record: Record, now: int, limit: int) -> list[Ticket]:
    room = record.room
    settings = room.settings
    if room.state_at(now) is not RoomState.OPEN:
        return []
    rate = settings.admit_rate
    credit = 0 if rate is None else earn(rate, record.credit, record.credit_at, now)
    tokens = None if rate is None else credit // rate.per
    lanes = records.lanes(session, record)
    count = admissible(settings.capacity, record.in_use, sum(lanes.values()), tokens, limit)
    if count == 0:
        return []
    first = _take(session, record, lanes, count)
    records.count_line(session, record, first, -1)
    until = None if settings.claim_ttl is None else now + settings.claim_ttl
    admitted = [
        replace(
            ticket,
            state=TicketState.ADMITTED,
            promoted=now,
            until=until,
            seen=None,
            pass_id=f"{record.epoch}-{record.promoted + place}",
        )
        for place, ticket in enumerate(first, 1)
    ]
    rows = [records.ticket_row(record.id, ticket) for ticket in admitted]
    session.connection.executemany(records.PUT_TICKET, rows)
    record.promoted += count
    record.admitted += count
    record.in_use += count
    flow = record.read_flow()
    flow.add(count, now)
    record.flow = records.to_json(flow)
    if rate is not None:
        record.credit, record.credit_at = credit - count * rate.per, now
    return admitted


def _take(session: Session, record: Record, lanes: dict[str, int], count: int) -> list[Ticket]:
    """The next `count` people, each lane in its order, the lanes by their weights."""
    weights = records.settings_of(record.settings).lanes
    shares = record.read_shares()
    order = shares.draw(weights, lanes, count)
    record.shares = records.to_json(shares)
    heads = {
        lane: iter(session.execute(records.FIRST_IN_LANE, (record.id, lane, number)).fetchall())
        for lane, number in Counter(order).items()
    }
    return [records.to_ticket(next(heads[lane])) for lane in order]


def _look_at(session: Session, record: Record, now: int, waiting: int) -> int | None:
    settings = records.settings_of(record.settings)
    moments = []
    held = session.execute(records.FIRST_UNTIL, (record.id, HOLDING)).fetchone()
    if held is not None:
        moments.append(held[0])
    if settings.wait_grace is not None:
        seen = session.execute(records.FIRST_UNTIL, (record.id, WAITING)).fetchone()
        if seen is not None:
            moments.append(max(seen[0], record.floor) + settings.wait_grace)
    state = record.room.state_at(now)
    if state is RoomState.SCHEDULED and settings.opens_at is not None:
        moments.append(settings.opens_at)
    rate = settings.admit_rate
    room_left = record.in_use < settings.capacity and waiting > 0
    if state is RoomState.OPEN and rate is not None and room_left:
        credit = earn(rate, record.credit, record.credit_at, now)
        moments.append(next_credit_at(rate, credit, now))
    return min(moments, default=None)
