"""The figures: recorded as history, and encoded once per second for all listeners."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator

import msgspec

from penstock.flow.history import STEP_MS, History
from penstock.flow.status import Status
from penstock.model.errors import PenstockError
from penstock.model.state import State
from penstock.rooms.history import MOST, STEP, RoomHistory
from penstock.rooms.parts import RoomParts
from penstock.time.clock import Alarm, Clock

log = logging.getLogger("penstock.http")

AFTER_MS = 500
"""Milliseconds into the second: by then every process has written the previous one's figures."""
IDLE_MS = STEP * 1_000
"""Interval without listeners: the history spreads its difference over the seconds."""
IDLE_COUNTS = 2
"""Intervals between two counts of pending messages without listeners: a count may be costly."""

_encoder = msgspec.json.Encoder()


class Live:
    """Runs beside the API; without listeners it only adds up counters, and seldom."""

    def __init__(
        self,
        status: Status,
        clock: Clock,
        closing: asyncio.Event,
        rooms: RoomParts | None = None,
    ) -> None:
        self._status = status
        self._clock = clock
        self._closing = closing
        self._rooms = rooms
        self.history = History()
        self.room_history = RoomHistory()
        self.listeners = 0
        self._looks = Alarm(clock)
        self._pending: int | None = None
        self._idle = -1
        self._next: asyncio.Future[bytes] | None = None

    async def run(self) -> None:
        """Add to the history every second until cancelled."""
        while True:
            await self._looks.wait(self._next_look())
            await self.look()

    def _next_look(self) -> int:
        now = self._clock.now()
        step = STEP_MS if self.listeners else IDLE_MS
        return now - (now - AFTER_MS) % step + step

    async def catch_up(self) -> None:
        """Update the history before it is shown, unless listeners keep it up to date."""
        if not self.listeners:
            self._idle = -1
            await self.look()

    async def look(self) -> None:
        """Add the current figures to the history."""
        for look in (self._look, self.look_at_rooms):
            try:
                await look()
            except PenstockError as exc:
                log.debug("no figures for this second: %s", exc)

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Now, then once a second, until the server stops."""
        await self.catch_up()
        self.listeners += 1
        self._looks.ring()
        closing = asyncio.ensure_future(self._closing.wait())
        try:
            yield await self._event()
            while not self._closing.is_set():
                following = self._following()
                await asyncio.wait((following, closing), return_when=asyncio.FIRST_COMPLETED)
                if following.done():
                    yield following.result()
        finally:
            self.listeners -= 1
            closing.cancel()

    def _following(self) -> asyncio.Future[bytes]:
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        return self._next

    async def _look(self) -> None:
        self._idle = 0 if self.listeners else self._idle + 1
        if self._idle % IDLE_COUNTS == 0:
            self._pending = (await self._status.figures()).states.get(State.SCHEDULED, 0)
        tally = await self._status.tally()
        self.history.add(self._clock.now(), tally.totals, tally.all_lateness(), self._pending)
        if self._next is not None:
            event = await self._event()
            following, self._next = self._next, None
            if following is not None:  # another look at the same time may have answered already
                following.set_result(_sse(b"point", self.history.newest()) + event)

    async def look_at_rooms(self) -> None:
        """Add the rooms' figures to their history, if it is time."""
        now = self._clock.now()
        if self._rooms is not None and self.room_history.due(now):
            found, _ = await self._rooms.operate.page(limit=MOST)
            self.room_history.add(now, found)

    async def _event(self) -> bytes:
        return _sse(b"stats", await self._status.stats())


def _sse(name: bytes, data: msgspec.Struct) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name, _encoder.encode(data))
