"""One room in memory: its record, its tickets, and the rules that change them."""

from __future__ import annotations

from dataclasses import dataclass, field

from msgspec.structs import replace

from penstock.model.admission import (
    ATTEND_MS,
    OUTAGE_MS,
    Flow,
    LaneShares,
    admissible,
    earn,
    frees_slot,
    lot,
    next_credit_at,
    silent_before,
)
from penstock.model.room import Room, RoomFigures, RoomPast, RoomState
from penstock.model.ticket import (
    HOLDS_SLOT,
    KEEP_ENDED,
    LIVE,
    TRANSITIONS,
    EnterAnswer,
    JoinAnswer,
    Joined,
    Joining,
    Outlook,
    Promotion,
    Redeemed,
    Ticket,
    TicketState,
)


@dataclass
class HeldRoom:
    """One room: its record and every ticket that is not forgotten."""

    room: Room
    in_use: int = 0
    number: int = 1 << 41
    """The last number given; lots lie below."""
    tickets: dict[str, Ticket] = field(default_factory=dict)
    forget: dict[str, int] = field(default_factory=dict)
    ended: dict[TicketState, int] = field(default_factory=dict)
    joined: int = 0
    promoted: int = 0
    credit: int = 0
    credit_at: int = 0
    attended: int = 0
    floor: int = 0
    shares: LaneShares = field(default_factory=LaneShares)
    flow: Flow = field(default_factory=Flow)
    before: RoomPast = field(default_factory=RoomPast)

    def waiting(self, lane: str | None = None) -> list[Ticket]:
        """In order of the places."""
        found = [
            ticket
            for ticket in self.tickets.values()
            if ticket.state is TicketState.WAITING and lane in (None, ticket.lane)
        ]
        return sorted(found, key=lambda ticket: (ticket.number, ticket.user))

    def holding(self) -> list[Ticket]:
        return [ticket for ticket in self.tickets.values() if ticket.state in HOLDS_SLOT]

    def lanes(self) -> dict[str, int]:
        return {lane: len(self.waiting(lane)) for lane in self.room.settings.lanes}

    def join(self, joining: Joining, now: int) -> Joined:
        known = self.tickets.get(joining.user)
        if known is not None and known.state in LIVE:
            self.see(known, now)
            return Joined(JoinAnswer.KNOWN, known)
        state = self.room.state_at(now)
        settings = self.room.settings
        if state is RoomState.CLOSED:
            return Joined(JoinAnswer.CLOSED)
        if joining.lane not in settings.lanes:
            return Joined(JoinAnswer.UNKNOWN_LANE)
        if state is RoomState.SCHEDULED and settings.lottery:
            number = lot(settings.seed, joining.user)
        else:
            number = self.number = self.number + 1
        ticket = Ticket(
            user=joining.user,
            state=TicketState.WAITING,
            lane=joining.lane,
            number=number,
            joined=now,
            seen=now,
            instance=joining.instance,
        )
        self.tickets[joining.user] = ticket
        self.forget.pop(joining.user, None)
        self.joined += 1
        return Joined(JoinAnswer.NEW, ticket)

    def enter(self, user: str, pass_id: str, now: int) -> Redeemed:
        ticket = self.tickets.get(user)
        if ticket is None or not pass_id or ticket.pass_id != pass_id:
            return Redeemed(EnterAnswer.INVALID)
        if ticket.entered is not None:
            return Redeemed(EnterAnswer.USED, ticket)
        overdue = ticket.until is not None and ticket.until <= now
        if ticket.state is not TicketState.ADMITTED or overdue:
            return Redeemed(EnterAnswer.INVALID)
        session = self.room.settings.session_ttl
        until = None if session is None else now + session
        entered = self.become(ticket, TicketState.ENTERED, entered=now, until=until)
        return Redeemed(EnterAnswer.ENTERED, entered)

    def promote(self, now: int, limit: int) -> Promotion:
        self.attend(now)
        expired = self.expire(now, limit)
        admitted = self.admit(now, limit)
        return Promotion(
            room=self.room.name,
            admitted=tuple(admitted),
            expired=sum(expired),
            more=limit in expired or len(admitted) == limit,
            look_at=self.look_at(now),
        )

    def attend(self, now: int) -> None:
        for user in sorted(self.forget, key=lambda user: (self.forget[user], user)):
            if self.forget[user] <= now:
                del self.forget[user]
                del self.tickets[user]
        if now - self.attended > OUTAGE_MS:
            self.floor = now
        if now - self.attended >= ATTEND_MS:
            self.attended = now

    def expire(self, now: int, limit: int) -> tuple[int, int]:
        over = sorted(
            (ticket.until, ticket.user)
            for ticket in self.holding()
            if ticket.until is not None and ticket.until <= now
        )[:limit]
        cutoff = silent_before(self.room.settings, self.floor, now)
        silent = sorted(
            (ticket.seen, ticket.user)
            for ticket in self.waiting()
            if ticket.seen is not None and cutoff is not None and ticket.seen <= cutoff
        )[:limit]
        for _, user in over + silent:
            self.end(self.tickets[user], TicketState.EXPIRED, now)
        return len(over), len(silent)

    def admit(self, now: int, limit: int) -> list[Ticket]:
        settings = self.room.settings
        if self.room.state_at(now) is not RoomState.OPEN:
            return []
        rate = settings.admit_rate
        credit = 0 if rate is None else earn(rate, self.credit, self.credit_at, now)
        tokens = None if rate is None else credit // rate.per
        lanes = self.lanes()
        count = admissible(settings.capacity, self.in_use, sum(lanes.values()), tokens, limit)
        admitted = []
        before = self.promoted
        for lane in self.shares.draw(settings.lanes, lanes, count):
            ticket = self.waiting(lane)[0]
            self.promoted += 1
            until = None if settings.claim_ttl is None else now + settings.claim_ttl
            pass_id = f"{self.room.epoch}-{before}-{ticket.number}"
            admitted.append(
                self.become(
                    ticket, TicketState.ADMITTED, promoted=now, until=until, pass_id=pass_id
                )
            )
            self.in_use += 1
        if admitted:
            self.flow.add(len(admitted), now)
            if rate is not None:
                self.credit, self.credit_at = credit - len(admitted) * rate.per, now
        return admitted

    def look_at(self, now: int) -> int | None:
        settings = self.room.settings
        moments = [ticket.until for ticket in self.holding() if ticket.until is not None]
        seen = [ticket.seen for ticket in self.waiting() if ticket.seen is not None]
        if settings.wait_grace is not None and seen:
            moments.append(max(min(seen), self.floor) + settings.wait_grace)
        state = self.room.state_at(now)
        if state is RoomState.SCHEDULED and settings.opens_at is not None:
            moments.append(settings.opens_at)
        rate = settings.admit_rate
        room_left = self.in_use < settings.capacity and bool(self.waiting())
        if state is RoomState.OPEN and rate is not None and room_left:
            credit = earn(rate, self.credit, self.credit_at, now)
            moments.append(next_credit_at(rate, credit, now))
        return min(moments, default=None)

    def become(self, ticket: Ticket, state: TicketState, **changes: object) -> Ticket:
        if state not in TRANSITIONS[ticket.state]:
            raise AssertionError(f"{ticket.state} may not become {state}")
        changed = replace(ticket, state=state, seen=None, **changes)
        self.tickets[ticket.user] = changed
        return changed

    def end(self, ticket: Ticket, state: TicketState, now: int) -> None:
        if ticket.state in HOLDS_SLOT and frees_slot(self.in_use, len(self.holding())):
            self.in_use -= 1
        self.become(ticket, state, until=None)
        self.ended[state] = self.ended.get(state, 0) + 1
        self.forget[ticket.user] = now + KEEP_ENDED

    def see(self, ticket: Ticket, now: int) -> None:
        if ticket.state is TicketState.WAITING:
            self.tickets[ticket.user] = replace(ticket, seen=max(now, ticket.seen or now))

    def placed(self, user: str) -> Ticket | None:
        ticket = self.tickets.get(user)
        if ticket is None or ticket.state is not TicketState.WAITING:
            return ticket
        return replace(ticket, ahead=self.waiting(ticket.lane).index(ticket))

    def outlook(self, now: int) -> Outlook:
        return Outlook(
            room=self.room,
            state=self.room.state_at(now),
            in_use=self.in_use,
            waiting=self.lanes(),
            a_minute=self.flow.a_minute(now),
        )

    def figures(self, now: int) -> RoomFigures:
        inside = [ticket.state for ticket in self.holding()]
        return RoomFigures(
            room=self.room,
            state=self.room.state_at(now),
            in_use=self.in_use,
            waiting=len(self.waiting()),
            admitted=inside.count(TicketState.ADMITTED),
            entered=inside.count(TicketState.ENTERED),
            left=self.ended.get(TicketState.LEFT, 0),
            expired=self.ended.get(TicketState.EXPIRED, 0),
            revoked=self.ended.get(TicketState.REVOKED, 0),
            joined=self.joined,
            promoted=self.promoted,
            a_minute=self.flow.a_minute(now),
            before=self.before,
        )

    def past(self) -> RoomPast:
        """What this epoch and the ones before it came to."""
        return RoomPast(
            joined=self.before.joined + self.joined,
            promoted=self.before.promoted + self.promoted,
            left=self.before.left + self.ended.get(TicketState.LEFT, 0),
            expired=self.before.expired + self.ended.get(TicketState.EXPIRED, 0),
        )
