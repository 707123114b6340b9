"""Waiting rooms over HTTP, for programs with an event loop."""

from __future__ import annotations

import builtins
from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol, TypeVar, Unpack

from penstock.sdk.calls import Call, call, page

if TYPE_CHECKING:  # a client that does not ask for rooms does not load them
    from penstock.model.room_view import EnteredOut, RoomOut, TicketOut
    from penstock.sdk.fields import RoomFields

T = TypeVar("T")


class AsyncSend(Protocol):
    """Sends a call and reads its answer."""

    def __call__(self, call: Call[T]) -> Awaitable[T]: ...


class AsyncRooms:
    """`client.rooms` of an AsyncClient. `ticket` is a visitor's own secret, in place of a token."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send

    async def put(self, room: str, **settings: Unpack[RoomFields]) -> RoomOut:
        """Create a room, or set all its settings anew; waiting visitors keep their places.

        A setting that is left out goes back to its default.
        """
        return await self._send(call("putRoom", room, content=settings))

    async def get(self, room: str) -> RoomOut:
        """The room and its figures; UnknownThing if there is none."""
        return await self._send(call("room", room))

    async def list(
        self, *, cursor: str | None = None, limit: int = 100
    ) -> tuple[builtins.list[RoomOut], str | None]:
        """A page by name, and the cursor of the next one (None: the last)."""
        return await self._send(page("rooms", cursor, limit))

    async def pause(self, room: str) -> RoomOut:
        """Stop admitting visitors; they may still join."""
        return await self._send(call("pauseRoom", room))

    async def resume(self, room: str) -> RoomOut:
        """Let people in: opens a paused, scheduled or closed room."""
        return await self._send(call("resumeRoom", room))

    async def close(self, room: str) -> RoomOut:
        """Let no more visitors join."""
        return await self._send(call("closeRoom", room))

    async def reset(self, room: str) -> RoomOut:
        """A new epoch: the room is empty, and every earlier token is void."""
        return await self._send(call("resetRoom", room))

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
        content = {"user": user, "lane": lane, "instance": instance}
        return await self._send(call("joinRoom", room, content=content, ticket=ticket))

    async def ticket(self, room: str, user: str, *, ticket: str | None = None) -> TicketOut:
        """The visitor's place; with `token` while ADMITTED. Asking is a sign of life."""
        return await self._send(call("ticket", room, user, ticket=ticket))

    async def heartbeat(self, room: str, user: str, *, ticket: str | None = None) -> TicketOut:
        """A sign of life: keeps the place, or the session.

        A session that has ended is no error: the answer says its state, and only ENTERED is inside.
        """
        return await self._send(call("heartbeat", room, content={"user": user}, ticket=ticket))

    async def enter(self, room: str, token: str) -> EnteredOut:
        """Redeem an entry token: TokenUsed the second time, InvalidToken when it is void."""
        return await self._send(call("enterRoom", room, content={"token": token}))

    async def leave(self, room: str, user: str, *, ticket: str | None = None) -> EnteredOut:
        """Give up the place or the slot; the next in line is let in at once."""
        return await self._send(call("leaveRoom", room, user, ticket=ticket))

    async def revoke(self, room: str, user: str) -> EnteredOut:
        """Remove a visitor from the line or the room."""
        return await self._send(call("revokeTicket", room, user))
