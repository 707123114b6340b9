"""Visitors who wait on a stream, rooms they may join, and how fast one address may join them."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from penstock.model.errors import Overloaded, PenstockError
from penstock.ports.rooms import RoomStore

log = logging.getLogger("penstock.http")

MAX_STREAMS = 5_000
TURNS_SECONDS = 0.15
"""Interval of polling a store that does not announce admissions by other processes."""
TICKET_STREAMS = 3
"""Streams one ticket may have open: a few tabs."""
CLIENT_STREAMS = 100
"""Streams one address may have open for visitors without a token."""
MAX_CLIENTS = 100_000
"""Clients whose budgets are remembered; beyond it the least recently seen are forgotten."""
BURST_SECONDS = 3
MISSES = 10
"""Looks a second at tickets that are not theirs, from one client."""
LOOKS = 10
"""Looks a second at one ticket by its visitor."""
PUBLIC_SECONDS = 1.0
"""How long a room that was found public counts as public without another read."""
MAX_PUBLIC = 10_000


class Budgets:
    """A rate per second for each client, with a burst."""

    def __init__(self, monotonic: Callable[[], float], most: int = MAX_CLIENTS) -> None:
        self._monotonic = monotonic
        self._most = most
        self._left: dict[str, tuple[float, float]] = {}
        """Client → (remaining budget, as of), in the order they were last seen."""

    def take(self, client: str, a_second: int) -> bool:
        """Take one from the client's budget; False when none is left."""
        now = self._monotonic()
        full = float(a_second * BURST_SECONDS)
        left, since = self._left.pop(client, (full, now))
        left = min(full, left + (now - since) * a_second)
        taken = left >= 1
        if len(self._left) >= self._most:
            del self._left[next(iter(self._left))]
        self._left[client] = left - taken, now
        return taken

    def give_back(self, client: str) -> None:
        """Take back one that was taken; the most there may be is seen to by the next take."""
        left, since = self._left.get(client, (0.0, self._monotonic()))
        self._left[client] = left + 1, since


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
        self._streams_of: Counter[str] = Counter()
        """Client → streams open without a token."""
        self._joins = Budgets(monotonic)
        self._misses = Budgets(monotonic)
        self._looks = Budgets(monotonic)
        self._public: dict[str, float] = {}
        """Room → until when it counts as public."""

    def check_streams(self, room: str, user: str, client: str | None) -> None:
        """Overloaded while as many streams are open as may be: such a visitor asks instead.

        `client` is None for a caller with a token.
        """
        if self._open >= self._most:
            raise Overloaded(f"{self._most:,} visitors have streams open already", retry_after=5)
        if len(self._waiting.get((room, user), ())) >= TICKET_STREAMS:
            raise Overloaded("this ticket has enough streams open already", retry_after=5)
        if client is not None and self._streams_of[client] >= CLIENT_STREAMS:
            raise Overloaded("this address has enough streams open already", retry_after=5)

    @contextmanager
    def watch(self, room: str, user: str, client: str | None = None) -> Iterator[asyncio.Event]:
        """An event that is set when this visitor is let in; Overloaded as `check_streams`."""
        self.check_streams(room, user, client)
        rung = asyncio.Event()
        key = room, user
        self._waiting.setdefault(key, set()).add(rung)
        self._open += 1
        if client is not None:
            self._streams_of[client] += 1
        self._somebody.set()
        try:
            yield rung
        finally:
            self._open -= 1
            if client is not None:
                self._streams_of[client] -= 1
                if not self._streams_of[client]:
                    del self._streams_of[client]
            if not self._open:
                self._somebody.clear()
            self._waiting[key].discard(rung)
            if not self._waiting[key]:
                del self._waiting[key]

    def by_room(self) -> dict[str, list[str]]:
        """The users who wait on a stream, by room."""
        found: dict[str, list[str]] = {}
        for room, user in self._waiting:
            found.setdefault(room, []).append(user)
        return found

    async def watch_turns(self, store: RoomStore) -> None:
        """While any stream is open, wake the streams of users that another process has admitted."""
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
        """Wake the streams of these users, if they wait here; harmless to repeat."""
        if self._waiting:
            for user in users:
                for rung in self._waiting.get((room, user), ()):
                    rung.set()

    def found_public(self, room: str) -> None:
        if len(self._public) >= MAX_PUBLIC:
            self._public.clear()
        self._public[room] = self._monotonic() + PUBLIC_SECONDS

    def is_public(self, room: str) -> bool:
        """True if the room was found public just now; False: the store must be asked."""
        return self._public.get(room, 0.0) > self._monotonic()

    def check_join(self, client: str, a_second: int) -> None:
        """Overloaded when this client joins too fast."""
        if not self._joins.take(client, a_second):
            raise Overloaded("too many joins from this address", retry_after=1)

    def check_look(self, client: str) -> None:
        """Overloaded when this client has read tickets of others too often."""
        if not self._misses.take(client, MISSES):
            raise Overloaded("too many wrong tickets from this address", retry_after=1)

    def looked_rightly(self, room: str, user: str, client: str) -> None:
        """Record that the client read its own ticket; Overloaded when it does so too often."""
        self._misses.give_back(client)
        if not self._looks.take(f"{room}/{user}", LOOKS):
            raise Overloaded("this ticket is looked at too often", retry_after=1)
