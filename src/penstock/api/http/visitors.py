"""Visitors who wait on a stream, rooms they may join, and how fast one address may join them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from penstock.model.errors import Overloaded, PenstockError
from penstock.ports.rooms import RoomStore

log = logging.getLogger("penstock.http")

MAX_STREAMS = 5_000
TURNS_SECONDS = 0.15
"""How often a store that does not tell is asked whom another process has let in."""
MAX_ADDRESSES = 100_000
"""Addresses remembered; when there are more, all start anew."""
BURST_SECONDS = 3
PUBLIC_SECONDS = 1.0
"""How long a room that was found public counts as that without being asked again."""
MAX_PUBLIC = 10_000


class Visitors:
    """Streams by visitor, rung when the visitor is let in."""

    def __init__(
        self, monotonic: Callable[[], float] = time.monotonic, most: int = MAX_STREAMS
    ) -> None:
        self._most = most
        self._waiting: dict[tuple[str, str], set[asyncio.Event]] = {}
        self._open = 0
        self._somebody = asyncio.Event()
        """Set while streams are open."""
        self._monotonic = monotonic
        self._joins: dict[str, tuple[float, float]] = {}
        """Address → (joins left, as of)."""
        self._public: dict[str, float] = {}
        """Room → until when it counts as public."""

    def check_streams(self) -> None:
        """Overloaded while as many streams are open as may be: such a visitor asks instead."""
        if self._open >= self._most:
            raise Overloaded(f"{self._most:,} visitors have streams open already", retry_after=5)

    @contextmanager
    def watch(self, room: str, user: str) -> Iterator[asyncio.Event]:
        """An event that is set when this visitor is let in."""
        rung = asyncio.Event()
        key = room, user
        self._waiting.setdefault(key, set()).add(rung)
        self._open += 1
        self._somebody.set()
        try:
            yield rung
        finally:
            self._open -= 1
            if not self._open:
                self._somebody.clear()
            self._waiting[key].discard(rung)
            if not self._waiting[key]:
                del self._waiting[key]

    def by_room(self) -> dict[str, list[str]]:
        """Who waits on a stream."""
        found: dict[str, list[str]] = {}
        for room, user in self._waiting:
            found.setdefault(room, []).append(user)
        return found

    async def watch_turns(self, store: RoomStore) -> None:
        """For ever, while anybody has a stream open: ring whom another process has let in."""
        while True:
            await self._somebody.wait()
            await asyncio.sleep(TURNS_SECONDS)
            try:
                turned = await store.turns_elsewhere(self.by_room)
            except PenstockError as exc:
                log.debug("streams look again by themselves: %s", exc)
                continue
            for room, users in turned.items():
                self.let_in(room, users)

    def let_in(self, room: str, users: Iterable[str]) -> None:
        """Ring whoever of these waits here; being told twice is harmless."""
        if self._waiting:
            for user in users:
                for rung in self._waiting.get((room, user), ()):
                    rung.set()

    def found_public(self, room: str) -> None:
        if len(self._public) >= MAX_PUBLIC:
            self._public.clear()
        self._public[room] = self._monotonic() + PUBLIC_SECONDS

    def is_public(self, room: str) -> bool:
        """Whether it was found public just now; False: one has to ask the store."""
        return self._public.get(room, 0.0) > self._monotonic()

    def check_join(self, address: str, a_second: int) -> None:
        """Overloaded when this address joins too fast."""
        now = self._monotonic()
        full = float(a_second * BURST_SECONDS)
        left, since = self._joins.get(address, (full, now))
        left = min(full, left + (now - since) * a_second)
        if left < 1:
            raise Overloaded("too many joins from this address", retry_after=1)
        if len(self._joins) >= MAX_ADDRESSES:
            self._joins.clear()
        self._joins[address] = left - 1, now
