"""The ports of waiting rooms, each call by way of a Line."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.model.room import Room, RoomFigures, RoomSettings, RoomState
from penstock.model.ticket import (
    Dispatch,
    Entry,
    JoinedAll,
    Joining,
    Looked,
    Promotion,
    Redeemed,
    Ticket,
    TicketState,
)
from penstock.ports.rooms import RoomListener, RoomStore, TurnListener, WaitingVisitors
from penstock.time.clock import Clock
from tests.simulation.entries import EntryStream
from tests.simulation.link import Line

STEP = 0.25
"""Seconds between two looks of a read that waits in the server."""


def _nothing(_: object) -> None:
    """A read is not told to anybody."""


class LinkedRooms:
    """A RoomStore over the network."""

    def __init__(self, line: Line, backend: RoomStore) -> None:
        self._line = line.of("rooms")
        self._to = backend
        self._visits = line.books.visits

    @property
    def clock(self) -> Clock:
        return self._line.clock

    async def put_room(
        self, name: str, settings: RoomSettings, state: RoomState | None, now: int
    ) -> Room:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.put_room(name, settings, state, now),
            lambda got: self._visits.put_room(self._line.who, name, settings, state, now, got),
        )

    async def rooms(self, names: Sequence[str]) -> list[Room | None]:
        return await self._line.call(lambda: self._to.rooms(names), _nothing)

    async def list_rooms(self, after: str, limit: int) -> list[str]:
        return await self._line.call(lambda: self._to.list_rooms(after, limit), _nothing)

    async def set_state(self, name: str, state: RoomState, now: int) -> Room | None:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.set_state(name, state, now),
            lambda got: self._visits.set_state(self._line.who, name, state, now, got),
        )

    async def reset(self, name: str, now: int) -> Room | None:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.reset(name, now),
            lambda got: self._visits.reset(self._line.who, name, now, got),
        )

    async def join(self, name: str, joining: Sequence[Joining], now: int) -> JoinedAll | None:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.join(name, joining, now),
            lambda got: self._visits.join(self._line.who, name, joining, now, got),
        )

    async def look(
        self, name: str, users: Sequence[str], now: int, *, alive: bool = False
    ) -> Looked | None:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.look(name, users, now, alive=alive),
            lambda got: self._visits.look(name, users, now, got, alive=alive),
        )

    async def heartbeat(self, name: str, users: Sequence[str], now: int) -> Looked | None:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.heartbeat(name, users, now),
            lambda got: self._visits.heartbeat(name, users, now, got),
        )

    async def promote(self, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.promote(names, now, limit),
            lambda got: self._visits.promote(self._line.who, names, now, limit, got),
        )

    async def enter(
        self, name: str, passes: Sequence[tuple[str, str]], now: int
    ) -> list[Redeemed] | None:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.enter(name, passes, now),
            lambda got: self._visits.enter(self._line.who, name, passes, now, got),
        )

    async def leave(
        self, name: str, users: Sequence[str], now: int, state: TicketState = TicketState.LEFT
    ) -> list[Ticket | None] | None:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.leave(name, users, now, state),
            lambda got: self._visits.leave(self._line.who, name, users, now, state, got),
        )

    async def figures(self, names: Sequence[str], now: int) -> list[RoomFigures | None]:
        now = self._line.now(now)
        return await self._line.call(
            lambda: self._to.figures(names, now),
            lambda got: self._visits.figures(names, now, got),
        )

    async def take_due(self, now: int, limit: int) -> list[str]:
        now = self._line.now(now)
        return await self._line.call(lambda: self._to.take_due(now, limit), _nothing)

    async def discover(self, now: int) -> int | None:
        return await self._line.call(lambda: self._to.discover(now), _nothing)

    def listen_rooms(self, listener: RoomListener) -> None:
        self._to.listen_rooms(listener)

    def listen_turns(self, listener: TurnListener) -> None:
        self._to.listen_turns(listener)

    async def turns_elsewhere(self, waiting: WaitingVisitors) -> dict[str, list[str]]:
        return await self._line.call(lambda: self._to.turns_elsewhere(waiting), _nothing)

    async def secret(self, proposed: bytes) -> bytes:
        return await self._line.call(lambda: self._to.secret(proposed), _nothing)


class LinkedEntries:
    """An EntryQueue over the network: one consumer."""

    def __init__(self, line: Line, stream: EntryStream) -> None:
        self._line = line
        self._stream = stream

    async def take(self, limit: int, wait: int) -> list[Entry]:
        until = self._stream.clock.elapsed() + wait
        while not self._stream.fresh and self._stream.clock.elapsed() < until:  # noqa: ASYNC110 - no process must wake another
            await asyncio.sleep(STEP)
        return await self._line.call(lambda: self._stream.take(self._line.who, limit), _nothing)

    async def take_abandoned(self, idle: int, limit: int) -> list[Entry]:
        return await self._line.call(
            lambda: self._stream.take_abandoned(self._line.who, idle, limit), _nothing
        )

    async def dispatch(self, dispatches: Sequence[Dispatch]) -> int:
        return await self._line.call(
            lambda: self._stream.dispatch(self._line.who, dispatches), _nothing
        )

    async def trim(self) -> int:
        return 0

    async def depth(self) -> int:
        return len(self._stream.pending)

    async def close(self) -> None:
        """There is nothing to let go of."""
