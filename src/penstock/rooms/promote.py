"""PROMOTE: admit visitors the moment a slot is free, and check every room once a second.

Any number of processes may run this at once: a room's step is atomic in the store, and the store
shares out the rooms that are due. All waiting uses the injected clock.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from penstock.flow.observe import Observer
from penstock.model.durations import Durations
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.ticket import Promotion
from penstock.ports.rooms import RoomStore
from penstock.time.clock import Alarm, Timer, is_ahead

log = logging.getLogger("penstock.rooms")

WORKERS = 10
QUEUE = 100
LIMIT = 500
"""Most visitors admitted by one step."""
ROOMS_A_TASK = 50
LOOK_MS = 400
"""How often the feeder asks for due rooms: half the time after which a room is due again, so that
the process which took it finds it due at its second request, well within a second."""
NO_ROOM_MS = 2_000
"""How often the feeder asks while the store has no rooms; a room created by this process is
noticed at once."""
DISCOVER_MS = 700
STORE_AWAY_MS = 1_000
AHEAD_MS = 20
FULL_SHARE = 0.8
WARN_EVERY_MS = 5_000


class PromotionFigures:
    """The promoter's figures: steps, admissions and errors."""

    def __init__(self) -> None:
        self.promotions = 0
        self.durations = Durations()
        """Durations of store calls, by the injected clock."""
        self.active = 0
        """Workers busy now."""
        self.errors = 0
        """Store calls that failed."""


