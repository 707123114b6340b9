"""The seam to a store of waiting rooms.

Rules as for messages: batch first; `now` is epoch milliseconds of the store's own clock and is
given, not read; expected outcomes are values; a store that is unavailable raises StoreUnavailable,
and then nothing of the call took effect, or it is safe to repeat. A room that was never PUT may
exist all the same, when another program writes its keys: it has the default settings.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

import msgspec

from penstock.model.durations import Durations
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
from penstock.time.clock import Clock

RoomListener: TypeAlias = Callable[[str], None]
"""Called with a room in which a slot may be free or a visitor may be waiting."""

TurnListener: TypeAlias = Callable[[str, Sequence[str]], None]
"""Called with a room and users who were let in there, perhaps by another process."""


WaitingVisitors: TypeAlias = Callable[[], Mapping[str, Sequence[str]]]
"""Room → users who wait for news of their turn in this process."""


class RoomStore(Protocol):
    """Keeps rooms and their visitors; every step is atomic for its room."""

    @property
    def clock(self) -> Clock:
        """The authority on time for everything in this store."""
        ...

    async def put_room(
        self, name: str, settings: RoomSettings, state: RoomState | None, now: int
    ) -> Room:
        """Make the room or change its settings; visitors, counts and epoch stay as they are.

        `state` None leaves an existing room in its state. People waiting in a lane that is no
        longer there go to the default lane, in their order.
        """
        ...

    async def rooms(self, names: Sequence[str]) -> list[Room | None]: ...

    async def list_rooms(self, after: str, limit: int) -> list[str]:
        """Names in order, after that one."""
        ...

    async def set_state(self, name: str, state: RoomState, now: int) -> Room | None:
        """Open, pause or close the room; None if there is no such room."""
        ...

    async def reset(self, name: str, now: int) -> Room | None:
        """Begin a new epoch: the line and the room are empty, every earlier token is void."""
        ...

    async def join(self, name: str, joining: Sequence[Joining], now: int) -> JoinedAll | None:
        """Put each visitor at the end of the lane, once: a visitor with a live ticket keeps it.

        Counts as a sign of life. None if there is no such room.
        """
        ...

    async def look(
        self, name: str, users: Sequence[str], now: int, *, alive: bool = False
    ) -> Looked | None:
        """Tickets with their position. `alive`: the visitors themselves asked, which is a sign
        of life.
        """
        ...

    async def heartbeat(self, name: str, users: Sequence[str], now: int) -> Looked | None:
        """A sign of life: a waiter keeps the place, a session lasts session_ttl from now."""
        ...

    async def promote(self, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
        """Promote in each room, in order, one atomic step per room.

        End expired sessions → drop waiters not seen for wait_grace → admit as many as slots and
        rate allow, at most `limit`, in order. Reads only as many members as there are slots.
        """
        ...

    async def enter(
        self, name: str, passes: Sequence[tuple[str, str]], now: int
    ) -> list[Redeemed] | None:
        """Redeem admissions, given as (user, pass id): each at most once, while it holds a slot."""
        ...

    async def leave(
        self, name: str, users: Sequence[str], now: int, state: TicketState = TicketState.LEFT
    ) -> list[Ticket | None] | None:
        """End live tickets as LEFT or REVOKED; each that had a slot gives exactly one back."""
        ...

    async def figures(self, names: Sequence[str], now: int) -> list[RoomFigures | None]:
        """The figures of each room; None where there is no such room."""
        ...

    async def take_due(self, now: int, limit: int) -> list[str]:
        """Rooms to promote in now: each is returned again within a second, to one process of
        all.
        """
        ...

    async def discover(self, now: int) -> int | None:
        """Find rooms another program has made, at most about once a second in the whole fleet.

        How many are known now that were not; None: no other program makes rooms in this store, and
        there never is anything to find.
        """
        ...

    def listen_rooms(self, listener: RoomListener) -> None: ...

    def listen_turns(self, listener: TurnListener) -> None:
        """Register a callback for visitors admitted by other processes, where the store announces
        them; elsewhere callers must poll.
        """
        ...

    async def turns_elsewhere(self, waiting: WaitingVisitors) -> dict[str, list[str]]:
        """Of the visitors waiting for news, by room, those whom another process took out of the
        line since the previous call. Empty, without calling `waiting`, where `listen_turns` reports
        them.
        """
        ...

    async def secret(self, proposed: bytes) -> bytes:
        """The stored key for tokens; a new store keeps the first one proposed."""
        ...


class EntryQueue(Protocol):
    """Promotions on their way out, on stores where other programs wait for them (Redis)."""

    async def take(self, limit: int, wait: int) -> list[Entry]:
        """Take entries that no consumer has taken yet; wait up to `wait` ms for the first."""
        ...

    async def take_abandoned(self, idle: int, limit: int) -> list[Entry]:
        """Take entries that another consumer took and has not finished for `idle` ms."""
        ...

    async def dispatch(self, dispatches: Sequence[Dispatch]) -> int:
        """Pass on and acknowledge in one step; a finished entry is not repeated."""
        ...

    async def trim(self) -> int:
        """Forget old entries: none that anybody still has to finish, and 100,000 always stay."""
        ...

    async def depth(self) -> int:
        """Entries given out and not finished."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class OpenRooms:
    """The rooms of an open store, to be closed before it."""

    store: RoomStore
    entries: EntryQueue | None
    """The queue through which other programs wait for promotions; None: this store has none."""
    close: Callable[[], Awaitable[None]]
    away: Callable[[], bool]
    """True while the breaker towards the store is open."""
    figures: Callable[[], StoreCalls]


class StoreCalls(msgspec.Struct, frozen=True):
    """Counters of the calls of a store."""

    errors: int = 0
    scripts: Durations = msgspec.field(default_factory=Durations)
    seconds: float = 0.0
    """Now, by the clock of `scripts`."""


class RoomHost(Protocol):
    """A store that can keep rooms beside its messages."""

    async def open_rooms(
        self, capacity: int, consumer: str, *, serves_all: bool = False, signs: str = ""
    ) -> OpenRooms:
        """`capacity` is for rooms that were never PUT; `consumer` names this process.

        Promotions of rooms that only other programs have made are left to processes that open the
        rooms with `serves_all`. `signs` is the id of a signing key from the settings: once a
        process that serves all has one, entry tokens of the store are left to such processes.
        """
        ...


class TokenSigner(Protocol):
    """Makes and reads entry tokens; knows keys, nothing of rooms' state."""

    def sign(self, room: str, user: str, pass_id: str, issued: int, expires: int) -> str:
        """`issued` and `expires` are epoch seconds."""
        ...

    def read(self, token: str, room: str, now: int) -> tuple[str, str] | None:
        """(user, pass id) of an entry token; None if it is not ours, of another room or out of
        its time.
        """
        ...

    def ticket_secret(self, room: str, epoch: int, user: str, number: int) -> str:
        """The secret that proves a visitor owns this ticket."""
        ...

    def is_ticket_secret(self, text: str, room: str, epoch: int, user: str, number: int) -> bool:
        """Also with an earlier key; compared in constant time."""
        ...
