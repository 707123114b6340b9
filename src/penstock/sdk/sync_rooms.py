"""Waiting rooms over HTTP."""

from __future__ import annotations

import builtins
from typing import Protocol, TypeVar, Unpack

from penstock.model.room_view import EnteredOut, RoomOut, TicketOut
from penstock.sdk import room_calls as calls
from penstock.sdk.asked import page_size, room_draft
from penstock.sdk.calls import Call
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
        """Make a room, or change it; whoever waits keeps the place."""
        return self._send(calls.put(room, room_draft(settings)))

    def get(self, room: str) -> RoomOut:
        """The room and how it stands; UnknownThing if there is none."""
        return self._send(calls.get(room))

    def list(
        self, *, cursor: str | None = None, limit: int = 100
    ) -> tuple[builtins.list[RoomOut], str | None]:
        """A page by name, and the cursor of the next one (None: the last)."""
        return self._send(calls.list_page(cursor, page_size(limit)))

    def pause(self, room: str) -> RoomOut:
        """Let nobody in; people may go on lining up."""
        return self._send(calls.change(room, "pause"))

    def resume(self, room: str) -> RoomOut:
        """Let people in: opens a paused, scheduled or closed room."""
        return self._send(calls.change(room, "resume"))

    def close(self, room: str) -> RoomOut:
        """Let nobody line up any more."""
        return self._send(calls.change(room, "close"))

    def reset(self, room: str) -> RoomOut:
        """A new epoch: the room is empty, and every earlier token is void."""
        return self._send(calls.change(room, "reset"))

    def join(
        self,
        room: str,
        user: str,
        *,
        lane: str | None = None,
        instance: str | None = None,
        ticket: str | None = None,
    ) -> TicketOut:
        """Line up, once: whoever has a live ticket keeps it. RoomClosed when nobody may."""
        return self._send(calls.join(room, user, lane, instance, ticket))

    def ticket(self, room: str, user: str, *, ticket: str | None = None) -> TicketOut:
        """The visitor's place; with `token` while ADMITTED. Asking is a sign of life."""
        return self._send(calls.look(room, user, ticket))

    def heartbeat(self, room: str, user: str, *, ticket: str | None = None) -> TicketOut:
        """A sign of life: keeps the place, or the session."""
        return self._send(calls.heartbeat(room, user, ticket))

    def enter(self, room: str, token: str) -> EnteredOut:
        """Redeem an entry token: TokenUsed the second time, InvalidToken when it is void."""
        return self._send(calls.enter(room, token))

    def leave(self, room: str, user: str, *, ticket: str | None = None) -> EnteredOut:
        """Give up the place or the slot; the next in line is let in at once."""
        return self._send(calls.leave(room, user, ticket))

    def revoke(self, room: str, user: str) -> EnteredOut:
        """Put somebody out, of the line or of the room."""
        return self._send(calls.revoke(room, user))
