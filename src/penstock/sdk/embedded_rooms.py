"""Waiting rooms inside a program."""

from __future__ import annotations

import asyncio
import builtins
from contextlib import AsyncExitStack
from typing import Unpack

from penstock.model.errors import UnknownThing
from penstock.model.room import DEFAULT_LANE, RoomState
from penstock.model.room_view import EnteredOut, RoomOut, TicketOut, room_out
from penstock.rooms.parts import RoomParts
from penstock.rooms.view import entered_out, ticket_out
from penstock.sdk.asked import page_size
from penstock.sdk.fields import RoomFields
from penstock.sdk.rules import room_draft
from penstock.wiring import Parts, open_rooms


class EmbeddedRooms:
    """`engine.rooms`: opened when they are first used. A worker lets people in."""

    def __init__(self, parts: Parts, closing: AsyncExitStack) -> None:
        self._parts = parts
        self._closing = closing
        self._opened: RoomParts | None = None
        self._opening = asyncio.Lock()

    async def open(self) -> RoomParts | None:
        """The parts behind the verbs; None: the store cannot keep rooms."""
        if self._opened is None:
            async with self._opening:  # once, however many ask first
                if self._opened is None:
                    self._opened = await self._closing.enter_async_context(open_rooms(self._parts))
        return self._opened

    async def put(self, room: str, **settings: Unpack[RoomFields]) -> RoomOut:
        """Create a room, or set all its settings anew; waiting visitors keep their places.

        A setting that is left out goes back to its default.
        """
        await (await self._rooms()).operate.put(room, room_draft(settings))
        return await self.get(room)

    async def get(self, room: str) -> RoomOut:
        """The room and its figures; UnknownThing if there is none."""
        return room_out(await (await self._rooms()).operate.get(room))

    async def list(
        self, *, cursor: str | None = None, limit: int = 100
    ) -> tuple[builtins.list[RoomOut], str | None]:
        """A page by name, and the cursor of the next one (None: the last)."""
        operate = (await self._rooms()).operate
        page, after = await operate.page(cursor or "", page_size(limit))
        return [room_out(figures) for figures in page], after

    async def pause(self, room: str) -> RoomOut:
        """Stop admitting visitors; they may still join."""
        return await self._set(room, RoomState.PAUSED)

    async def resume(self, room: str) -> RoomOut:
        """Let people in: opens a paused, scheduled or closed room."""
        return await self._set(room, RoomState.OPEN)

    async def close(self, room: str) -> RoomOut:
        """Let no more visitors join."""
        return await self._set(room, RoomState.CLOSED)

    async def reset(self, room: str) -> RoomOut:
        """A new epoch: the room is empty, and every earlier token is void."""
        await (await self._rooms()).operate.reset(room)
        return await self.get(room)

    async def join(
        self,
        room: str,
        user: str,
        *,
        lane: str | None = None,
        instance: str | None = None,
        ticket: str | None = None,
    ) -> TicketOut:
        """Join the line, once: a visitor with a live ticket keeps it. RoomClosed if closed."""
        del ticket  # the program that opened the store needs no token
        join = (await self._rooms()).join
        place = await join.join(room, user, lane=lane or DEFAULT_LANE, instance=instance)
        return ticket_out(place, secret=True)

    async def ticket(self, room: str, user: str, *, ticket: str | None = None) -> TicketOut:
        """The visitor's place; with `token` while ADMITTED. Asking is a sign of life."""
        del ticket
        return ticket_out(await (await self._rooms()).wait.look(room, user))

    async def heartbeat(self, room: str, user: str, *, ticket: str | None = None) -> TicketOut:
        """A sign of life: keeps the place, or the session.

        A session that has ended is no error: the answer says its state, and only ENTERED is inside.
        """
        del ticket
        return ticket_out(await (await self._rooms()).wait.heartbeat(room, user))

    async def enter(self, room: str, token: str) -> EnteredOut:
        """Redeem an entry token: TokenUsed the second time, InvalidToken when it is void."""
        return entered_out(await (await self._rooms()).enter.enter(room, token))

    async def leave(self, room: str, user: str, *, ticket: str | None = None) -> EnteredOut:
        """Give up the place or the slot; the next in line is let in at once."""
        del ticket
        return entered_out(await (await self._rooms()).leave.leave(room, user))

    async def revoke(self, room: str, user: str) -> EnteredOut:
        """Remove a visitor from the line or the room."""
        return entered_out(await (await self._rooms()).leave.revoke(room, user))

    async def _set(self, room: str, state: RoomState) -> RoomOut:
        await (await self._rooms()).operate.set_state(room, state)
        return await self.get(room)

    async def _rooms(self) -> RoomParts:
        opened = await self.open()
        if opened is None:
            raise UnknownThing(f"the store {self._parts.store.name} keeps no waiting rooms")
        return opened
