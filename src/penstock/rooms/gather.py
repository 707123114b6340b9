"""GATHER: what many visitors ask of one room at the same moment becomes one call of the store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Generic

from penstock.flow.coalesce import Answer, Coalescer, Done, Item

MAX_TOGETHER = 200
"""Visitors of one call: a longer one would hold up the others."""


class Gather(Generic[Item, Answer]):
    """One call a room at a time; whoever asks meanwhile is part of the next."""

    def __init__(
        self,
        work: Callable[[str, Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
    ) -> None:
        self._work = work
        self._rooms: dict[str, Coalescer[Item, Answer]] = {}
        """Those that something is asked of just now."""

    async def ask(self, room: str, item: Item) -> Answer:
        return await self._of(room).ask(item)

    def submit(self, room: str, item: Item, done: Done[Answer]) -> None:
        """Call back with the answer, or with what went wrong."""
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
