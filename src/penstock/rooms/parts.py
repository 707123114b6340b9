"""PARTS: everything one process does for visitors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from penstock.model.ticket import Promotion
from penstock.ports.rooms import RoomStore, StoreCalls
from penstock.rooms.enter import Enter
from penstock.rooms.join import Join
from penstock.rooms.leave import Leave
from penstock.rooms.operate import Operate
from penstock.rooms.promote import Promoter
from penstock.rooms.wait import Wait


class Dispatches(Protocol):
    """Passes admissions on to programs that wait for them in the store."""

    async def run(self) -> None:
        """Run until cancelled."""


@dataclass(frozen=True, slots=True)
class RoomParts:
    """The steps of a visitor's path, and the tasks that promote and dispatch."""

    store: RoomStore
    join: Join
    wait: Wait
    enter: Enter
    leave: Leave
    operate: Operate
    promoter: Promoter
    dispatcher: Dispatches | None = None
    """None if no other program waits for admissions in this store."""
    away: Callable[[], bool] = field(default=lambda: False)
    """Whether the store's breaker is open."""
    calls: Callable[[], StoreCalls] = StoreCalls
    """The figures of the store's calls."""

    async def run(self) -> None:
        """Promote and dispatch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.promoter.run())
            if self.dispatcher is not None:
                group.create_task(self.dispatcher.run())

    def on_turn(self, listener: Callable[[str, Iterable[str]], None]) -> None:
        """Call `listener` with each room and the visitors admitted: by this process, and by others
        if the store can notify, possibly twice."""

        def promoted(promotion: Promotion) -> None:
            listener(promotion.room, (ticket.user for ticket in promotion.admitted))

        self.promoter.listeners.append(promoted)
        self.store.listen_turns(listener)
