"""Waiting rooms in dicts: slow and plain; every other store is compared with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from msgspec.structs import replace

from penstock.model import room_steps as steps
from penstock.model.room import DEFAULT_LANE, Room, RoomFigures, RoomSettings, RoomState
from penstock.model.room_admission import LOOK_EVERY_MS
from penstock.model.ticket import (
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
from penstock.stores.memory.room import MemoryRoom
from penstock.time.clock import Clock


class MemoryRooms:
    """A RoomStore for one process; its content ends with the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._rooms: dict[str, MemoryRoom] = {}
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
        own = self._rooms.get(name)
        record = None if own is None else own.record
        lost = steps.lost_lanes(record, settings)
        record = steps.configure(record, name, settings, state, now)
        if own is None:
            own = self._rooms[name] = MemoryRoom(record)
        own.record = record
        for ticket in own.waiting():
            if ticket.lane in lost:
                own.tickets[ticket.user] = replace(ticket, lane=DEFAULT_LANE)
        self._wake(name, now)
        return record.room

    async def rooms(self, names: Sequence[str]) -> list[Room | None]:
        return [
            None if (own := self._rooms.get(name)) is None else own.record.room for name in names
        ]

    async def list_rooms(self, after: str, limit: int) -> list[str]:
        return sorted(name for name in self._rooms if name > after)[:limit]

    async def set_state(self, name: str, state: RoomState, now: int) -> Room | None:
        own = self._rooms.get(name)
        if own is None:
            return None
        own.record = steps.set_state(own.record, state)
        self._wake(name, now)
        return own.record.room

    async def reset(self, name: str, now: int) -> Room | None:
        own = self._rooms.get(name)
        if own is None:
            return None
        fresh = self._rooms[name] = MemoryRoom(steps.reset(own.record))
        self._wake(name, now)
        return fresh.record.room

    # --- visitors ---

    async def join(self, name: str, joining: Sequence[Joining], now: int) -> JoinedAll | None:
        own = self._rooms.get(name)
        if own is None:
            return None
        answers = own.write(steps.join(own.record, own.tickets, own.lanes(), joining, now), now)
        if any(answer.answer is JoinAnswer.NEW for answer in answers):
            self._wake(name, now)
        placed = [
            replace(answer, ticket=own.placed(answer.ticket.user))
            if answer.ticket is not None
            else answer
            for answer in answers
        ]
        return JoinedAll(placed, steps.outlook(own.record, own.lanes(), now))

    async def look(
        self, name: str, users: Sequence[str], now: int, *, alive: bool = False
    ) -> Looked | None:
        return self._look(name, users, now, steps.see if alive else None)

    async def heartbeat(self, name: str, users: Sequence[str], now: int) -> Looked | None:
        own = self._rooms.get(name)
        sign = None if own is None else partial(steps.heartbeat, own.record)
        return self._look(name, users, now, sign)

    def _look(
        self,
        name: str,
        users: Sequence[str],
        now: int,
        sign: Callable[[Ticket, int], Ticket] | None,
    ) -> Looked | None:
        own = self._rooms.get(name)
        if own is None:
            return None
        for user in users:
            if sign is not None and (ticket := own.tickets.get(user)) is not None:
                own.tickets[user] = sign(ticket, now)
        outlook = steps.outlook(own.record, own.lanes(), now)
        return Looked([own.placed(user) for user in users], outlook)

    async def enter(
        self, name: str, passes: Sequence[tuple[str, str]], now: int
    ) -> list[Redeemed] | None:
        own = self._rooms.get(name)
        if own is None:
            return None
        return own.write(steps.enter(own.record, own.tickets, passes, now), now)

    async def leave(
        self, name: str, users: Sequence[str], now: int, state: TicketState = TicketState.LEFT
    ) -> list[Ticket | None] | None:
        own = self._rooms.get(name)
        if own is None:
            return None
        known = [own.tickets[user] for user in dict.fromkeys(users) if user in own.tickets]
        if own.write(steps.end(own.record, known, state), now):
            self._wake(name, now)
        return [own.tickets.get(user) for user in users]

    async def promote(self, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
        return [
            Promotion(room=name)
            if (own := self._rooms.get(name)) is None
            else own.promote(now, limit)
            for name in names
        ]

    # --- figures and wake-ups ---

    async def figures(self, names: Sequence[str], now: int) -> list[RoomFigures | None]:
        return [
            None
            if (own := self._rooms.get(name)) is None
            else steps.figures(own.record, len(own.waiting()), now)
            for name in names
        ]

    async def take_due(self, now: int, limit: int) -> list[str]:
        due = sorted((at, name) for name, at in self._due.items() if at <= now)[:limit]
        for _, name in due:
            self._due[name] = now + LOOK_EVERY_MS
        return [name for _, name in due]

    async def discover(self, now: int) -> int | None:
        """No other program can write here."""

    def listen_rooms(self, listener: RoomListener) -> None:
        self._listeners.append(listener)

    def listen_turns(self, listener: TurnListener) -> None:
        """Does nothing: there is no other process."""

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
