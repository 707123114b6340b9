"""Waiting rooms in dicts: slow and plain; every other store is compared with them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from penstock.model.admission import LOOK_EVERY_MS
from penstock.model.room import Room, RoomFigures, RoomSettings, RoomState, first_state
from penstock.model.ticket import (
    LIVE,
    JoinAnswer,
    JoinedAll,
    Joining,
    Looked,
    Promotion,
    Redeemed,
    Ticket,
    TicketState,
)
from penstock.ports.rooms import RoomListener, TurnListener, WaitingVisitors
from penstock.stores.memory.room import HeldRoom
from penstock.time.clock import Clock


class MemoryRooms:
    """A RoomStore for one process that forgets everything when it ends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rooms: dict[str, HeldRoom] = {}
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
            held = HeldRoom(Room(name=name, settings=settings, state=first), attended=now)
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
        self._rooms[name] = fresh = HeldRoom(
            replace(held.room, epoch=held.room.epoch + 1),
            number=held.number,
            credit=held.credit,
            credit_at=held.credit_at,
            attended=held.attended,
            floor=held.floor,
            before=held.past(),
        )
        self._wake(name, now)
        return fresh.room

    # --- visitors ---

    async def join(self, name: str, joining: Sequence[Joining], now: int) -> JoinedAll | None:
        held = self._rooms.get(name)
        if held is None:
            return None
        answers = [held.join(one, now) for one in joining]
        if any(answer.answer is JoinAnswer.NEW for answer in answers):
            self._wake(name, now)
        placed = [
            replace(answer, ticket=held.placed(answer.ticket.user))
            if answer.ticket is not None
            else answer
            for answer in answers
        ]
        return JoinedAll(placed, held.outlook(now))

    async def look(
        self, name: str, users: Sequence[str], now: int, *, alive: bool = False
    ) -> Looked | None:
        held = self._rooms.get(name)
        if held is None:
            return None
        for user in users if alive else ():
            if (ticket := held.tickets.get(user)) is not None:
                held.see(ticket, now)
        return Looked([held.placed(user) for user in users], held.outlook(now))

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
        return [held.enter(user, pass_id, now) for user, pass_id in passes]

    async def leave(
        self, name: str, users: Sequence[str], now: int, state: TicketState = TicketState.LEFT
    ) -> list[Ticket | None] | None:
        held = self._rooms.get(name)
        if held is None:
            return None
        for user in users:
            ticket = held.tickets.get(user)
            if ticket is not None and ticket.state in LIVE:
                held.end(ticket, state, now)
                self._wake(name, now)
        return [held.tickets.get(user) for user in users]

    async def promote(self, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
        return [
            Promotion(room=name)
            if (held := self._rooms.get(name)) is None
            else held.promote(now, limit)
            for name in names
        ]

    # --- figures and wake-ups ---

    async def figures(self, names: Sequence[str], now: int) -> list[RoomFigures | None]:
        held = [self._rooms.get(name) for name in names]
        return [None if room is None else room.figures(now) for room in held]

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

    def listen_turns(self, listener: TurnListener) -> None:
        """There is no other process."""

    async def turns_elsewhere(self, waiting: WaitingVisitors) -> dict[str, list[str]]:
        del waiting
        return {}

    async def secret(self, proposed: bytes) -> bytes:
        if self._secret is None:
            self._secret = proposed
        return self._secret

    # --- one ticket ---

    def _wake(self, name: str, now: int) -> None:
        self._due[name] = min(now, self._due.get(name, now))
        for listener in self._listeners:
            listener(name)
