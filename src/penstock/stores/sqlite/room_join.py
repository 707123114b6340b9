"""JOIN, on SQLite: many people line up in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

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
from penstock.stores.sqlite import room_line as line
from penstock.stores.sqlite import room_record as records
from penstock.stores.sqlite.room_record import Record
from penstock.stores.sqlite.session import Session

_IN_LINE = (JoinAnswer.NEW, JoinAnswer.KNOWN)


def line_up(session: Session, record: Record, joining: Sequence[Joining], now: int) -> JoinedAll:
    """One answer each; who has a live ticket keeps it."""
    desk = _Desk(session, record, now)
    desk.live = records.states(session, record, [one.user for one in joining])
    answers = [desk.ask(one) for one in joining]
    desk.close()
    in_line = {one.user for one, answer in zip(joining, answers, strict=True) if answer in _IN_LINE}
    placed = records.placed(session, record, list(in_line - desk.placed.keys())) | desk.placed
    return JoinedAll(
        [
            Joined(answer, placed[one.user] if answer in _IN_LINE else None)
            for one, answer in zip(joining, answers, strict=True)
        ],
        records.outlook(session, record, now),
    )


class _Desk:
    """Where people line up, one after the other; written together in the end."""

    def __init__(self, session: Session, record: Record, now: int) -> None:
        self._session = session
        self._record = record
        self._now = now
        self._state = record.state_at(now)
        self._settings = records.settings_of(record.settings)
        self._ahead = records.lanes(session, record)
        self._rows: list[Sequence[object]] = []
        self._places: list[tuple[str, int]] = []
        self._seen: list[str] = []
        self._new: set[str] = set()
        self.live: dict[str, TicketState] = {}
        """Of those who have asked before."""
        self.placed: dict[str, Ticket] = {}
        """Tickets made here whose place is known: nobody comes after the last."""

    def ask(self, joining: Joining) -> JoinAnswer:
        if joining.user in self._new:
            return JoinAnswer.KNOWN
        if self.live.get(joining.user) in LIVE:
            self._seen.append(joining.user)
            return JoinAnswer.KNOWN
        if self._state is RoomState.CLOSED:
            return JoinAnswer.CLOSED
        if joining.lane not in self._settings.lanes:
            return JoinAnswer.UNKNOWN_LANE
        self._take(joining)
        return JoinAnswer.NEW

    def _take(self, joining: Joining) -> None:
        user, lane, record = joining.user, joining.lane, self._record
        drawn = self._state is RoomState.SCHEDULED and self._settings.lottery
        if drawn:
            number = lot(self._settings.seed, user)
        else:
            record.number += 1
            number = record.number
        ticket = Ticket(
            user=user,
            state=TicketState.WAITING,
            lane=lane,
            number=number,
            joined=self._now,
            ahead=self._ahead[lane],
            seen=self._now,
            instance=joining.instance,
        )
        self._new.add(user)
        self._rows.append(records.ticket_row(record.id, ticket))
        self._places.append((lane, number))
        if not drawn:
            self.placed[user] = ticket
        self._ahead[lane] += 1

    def close(self) -> None:
        session, record = self._session, self._record
        touched = [(self._now, record.id, user) for user in self._seen]
        session.connection.executemany(records.TOUCH, touched)
        if self._rows:
            session.connection.executemany(records.PUT_TICKET, self._rows)
            line.join(session, record.id, self._places)
            record.joined += len(self._rows)
            record.due = self._now
            records.save(session, record)
