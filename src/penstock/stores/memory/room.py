"""One room in memory: its record and tickets, changed by the steps of model/room_steps."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from penstock.model import room_steps as steps
from penstock.model.room_steps import A, Moments, RoomRecord, RoomStep
from penstock.model.ticket import (
    HOLDS_SLOT,
    KEEP_ENDED,
    LIVE,
    Promotion,
    Ticket,
    TicketState,
)


@dataclass
class MemoryRoom:
    """One room: its record and every stored ticket."""

    record: RoomRecord
    tickets: dict[str, Ticket] = field(default_factory=dict)
    forget: dict[str, int] = field(default_factory=dict)
    """Ended tickets: user → when to forget it."""

    def write(self, step: RoomStep[A], now: int) -> A:
        """Store the result of a step, and return the step's answer."""
        self.record = step.record
        for ticket in step.tickets:
            self.tickets[ticket.user] = ticket
            if ticket.state in LIVE:
                self.forget.pop(ticket.user, None)
            else:
                self.forget[ticket.user] = now + KEEP_ENDED
        return step.answer

    def waiting(self, lane: str | None = None) -> list[Ticket]:
        """The waiting tickets, in order."""
        found = [
            ticket
            for ticket in self.tickets.values()
            if ticket.state is TicketState.WAITING and lane in (None, ticket.lane)
        ]
        return sorted(found, key=lambda ticket: (ticket.number, ticket.user))

    def holding(self) -> list[Ticket]:
        return [ticket for ticket in self.tickets.values() if ticket.state in HOLDS_SLOT]

    def lanes(self) -> dict[str, int]:
        return {lane: len(self.waiting(lane)) for lane in self.record.room.settings.lanes}

    def promote(self, now: int, limit: int) -> Promotion:
        self._forget(now)
        self.record = steps.attend(self.record, now)
        over, silent = self._over(now, limit), self._silent(now, limit)
        self.write(steps.end(self.record, over + silent, TicketState.EXPIRED), now)
        admitted = self._admit(now, limit)
        return Promotion(
            room=self.record.room.name,
            admitted=admitted,
            expired=len(over) + len(silent),
            more=limit in (len(over), len(silent), len(admitted)),
            look_at=steps.look_at(self.record, bool(self.waiting()), self._moments(), now),
        )

    def _forget(self, now: int) -> None:
        for user in [user for user, at in self.forget.items() if at <= now]:
            del self.forget[user]
            del self.tickets[user]

    def _over(self, now: int, limit: int) -> list[Ticket]:
        found = [t for t in self.holding() if t.until is not None and t.until <= now]
        return sorted(found, key=lambda ticket: (ticket.until, ticket.user))[:limit]

    def _silent(self, now: int, limit: int) -> list[Ticket]:
        cutoff = steps.silence(self.record, now)
        if cutoff is None:
            return []
        found = [t for t in self.waiting() if t.seen is not None and t.seen <= cutoff]
        return sorted(found, key=lambda ticket: (ticket.seen, ticket.user))[:limit]

    def _admit(self, now: int, limit: int) -> tuple[Ticket, ...]:
        step = steps.admit(self.record, self.lanes(), now, limit)
        admission = self.write(step, now)
        if admission is None:
            return ()
        lines = {lane: iter(self.waiting(lane)) for lane in set(admission.lanes)}
        admitted = tuple(admission.ticket(next(lines[lane])) for lane in admission.lanes)
        self.write(RoomStep(None, self.record, admitted), now)
        return admitted

    def _moments(self) -> Moments:
        seen = [ticket.seen for ticket in self.waiting() if ticket.seen is not None]
        ends = [ticket.until for ticket in self.holding() if ticket.until is not None]
        return Moments(min(seen, default=None), min(ends, default=None))

    def placed(self, user: str) -> Ticket | None:
        """The ticket, with the number ahead while it waits."""
        ticket = self.tickets.get(user)
        if ticket is None or ticket.state is not TicketState.WAITING:
            return ticket
        return replace(ticket, ahead=self.waiting(ticket.lane).index(ticket))
