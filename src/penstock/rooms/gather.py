"""GATHER: simultaneous requests of many visitors to one room become one store call."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic

from penstock.flow.coalesce import Answer, Coalescer, Done, Item

MAX_TOGETHER = 200
"""Most visitors per call: a longer call would delay the next ones."""


class Gather(Generic[Item, Answer]):
    """One call per room at a time; requests that arrive meanwhile join the next call."""

    def __init__(
        self,
        work: Callable[[str, Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
    ) -> None:
        self._work = work
        self._rooms: dict[str, Coalescer[Item, Answer]] = {}
        """Rooms with requests under way."""

    async def ask(self, room: str, item: Item) -> Answer:
        return await self._of(room).ask(item)

    def submit(self, room: str, item: Item, done: Done[Answer]) -> None:
        """Call back with the answer or the error."""
        self._of(room).submit(item, done)

    def _of(self, room: str) -> Coalescer[Item, Answer]:
        found = self._rooms.get(room)
        if found is None:
            found = self._rooms[room] = Coalescer(
                partial(self._work, room),
                max_items=MAX_TOGETHER,
                when_idle=partial(self._rooms.pop, room, None),
            )
        return found
