"""The store port's methods over the dicts in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.model.fleet import Heartbeat
from penstock.model.forecast import Forecast
from penstock.model.message import Event, Message, NewMessage
from penstock.model.outcome import Amended, Amendment, Claim, Reaped, Receipt, Settlement
from penstock.model.query import Cursor, Filter, Page, StoreFigures
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE
from penstock.model.state import State
from penstock.ports.fleet import DeadLetter
from penstock.ports.rooms import OpenRooms, StoreCalls
from penstock.ports.store import Store, WakeListener
from penstock.stores.memory.messages import MessageBook
from penstock.stores.memory.policies import MemoryPolicies
from penstock.stores.memory.recurring import MemoryRecurring
from penstock.stores.memory.rooms import MemoryRooms
from penstock.time.clock import Clock, SystemClock, reached

DAY_MS = 86_400_000


async def _turn() -> None:
    """Let other tasks run before a change is made, as every other store does."""
    await asyncio.sleep(0)


class MemoryStore:
    """Messages, policies, rooms, rules and heartbeats of one process, discarded on close."""

    name = "memory://"

    def __init__(
        self, clock: Clock, *, retention: int = DAY_MS, retention_count: int = 1_000_000
    ) -> None:
        self.clock = clock
        self.policies = MemoryPolicies()
        self.rooms = MemoryRooms(clock)
        self.recurring = MemoryRecurring()
        self._listeners: list[WakeListener] = []
        self._erasures: set[str] = set()
        self._heartbeats: dict[str, Heartbeat] = {}
        self.book = MessageBook(
            retention=retention, retention_count=retention_count, wake=self._wake
        )

    def as_store(self) -> Store:
        """The parts of this store."""
        return Store(
            messages=self,
            policies=self.policies,
            rooms=self,
            recurring=self.recurring,
            fleet=self,
            forecasting=self,
            dead=self,
            keyed=self,
            warnings=["everything in this store is lost when the process ends"],
        )

    async def put(self, messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        await _turn()
        return self.book.put(messages, now)

    async def claim(
        self, route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE
    ) -> Claim:
        await _turn()
        return self.book.claim(route, limit, lease, reached(now, self.clock), max_bytes)

    async def claim_keyed(
        self,
        route: str,
        limit: int,
        lease: int,
        now: int,
        per_key: KeyLimit,
        max_bytes: int = ANY_SIZE,
    ) -> Claim:
        await _turn()
        return self.book.claim_keyed(
            route, limit, lease, reached(now, self.clock), per_key, max_bytes
        )

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        await _turn()
        return self.book.settle(settlements, now)

    async def extend(self, tokens: Sequence[int], until: int) -> None:
        await _turn()
        self.book.extend(tokens, until)

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        await _turn()
        return self.book.reap(reached(now, self.clock), limit)

    async def amend(self, amendments: Sequence[Amendment], now: int) -> list[Amended]:
        await _turn()
        return self.book.amend(amendments, now)

    async def erasures(self, add: Sequence[str] = (), remove: Sequence[str] = ()) -> list[str]:
        await _turn()
        self._erasures = (self._erasures | set(add)) - set(remove)
        return sorted(self._erasures)

    async def find(self, ids: Sequence[str]) -> list[Message | None]:
        return [self.book.find(message_id) for message_id in ids]

    async def get(self, message_id: str) -> tuple[Message, list[Event]] | None:
        return self.book.get(message_id)

    async def search(self, where: Filter, after: Cursor | None, limit: int) -> Page:
        return self.book.search(where, after, limit)

    async def purge(self, now: int, limit: int) -> int:
        return self.book.purge(reached(now, self.clock), limit)

    async def figures(self, now: int) -> StoreFigures:
        return self.book.figures(now)

    async def forecast(self, now: int) -> Forecast:
        return self.book.forecast(now)

    async def dead_letters(self, route: str | None, limit: int) -> list[DeadLetter]:
        return self.book.dead_letters(route, limit)

    async def beat(self, heartbeat: Heartbeat) -> None:
        self._heartbeats[heartbeat.id] = heartbeat

    async def heartbeats(self) -> list[Heartbeat]:
        return list(self._heartbeats.values())

    async def forget_heartbeats(self, before: int) -> None:
        kept = self._heartbeats.values()
        self._heartbeats = {beat.id: beat for beat in kept if beat.seen >= before}

    async def pause(self, route: str, paused: bool) -> None:
        self.book.pause(route, paused)

    async def paused(self) -> frozenset[str]:
        return frozenset(self.book.paused)

    def listen(self, listener: WakeListener) -> None:
        self._listeners.append(listener)

    async def open_rooms(
        self, capacity: int, consumer: str, *, serves_all: bool = False, signs: str = ""
    ) -> OpenRooms:
        del capacity, consumer, serves_all, signs

        async def close() -> None:
            """Does nothing: the content ends with the store."""

        return OpenRooms(self.rooms, None, close, away=lambda: False, figures=StoreCalls)

    async def check(self) -> dict[str, str]:
        return {"store": self.name, "messages": str(len(self.book.records))}

    async def close(self) -> None:
        """Does nothing: the content ends with the last reference to the store."""
        if isinstance(self.clock, SystemClock):
            self.clock.close()

    def _wake(self, route: str, due: int) -> None:
        for listener in self._listeners:
            listener(route, due)
