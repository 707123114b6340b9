"""Waiting rooms in plain Python: slow, obvious, and what every real store must agree with."""

from __future__ import annotations

from collections.abc import Sequence
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
from penstock.model.clock import Clock
from penstock.model.room import Room, RoomFigures, RoomSettings, RoomState, first_state
from penstock.model.ticket import (
    HOLDS_SLOT,
    KEEP_ENDED,
    LIVE,
    TRANSITIONS,
    EnterAnswer,
    JoinAnswer,
    Joined,
    JoinedAll,
    Joining,
    Looked,
    Outlook,
    Promotion,
    Redeemed,
    Ticket,
    TicketState,
)
from penstock.ports.rooms import RoomListener

LOOK_EVERY_MS = 1_000


@dataclass
class _Held:
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


class ModelRooms:
    """A RoomStore in memory. One process, nothing kept."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rooms: dict[str, _Held] = {}
        self._due: dict[str, int] = {}
        self._listeners: list[RoomListener] = []
        self._secret: bytes | None = None

    @property
    def clock(self) -> Clock:
        return self._clock

    # --- rooms ---

    async def put_room(
        self, name: str, settings: RoomSettings, state: RoomState | None, now: int
    ) -> Room:
        held = self._rooms.get(name)
        if held is None:
            first = first_state(state, settings, now)
            held = _Held(Room(name=name, settings=settings, state=first), attended=now)
            self._rooms[name] = held
        held.room = replace(
            held.room, settings=settings, state=held.room.state if state is None else state
        )
        for ticket in held.waiting():
            if ticket.lane not in settings.lanes:
                held.tickets[ticket.user] = replace(ticket, lane="default")
        self._wake(name, now)
        return held.room

    async def rooms(self, names: Sequence[str]) -> list[Room | None]:
        return [None if (held := self._rooms.get(name)) is None else held.room for name in names]

    async def list_rooms(self, after: str, limit: int) -> list[str]:
        return sorted(name for name in self._rooms if name > after)[:limit]

    async def set_state(self, name: str, state: RoomState, now: int) -> Room | None:
        held = self._rooms.get(name)
        if held is None:
            return None
        held.room = replace(held.room, state=state)
        self._wake(name, now)
        return held.room

    async def reset(self, name: str, now: int) -> Room | None:
        held = self._rooms.get(name)
        if held is None:
            return None
        self._rooms[name] = fresh = _Held(
            replace(held.room, epoch=held.room.epoch + 1),
            number=held.number,
            credit=held.credit,
            credit_at=held.credit_at,
            attended=held.attended,
            floor=held.floor,
        )
        self._wake(name, now)
        return fresh.room

    # --- visitors ---

    async def join(self, name: str, joining: Sequence[Joining], now: int) -> JoinedAll | None:
        held = self._rooms.get(name)
        if held is None:
            return None
        answers = [self._join_one(held, one, now) for one in joining]
        if any(answer.answer is JoinAnswer.NEW for answer in answers):
            self._wake(name, now)
        placed = [
            replace(answer, ticket=self._placed(held, answer.ticket.user))
            if answer.ticket is not None
            else answer
            for answer in answers
        ]
        return JoinedAll(placed, self._outlook(held, now))

    def _join_one(self, held: _Held, joining: Joining, now: int) -> Joined:
        known = held.tickets.get(joining.user)
        if known is not None and known.state in LIVE:
            self._seen(held, known, now)
            return Joined(JoinAnswer.KNOWN, known)
        state = held.room.state_at(now)
        settings = held.room.settings
        if state is RoomState.CLOSED:
            return Joined(JoinAnswer.CLOSED)
        if joining.lane not in settings.lanes:
            return Joined(JoinAnswer.UNKNOWN_LANE)
        if state is RoomState.SCHEDULED and settings.lottery:
            number = lot(settings.seed, joining.user)
        else:
            number = held.number = held.number + 1
        ticket = Ticket(
            user=joining.user,
            state=TicketState.WAITING,
            lane=joining.lane,
            number=number,
            joined=now,
            seen=now,
            instance=joining.instance,
        )
        held.tickets[joining.user] = ticket
        held.forget.pop(joining.user, None)
        held.joined += 1
        return Joined(JoinAnswer.NEW, ticket)

    async def look(
        self, name: str, users: Sequence[str], now: int, *, alive: bool = False
    ) -> Looked | None:
        held = self._rooms.get(name)
        if held is None:
            return None
        for user in users if alive else ():
            if (ticket := held.tickets.get(user)) is not None:
                self._seen(held, ticket, now)
        return Looked([self._placed(held, user) for user in users], self._outlook(held, now))

    async def heartbeat(self, name: str, users: Sequence[str], now: int) -> Looked | None:
        held = self._rooms.get(name)
        if held is None:
            return None
        session = held.room.settings.session_ttl
        for user in users:
            ticket = held.tickets.get(user)
            if ticket is not None and ticket.state is TicketState.ENTERED:
                until = None if session is None else now + session
                held.tickets[user] = replace(ticket, until=until)
        return await self.look(name, users, now, alive=True)

    async def enter(
        self, name: str, passes: Sequence[tuple[str, str]], now: int
    ) -> list[Redeemed] | None:
        held = self._rooms.get(name)
        if held is None:
            return None
        return [self._enter_one(held, user, pass_id, now) for user, pass_id in passes]

    def _enter_one(self, held: _Held, user: str, pass_id: str, now: int) -> Redeemed:
        ticket = held.tickets.get(user)
        if ticket is None or not pass_id or ticket.pass_id != pass_id:
            return Redeemed(EnterAnswer.INVALID)
        if ticket.entered is not None:
            return Redeemed(EnterAnswer.USED, ticket)
        overdue = ticket.until is not None and ticket.until <= now
        if ticket.state is not TicketState.ADMITTED or overdue:
            return Redeemed(EnterAnswer.INVALID)
        session = held.room.settings.session_ttl
        until = None if session is None else now + session
        entered = self._become(held, ticket, TicketState.ENTERED, entered=now, until=until)
        return Redeemed(EnterAnswer.ENTERED, entered)

    async def leave(
        self, name: str, users: Sequence[str], now: int, state: TicketState = TicketState.LEFT
    ) -> list[Ticket | None] | None:
        held = self._rooms.get(name)
        if held is None:
            return None
        for user in users:
            ticket = held.tickets.get(user)
            if ticket is not None and ticket.state in LIVE:
                self._end(held, ticket, state, now)
                self._wake(name, now)
        return [held.tickets.get(user) for user in users]

    async def promote(self, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
        return [
            Promotion(room=name)
            if (held := self._rooms.get(name)) is None
            else self._promote_one(held, now, limit)
            for name in names
        ]

    def _promote_one(self, held: _Held, now: int, limit: int) -> Promotion:
        self._attend(held, now)
        expired = self._expire(held, now, limit)
        admitted = self._admit(held, now, limit)
        return Promotion(
            room=held.room.name,
            admitted=tuple(admitted),
            expired=sum(expired),
            more=limit in expired or len(admitted) == limit,
            look_at=self._look_at(held, now),
        )

    def _attend(self, held: _Held, now: int) -> None:
        for user in sorted(held.forget, key=lambda user: (held.forget[user], user)):
            if held.forget[user] <= now:
                del held.forget[user]
                del held.tickets[user]
        if now - held.attended > OUTAGE_MS:
            held.floor = now
        if now - held.attended >= ATTEND_MS:
            held.attended = now

    def _expire(self, held: _Held, now: int, limit: int) -> tuple[int, int]:
        over = sorted(
            (ticket.until, ticket.user)
            for ticket in held.holding()
            if ticket.until is not None and ticket.until <= now
        )[:limit]
        cutoff = silent_before(held.room.settings, held.floor, now)
        silent = sorted(
            (ticket.seen, ticket.user)
            for ticket in held.waiting()
            if ticket.seen is not None and cutoff is not None and ticket.seen <= cutoff
        )[:limit]
        for _, user in over + silent:
            self._end(held, held.tickets[user], TicketState.EXPIRED, now)
        return len(over), len(silent)

    def _admit(self, held: _Held, now: int, limit: int) -> list[Ticket]:
        settings = held.room.settings
        if held.room.state_at(now) is not RoomState.OPEN:
            return []
        rate = settings.admit_rate
        credit = 0 if rate is None else earn(rate, held.credit, held.credit_at, now)
        tokens = None if rate is None else credit // rate.per
        lanes = held.lanes()
        count = admissible(settings.capacity, held.in_use, sum(lanes.values()), tokens, limit)
        admitted = []
        for lane in held.shares.draw(settings.lanes, lanes, count):
            ticket = held.waiting(lane)[0]
            held.promoted += 1
            until = None if settings.claim_ttl is None else now + settings.claim_ttl
            pass_id = f"{held.room.epoch}-{held.promoted}"
            admitted.append(
                self._become(
                    held, ticket, TicketState.ADMITTED, promoted=now, until=until, pass_id=pass_id
                )
            )
            held.in_use += 1
        if admitted:
            held.flow.add(len(admitted), now)
            if rate is not None:
                held.credit, held.credit_at = credit - len(admitted) * rate.per, now
        return admitted

    def _look_at(self, held: _Held, now: int) -> int | None:
        settings = held.room.settings
        moments = [ticket.until for ticket in held.holding() if ticket.until is not None]
        seen = [ticket.seen for ticket in held.waiting() if ticket.seen is not None]
        if settings.wait_grace is not None and seen:
            moments.append(max(min(seen), held.floor) + settings.wait_grace)
        state = held.room.state_at(now)
        if state is RoomState.SCHEDULED and settings.opens_at is not None:
            moments.append(settings.opens_at)
        rate = settings.admit_rate
        room_left = held.in_use < settings.capacity and bool(held.waiting())
        if state is RoomState.OPEN and rate is not None and room_left:
            credit = earn(rate, held.credit, held.credit_at, now)
            moments.append(next_credit_at(rate, credit, now))
        return min(moments, default=None)

    # --- figures and wake-ups ---

    async def figures(self, name: str, now: int) -> RoomFigures | None:
        held = self._rooms.get(name)
        if held is None:
            return None
        inside = [ticket.state for ticket in held.holding()]
        return RoomFigures(
            state=held.room.state_at(now),
            epoch=held.room.epoch,
            capacity=held.room.settings.capacity,
            in_use=held.in_use,
            waiting=len(held.waiting()),
            admitted=inside.count(TicketState.ADMITTED),
            entered=inside.count(TicketState.ENTERED),
            left=held.ended.get(TicketState.LEFT, 0),
            expired=held.ended.get(TicketState.EXPIRED, 0),
            revoked=held.ended.get(TicketState.REVOKED, 0),
            joined=held.joined,
            promoted=held.promoted,
            a_minute=held.flow.a_minute(now),
        )

    async def take_due(self, now: int, limit: int) -> list[str]:
        due = sorted((at, name) for name, at in self._due.items() if at <= now)[:limit]
        for _, name in due:
            self._due[name] = now + LOOK_EVERY_MS
        return [name for _, name in due]

    async def discover(self, now: int) -> int:
        del now
        return 0  # nobody else can write here

    def listen_rooms(self, listener: RoomListener) -> None:
        self._listeners.append(listener)

    async def secret(self, proposed: bytes) -> bytes:
        if self._secret is None:
            self._secret = proposed
        return self._secret

    # --- one ticket ---

    def _become(self, held: _Held, ticket: Ticket, state: TicketState, **changes: object) -> Ticket:
        if state not in TRANSITIONS[ticket.state]:
            raise AssertionError(f"{ticket.state} may not become {state}")
        changed = replace(ticket, state=state, seen=None, **changes)
        held.tickets[ticket.user] = changed
        return changed

    def _end(self, held: _Held, ticket: Ticket, state: TicketState, now: int) -> None:
        if ticket.state in HOLDS_SLOT and frees_slot(held.in_use, len(held.holding())):
            held.in_use -= 1
        self._become(held, ticket, state, until=None)
        held.ended[state] = held.ended.get(state, 0) + 1
        held.forget[ticket.user] = now + KEEP_ENDED

    def _seen(self, held: _Held, ticket: Ticket, now: int) -> None:
        if ticket.state is TicketState.WAITING:
            held.tickets[ticket.user] = replace(ticket, seen=max(now, ticket.seen or now))

    def _placed(self, held: _Held, user: str) -> Ticket | None:
        ticket = held.tickets.get(user)
        if ticket is None or ticket.state is not TicketState.WAITING:
            return ticket
        return replace(ticket, ahead=held.waiting(ticket.lane).index(ticket))

    def _outlook(self, held: _Held, now: int) -> Outlook:
        return Outlook(
            room=held.room,
            state=held.room.state_at(now),
            in_use=held.in_use,
            waiting=held.lanes(),
            a_minute=held.flow.a_minute(now),
        )

    def _wake(self, name: str, now: int) -> None:
        self._due[name] = min(now, self._due.get(name, now))
        for listener in self._listeners:
            listener(name)
