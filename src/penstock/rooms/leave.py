"""LEAVE: give up the place or the slot; the next visitor is admitted at once."""

from __future__ import annotations

from penstock.flow.observe import Observer
from penstock.model.errors import UnknownThing
from penstock.model.ticket import Ticket, TicketState
from penstock.ports.rooms import RoomStore
from penstock.rooms.wait import unknown_room


class Leave:
    def __init__(self, store: RoomStore, observer: Observer) -> None:
        self._store = store
        self._observer = observer

    async def leave(self, room: str, user: str) -> Ticket:
        """End the visitor's ticket; a repeat gets the same answer."""
        return await self._end(room, user, TicketState.LEFT)

    async def revoke(self, room: str, user: str) -> Ticket:
        """End a visitor's ticket on behalf of an operator."""
        return await self._end(room, user, TicketState.REVOKED)

    async def _end(self, room: str, user: str, state: TicketState) -> Ticket:
        tickets = await self._store.leave(room, [user], self._store.clock.now(), state)
        if tickets is None:
            raise unknown_room(room)
        ticket = tickets[0]
        if ticket is None:
            raise UnknownThing(f"no ticket of {user[:100]!r} in this room", field="user")
        self._observer.visited(state.value.lower())
        return ticket
