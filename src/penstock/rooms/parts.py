"""PARTS: everything one process does for visitors, together."""

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
    """Hands promotions on to programs that wait for them in the store."""

    async def run(self) -> None:
        """Until cancelled."""


@dataclass(frozen=True, slots=True)
class RoomParts:
    """The path of a visitor, and those who work on it."""

    store: RoomStore
    join: Join
    wait: Wait
    enter: Enter
    leave: Leave
    operate: Operate
    promoter: Promoter
    dispatcher: Dispatches | None = None
    """None: nobody else waits for promotions in this store."""
    away: Callable[[], bool] = field(default=lambda: False)
    """Whether the store's breaker is open."""
    calls: Callable[[], StoreCalls] = StoreCalls
    """What the calls of the store came to."""

    async def run(self) -> None:
        """Promote and dispatch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.promoter.run())
            if self.dispatcher is not None:
                group.create_task(self.dispatcher.run())

    def on_turn(self, listener: Callable[[str, Iterable[str]], None]) -> None:
        """Be told who is let in where: here, and elsewhere if the store can tell, maybe twice."""

        def promoted(promotion: Promotion) -> None:
            listener(promotion.room, (ticket.user for ticket in promotion.admitted))

        self.promoter.listeners.append(promoted)
        self.store.listen_turns(listener)
