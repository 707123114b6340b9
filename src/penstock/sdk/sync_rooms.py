"""Waiting rooms over HTTP, for programs without an event loop."""
# Written by scripts/clients.py from async_rooms.py: change that one.

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Protocol, TypeVar, Unpack

from penstock.sdk.calls import Call, call, page

if TYPE_CHECKING:  # a client that does not ask for rooms does not load them
    from penstock.model.room_view import EnteredOut, RoomOut, TicketOut
    from penstock.sdk.fields import RoomFields

T = TypeVar("T")


class Send(Protocol):
    """Sends a call and reads its answer."""

    def __call__(self, call: Call[T]) -> T: ...


class SyncRooms:
    """`client.rooms` of a Client. `ticket` is a visitor's own secret, in place of a token."""

    def __init__(self, send: Send) -> None:
        self._send = send

    def put(self, room: str, **settings: Unpack[RoomFields]) -> RoomOut:
        """Create a room, or set all its settings anew; waiting visitors keep their places.

        A setting that is left out goes back to its default.
        """
        return self._send(call("putRoom", room, content=settings))

    def get(self, room: str) -> RoomOut:
        """The room and its figures; UnknownThing if there is none."""
        return self._send(call("room", room))

    def list(
        self, *, cursor: str | None = None, limit: int = 100
    ) -> tuple[builtins.list[RoomOut], str | None]:
        """A page by name, and the cursor of the next one (None: the last)."""
        return self._send(page("rooms", cursor, limit))

    def pause(self, room: str) -> RoomOut:
        """Stop admitting visitors; they may still join."""
        return self._send(call("pauseRoom", room))

    def resume(self, room: str) -> RoomOut:
        """Let people in: opens a paused, scheduled or closed room."""
        return self._send(call("resumeRoom", room))

    def close(self, room: str) -> RoomOut:
        """Let no more visitors join."""
        return self._send(call("closeRoom", room))

    def reset(self, room: str) -> RoomOut:
        """A new epoch: the room is empty, and every earlier token is void."""
        return self._send(call("resetRoom", room))

    def join(
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
        return self._send(call("joinRoom", room, content=content, ticket=ticket))

    def ticket(self, room: str, user: str, *, ticket: str | None = None) -> TicketOut:
        """The visitor's place; with `token` while ADMITTED. Asking is a sign of life."""
        return self._send(call("ticket", room, user, ticket=ticket))

    def heartbeat(self, room: str, user: str, *, ticket: str | None = None) -> TicketOut:
        """A sign of life: keeps the place, or the session.

        A session that has ended is no error: the answer says its state, and only ENTERED is inside.
        """
        return self._send(call("heartbeat", room, content={"user": user}, ticket=ticket))

    def enter(self, room: str, token: str) -> EnteredOut:
        """Redeem an entry token: TokenUsed the second time, InvalidToken when it is void."""
        return self._send(call("enterRoom", room, content={"token": token}))

    def leave(self, room: str, user: str, *, ticket: str | None = None) -> EnteredOut:
        """Give up the place or the slot; the next in line is let in at once."""
        return self._send(call("leaveRoom", room, user, ticket=ticket))

    def revoke(self, room: str, user: str) -> EnteredOut:
        """Remove a visitor from the line or the room."""
        return self._send(call("revokeTicket", room, user))
