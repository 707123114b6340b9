"""JOIN: line up, once; a visitor who joins again keeps the ticket."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from penstock.flow.observe import Observer
from penstock.model.errors import InvalidMessage, PenstockError, RoomClosed, TicketTaken
from penstock.model.room import DEFAULT_LANE
from penstock.model.ticket import JoinAnswer, Joined, Joining, Outlook, check_user
from penstock.ports.rooms import RoomStore, TokenSigner
from penstock.rooms.gather import Gather
from penstock.rooms.wait import Place, place_of, unknown_room


def ticket_taken() -> TicketTaken:
    """The answer to a visitor who joins under a name whose ticket they did not show."""
    return TicketTaken(
        "this name is taken: send the ticket that its join returned (x-ticket: …), or join under"
        " another name",
        field="user",
    )


class Join:
    def __init__(
        self, store: RoomStore, signer: TokenSigner, observer: Observer, instance: str
    ) -> None:
        self._store = store
        self._signer = signer
        self._observer = observer
        self._instance = instance
        self._together: Gather[Joining, Place] = Gather(self._join_together)

    async def join(
        self, room: str, user: str, *, lane: str = DEFAULT_LANE, instance: str | None = None
    ) -> Place:
        """The visitor's place.

        Raises RoomClosed, UnknownThing, or InvalidMessage naming the field.
        """
        return await self._together.ask(room, self.joining(user, lane, instance))

    def joining(self, user: str, lane: str, instance: str | None) -> Joining:
        """The validated request, or InvalidMessage."""
        return Joining(check_user(user), lane, self._instance if instance is None else instance)

    def submit(
        self, room: str, joining: Joining, done: Callable[[Place | Exception], None]
    ) -> None:
        """`join` with a callback: for callers with thousands of visitors."""
        self._together.submit(room, joining, done)

    async def _join_together(
        self, room: str, joining: Sequence[Joining]
    ) -> list[Place | PenstockError]:
        joined = await self._store.join(room, joining, self._store.clock.now())
        if joined is None:
            return [unknown_room(room) for _ in joining]
        new = sum(answer.answer is JoinAnswer.NEW for answer in joined.answers)
        self._observer.visited("joined", new)
        return [self._outcome(room, answer, joined.outlook) for answer in joined.answers]

    def _outcome(self, room: str, joined: Joined, outlook: Outlook) -> Place | PenstockError:
        if joined.ticket is not None:
            place = place_of(room, joined.ticket, outlook, self._signer)
            return replace(place, new=joined.answer is JoinAnswer.NEW)
        if joined.answer is JoinAnswer.UNKNOWN_LANE:
            known = ", ".join(outlook.room.settings.lanes)
            return InvalidMessage("lane", f"no such lane; this room has: {known}")
        return RoomClosed(f"room {room!r} is closed")