class Promoter:
    """Worker tasks behind a bounded queue: a full queue makes the feeder wait and drops nothing."""

    def __init__(
        self,
        store: RoomStore,
        observer: Observer,
        *,
        workers: int = WORKERS,
        queue: int = QUEUE,
        limit: int = LIMIT,
    ) -> None:
        self._store = store
        self._clock = store.clock
        self._observer = observer
        self._workers = workers
        self._limit = limit
        self._queue: asyncio.Queue[tuple[str, ...]] = asyncio.Queue(queue)
        self._wanted: dict[str, None] = {}
        """Rooms requested by `wake` and not yet queued; each once."""
        self._alarm = Alarm(store.clock)
        self._promoted = Alarm(store.clock)
        """Rung when a visitor was admitted: only then are there figures to log."""
        self._has_rooms = True
        """Whether the last request found any room in the store …"""
        self._asked_at = -NO_ROOM_MS
        """… and when that was."""
        self._searches = True
        """Whether other programs may make rooms in this store."""
        self._timers: dict[str, tuple[int, Timer]] = {}
        self._warned = 0
        self._stopping = False
        self.figures = PromotionFigures()
        self.listeners: list[Callable[[Promotion], None]] = []
        store.listen_rooms(self.wake)

    @property
    def queue_size(self) -> int:
        return self._queue.qsize()

    @property
    def queue_limit(self) -> int:
        return self._queue.maxsize

    @property
    def workers(self) -> int:
        return self._workers

    @property
    def seconds(self) -> float:
        """The current time by the store's clock, in seconds."""
        return self._clock.now() / 1000

    def wake(self, room: str) -> None:
        """Note that the room may have work now."""
        self._wanted[room] = None
        self._has_rooms = True
        self._alarm.ring()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._feed())
            group.create_task(self._discover())
            group.create_task(self._report())
            for _ in range(self._workers):
                group.create_task(self._work())
            try:
                await asyncio.Event().wait()
            finally:
                # A driver that swallows a cancellation must not keep a loop alive.
                self._stopping = True

    # --- the feeder ---

    async def _feed(self) -> None:
        look = 0
        while not self._stopping:
            await self._enqueue_wanted()
            now = self._clock.now()
            if not is_ahead(look, now, NO_ROOM_MS):
                more = await self._enqueue_due(now)
                now = self._clock.now()  # it may have been set back meanwhile
                often = self._searches or self._has_rooms
                look = now if more else now + (LOOK_MS if often else NO_ROOM_MS)
            if not self._wanted and look > now:
                await self._alarm.wait(look)

    async def _enqueue_wanted(self) -> None:
        while self._wanted:
            names = tuple(self._wanted)[:ROOMS_A_TASK]
            for name in names:
                del self._wanted[name]
            await self._put(names)

    async def _enqueue_due(self, now: int) -> bool:
        """Queue the due rooms; true if there may be more than one task can take."""
        try:
            names = await self._store.take_due(now, ROOMS_A_TASK)
            if not names and not is_ahead(self._asked_at + NO_ROOM_MS, now, NO_ROOM_MS):
                # Where there are rooms, another process may have taken all that were due.
                self._asked_at = now
                self._has_rooms = bool(await self._store.list_rooms("", 1))
        except StoreUnavailable as exc:
            await self._away(exc)
            return False
        if names:
            await self._put(tuple(names))
        return len(names) >= ROOMS_A_TASK

    async def _put(self, names: tuple[str, ...]) -> None:
        size, full = self._queue.qsize(), self._queue.maxsize
        now = self._clock.now()
        if size >= full * FULL_SHARE and now - self._warned >= WARN_EVERY_MS:
            self._warned = now
            log.warning("task queue is %d %% full (%d of %d)", 100 * size // full, size, full)
        await self._queue.put(names)  # waits while the queue is full: that is the back-pressure

    async def _discover(self) -> None:
        while not self._stopping:
            try:
                if await self._store.discover(self._clock.now()) is None:
                    self._searches = False
                    return
            except StoreUnavailable as exc:
                await self._away(exc)
            await self._clock.sleep_until(self._clock.now() + DISCOVER_MS)

    # --- the workers ---

    async def _work(self) -> None:
        while not self._stopping:
            names = await self._queue.get()
            self.figures.active += 1
            try:
                await self._serve(names)
            finally:
                self.figures.active -= 1

    async def _serve(self, names: Sequence[str]) -> None:
        """Promote the rooms; one that the store cannot read does not hold up the others."""
        try:
            await self.promote(names)
        except StoreUnavailable as exc:
            await self._away(exc)
            for name in names:
                self.wake(name)
        except PenstockError:
            if len(names) > 1:
                for name in names:
                    await self._serve((name,))
                return
            self.figures.errors += 1
            log.exception("room %s: promotion failed; it is retried at the next round", names[0])

    async def promote(self, names: Sequence[str]) -> int:
        """Step each room until no work is left in it; the answer is the number admitted."""
        total = 0
        while names:
            begun = self._clock.now()
            promotions = await self._store.promote(names, begun, self._limit)
            self.figures.durations.add((self._clock.now() - begun) / 1000, self.seconds)
            for promotion in promotions:
                total += self._note(promotion)
            names = [promotion.room for promotion in promotions if promotion.more]
        return total

    def _note(self, promotion: Promotion) -> int:
        number = len(promotion.admitted)
        self.figures.promotions += number
        self._observer.visited("promoted", number)
        self._observer.visited("ended", promotion.expired)
        if number:
            self._promoted.ring()
            for listener in self.listeners:
                listener(promotion)
        if promotion.look_at is not None and not promotion.more:
            self._look_again(promotion.room, promotion.look_at)
        return number

    def _look_again(self, room: str, at: int) -> None:
        """Promote the room at that very moment; later moments are left to the regular rounds."""
        now = self._clock.now()
        known = self._timers.get(room)
        if at > now + STORE_AWAY_MS or (known is not None and now < known[0] <= at):
            return
        if known is not None:
            known[1].cancel()
        if at <= now:  # this clock is ahead of the store's: do not ask repeatedly until it is time
            at = now + AHEAD_MS
        self._timers[room] = at, self._clock.call_at(at, lambda: self._ring(room))

    def _ring(self, room: str) -> None:
        self._timers.pop(room, None)
        self.wake(room)

    async def _away(self, exc: StoreUnavailable) -> None:
        self.figures.errors += 1
        log.warning("store away, rooms admit no visitor until it answers: %s", exc)
        await self._clock.sleep_until(self._clock.now() + STORE_AWAY_MS)

    async def _report(self) -> None:
        before = self.figures.promotions
        while not self._stopping:
            if self.figures.promotions == before:
                await self._promoted.wait()
            await self._clock.sleep_until(self._clock.now() + 1_000)
            number = self.figures.promotions - before
            before = self.figures.promotions
            if number:
                log.info("Promotions per second: %d", number)
