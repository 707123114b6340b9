"""WAIT: a visitor's place: position, estimated wait, and when to ask again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from penstock.model.errors import UnknownThing
from penstock.model.room import RoomState
from penstock.model.room_admission import Eta, estimate, poll_after_ms
from penstock.model.ticket import Outlook, Ticket, TicketState
from penstock.ports.rooms import RoomStore, TokenSigner
from penstock.rooms.gather import Gather

TOKEN_TTL = 3_600_000
"""Lifetime of an entry token if the claim is unlimited."""


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A visitor's ticket as the visitor sees it."""

    ticket: Ticket
    outlook: Outlook
    ahead: int | None = None
    """Visitors ahead; None if not waiting, or before the lottery is drawn."""
    eta: Eta | None = None
    poll_after: int = 0
    """Milliseconds."""
    token: str | None = None
    secret: str = ""
    """The visitor's secret, which proves that a request is the visitor's own."""
    new: bool = False
    """True if this call created the ticket."""


class Wait:
    """Looks tickets up. A visitor's request counts as a sign of life."""

    def __init__(self, store: RoomStore, signer: TokenSigner) -> None:
        self._store = store
        self._signer = signer
        self._alive: Gather[str, Place | None] = Gather(self._look_together)

    async def look(self, room: str, user: str, *, alive: bool = True) -> Place:
        """The visitor's place; UnknownThing if there is no such room or ticket."""
        if alive:
            place = await self._alive.ask(room, user)
        else:
            looked = await self._store.look(room, [user], self._store.clock.now())
            if looked is None:
                raise unknown_room(room)
            place = self._place(room, looked.tickets[0], looked.outlook)
        return found(place, user)

    def submit(self, room: str, user: str, done: Callable[[Place | Exception], None]) -> None:
        """`look` with a callback: for callers with thousands of visitors."""

        def answer(place: Place | Exception | None) -> None:
            done(_unknown_user(user) if place is None else place)

        self._alive.submit(room, user, answer)

    async def heartbeat(self, room: str, user: str) -> Place:
        """Record a sign of life, for a session too."""
        looked = await self._store.heartbeat(room, [user], self._store.clock.now())
        if looked is None:
            raise unknown_room(room)
        return found(self._place(room, looked.tickets[0], looked.outlook), user)

    def is_visitor(self, secret: str, place: Place) -> bool:
        """Whether this is the secret of the ticket's visitor."""
        room = place.outlook.room
        ticket = place.ticket
        return self._signer.is_ticket_secret(
            secret, room.name, room.epoch, ticket.user, ticket.number
        )

    async def _look_together(self, room: str, users: Sequence[str]) -> list[Place | None]:
        looked = await self._store.look(room, users, self._store.clock.now(), alive=True)
        if looked is None:
            raise unknown_room(room)
        return [self._place(room, ticket, looked.outlook) for ticket in looked.tickets]

    def _place(self, room: str, ticket: Ticket | None, outlook: Outlook) -> Place | None:
        return None if ticket is None else place_of(room, ticket, outlook, self._signer)


def place_of(room: str, ticket: Ticket, outlook: Outlook, signer: TokenSigner) -> Place:
    settings = outlook.room.settings
    # Before the draw there is no order yet.
    drawn = not (settings.lottery and outlook.state is RoomState.SCHEDULED)
    ahead = ticket.ahead if drawn else None
    eta = None if ahead is None else estimate(ahead, ticket.lane, outlook)
    waiting = ticket.state is TicketState.WAITING
    token = sign(room, ticket, signer) if ticket.state is TicketState.ADMITTED else None
    epoch = outlook.room.epoch
    return Place(
        ticket=ticket,
        outlook=outlook,
        ahead=ahead,
        eta=eta,
        poll_after=poll_after_ms(
            (ahead or 0) if waiting else None, eta, settings.wait_grace, settings.capacity
        ),
        token=token,
        secret=signer.ticket_secret(room, epoch, ticket.user, ticket.number),
    )


def sign(room: str, ticket: Ticket, signer: TokenSigner) -> str:
    """The entry token of an admission: the same one on every request."""
    promoted = ticket.promoted or 0
    until = promoted + TOKEN_TTL if ticket.until is None else ticket.until
    return signer.sign(room, ticket.user, ticket.pass_id, promoted // 1000, -(-until // 1000))


def unknown_room(room: str) -> UnknownThing:
    return UnknownThing(f"no room named {room[:100]!r}", field="room")


def found(place: Place | None, user: str) -> Place:
    if place is None:
        raise _unknown_user(user)
    return place


def _unknown_user(user: str) -> UnknownThing:
    return UnknownThing(f"no ticket of {user[:100]!r} in this room", field="user")
