"""OPERATE: create rooms; open, pause, close and reset them; read their figures."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from penstock.model.errors import InvalidMessage
from penstock.model.room import (
    DEFAULT_CAPACITY,
    Room,
    RoomDraft,
    RoomFigures,
    RoomState,
    check_room,
    is_room_name,
)
from penstock.ports.rooms import RoomStore
from penstock.rooms.wait import unknown_room
from penstock.time.chance import secret_word


class Operate:
    def __init__(
        self,
        store: RoomStore,
        capacity: int = DEFAULT_CAPACITY,
        make_seed: Callable[[], str] = secret_word,
    ) -> None:
        self._store = store
        self._capacity = capacity
        self._make_seed = make_seed

    async def put(self, name: str, draft: RoomDraft) -> Room:
        """Create the room or change it; waiting visitors keep their tickets."""
        if not is_room_name(name):
            raise InvalidMessage("room", "must be 1-200 characters without blanks, / ? # % { }")
        settings = check_room(draft, self._capacity)
        if settings.lottery and not settings.seed:
            (before,) = await self._store.rooms([name])
            seed = before.settings.seed if before is not None else ""
            settings = replace(settings, seed=seed or self._make_seed())
        return await self._store.put_room(name, settings, draft.state, self._store.clock.now())

    async def get(self, name: str) -> RoomFigures:
        (figures,) = await self._store.figures([name], self._store.clock.now())
        if figures is None:
            raise unknown_room(name)
        return figures

    async def page(self, after: str = "", limit: int = 100) -> tuple[list[RoomFigures], str | None]:
        """Rooms by name, and the cursor of the next page (None after the last)."""
        names = await self._store.list_rooms(after, limit + 1)
        found = await self._store.figures(names[:limit], self._store.clock.now())
        return [figures for figures in found if figures is not None], (
            names[limit - 1] if len(names) > limit else None
        )

    async def set_state(self, name: str, state: RoomState) -> Room:
        room = await self._store.set_state(name, state, self._store.clock.now())
        if room is None:
            raise unknown_room(name)
        return room

    async def reset(self, name: str) -> Room:
        """A new epoch: the room is empty, and every earlier token is void."""
        room = await self._store.reset(name, self._store.clock.now())
        if room is None:
            raise unknown_room(name)
        return room
