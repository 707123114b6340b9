"""JOIN, on SQLite: many people line up in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model.admission import lot
from penstock.model.room import RoomState
from penstock.model.ticket import (
    LIVE,
    JoinAnswer,
    Joined,
    JoinedAll,
    Joining,
    Ticket,
    TicketState,
)
from penstock.stores.sqlite import room_record as records
from penstock.stores.sqlite.room_record import Record
from penstock.stores.sqlite.session import Session


def line_up(session: Session, record: Record, joining: Sequence[Joining], now: int) -> JoinedAll:
    """One answer each; who has a live ticket keeps it."""
    new: dict[str, Ticket] = {}
    answers = [_answer(session, record, one, new, now) for one in joining]
    ahead = records.lanes(session, record)
    rows = [records.ticket_row(record.id, ticket) for ticket in new.values()]
    session.connection.executemany(records.PUT_TICKET, rows)
    records.count_line(session, record, list(new.values()), 1)
    for ticket in new.values():
        if ticket.number > records.FIRST_NUMBER:  # everybody in the lane is before the last
            new[ticket.user] = replace(ticket, ahead=ahead[ticket.lane])
            ahead[ticket.lane] += 1
    if new:
        record.joined += len(new)
        record.due = now
        records.save(session, record)
    placed = [
        Joined(answer, _placed(session, record, one.user, new))
        if answer in (JoinAnswer.NEW, JoinAnswer.KNOWN)
        else Joined(answer)
        for one, answer in zip(joining, answers, strict=True)
    ]
    return JoinedAll(placed, records.outlook(session, record, now))


def _answer(
    session: Session, record: Record, joining: Joining, new: dict[str, Ticket], now: int
) -> JoinAnswer:
    if joining.user in new:
        return JoinAnswer.KNOWN
    known = records.find(session, record, joining.user)
    if known is not None and known.state in LIVE:
        session.execute(records.TOUCH, (now, record.id, joining.user))
        return JoinAnswer.KNOWN
    room = record.room
    state = room.state_at(now)
    if state is RoomState.CLOSED:
        return JoinAnswer.CLOSED
    if joining.lane not in room.settings.lanes:
        return JoinAnswer.UNKNOWN_LANE
    if state is RoomState.SCHEDULED and room.settings.lottery:
        number = lot(room.settings.seed, joining.user)
    else:
        record.number += 1
        number = record.number
    new[joining.user] = Ticket(
        user=joining.user,
        state=TicketState.WAITING,
        lane=joining.lane,
        number=number,
        joined=now,
        seen=now,
        instance=joining.instance,
    )
    return JoinAnswer.NEW


def _placed(session: Session, record: Record, user: str, new: dict[str, Ticket]) -> Ticket | None:
    ticket = new.get(user)
    if ticket is not None and ticket.ahead is not None:
        return ticket
    return records.placed(session, record, user)
