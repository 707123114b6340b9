"""A crowd at a waiting room: visitors who come, wait, give up, enter, stay a while and leave.

Each visitor behaves as a browser does, over HTTP: polls when the server says so, redeems the token,
sends heartbeats, leaves. Some give up while they wait: half of them leave the line, the others
close the page and are noticed only after the room's `wait_grace`.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from penstock.model.errors import PenstockError, UnknownThing
from penstock.model.room_view import RoomOut, TicketOut
from penstock.model.ticket import TicketState
from penstock.model.times import parse_duration
from penstock.sdk.async_client import AsyncClient
from penstock.sdk.async_rooms import AsyncRooms
from penstock.sdk.room_changes import change_room

LOOK_SECONDS = 1.0
"""Seconds between looks at the room itself."""
HEARTBEAT_SHARE = 1 / 3
"""Heartbeat interval as a share of the session's time to live: two may be lost in a row."""
DEFAULT_CAPACITY = 100
AT_ONCE = 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd:
    """The visitors to simulate."""

    room: str
    users: int = 1_000
    within: float = 10.0
    """Seconds over which arrivals are spread evenly at random."""
    abandon: float = 0.1
    """The share of visitors who give up if their turn does not come first."""
    patience: float = 5.0
    """Mean seconds until they give up."""
    stay: float = 2.0
    """Mean seconds that a visitor stays inside."""
    capacity: int | None = None
    """Capacity to set, creating the room if needed; None keeps it, or 100 for a new room."""


class CrowdTotals(msgspec.Struct, kw_only=True):
    """The visitors' totals: arrived = waiting + inside + left + gave_up + vanished + lost."""

    users: int
    capacity: int = 0
    arrived: int = 0
    waiting: int = 0
    inside: int = 0
    left: int = 0
    """Visitors who were inside and left."""
    gave_up: int = 0
    """Visitors who left the line."""
    vanished: int = 0
    """Visitors who closed the page without leaving the line."""
    lost: int = 0
    """Visitors removed by the room, or refused: expired, revoked, closed, an error."""
    most_inside: int = 0
    """Most slots in use, by the room's own figures, read once a second."""
    errors: dict[str, int] = {}
    """Refusals, by the error's code."""
    wait_ms: dict[str, int] = {}
    """Time from joining to the turn: p50, p95, max."""


class CrowdSimulation:
    """Runs a crowd against a server; `totals` may be read meanwhile."""

    def __init__(
        self,
        crowd: Crowd,
        client: AsyncClient,
        *,
        chance: random.Random | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._crowd = crowd
        self._rooms: AsyncRooms = client.rooms
        self._chance = chance or random.Random()
        self._sleep = sleep
        self._steady = steady
        self._lines = asyncio.Semaphore(AT_ONCE)
        self._waits: list[float] = []
        self._heartbeat = 0.0
        self._visit = f"{self._chance.getrandbits(32):08x}"
        self.totals = CrowdTotals(users=crowd.users)

    async def run(self) -> CrowdTotals:
        """Run until the last visitor has gone. If cancelled, `totals` has the results so far."""
        await self._prepare()
        async with asyncio.TaskGroup() as group:
            looking = group.create_task(self._look())
            visits = [group.create_task(self._visitor(n)) for n in range(self._crowd.users)]
            await asyncio.gather(*visits)
            looking.cancel()
        return self.finished()

    def finished(self) -> CrowdTotals:
        """The totals with the waits of every visitor whose turn came."""
        waits = sorted(self._waits)
        if waits:
            at = {"p50": 0.5, "p95": 0.95, "max": 1.0}
            last = len(waits) - 1
            self.totals.wait_ms = {n: round(waits[int(p * last)] * 1000) for n, p in at.items()}
        return self.totals

    async def _prepare(self) -> None:
        room = await self._room()
        self.totals.capacity = room.capacity
        self._heartbeat = _seconds(room.session_ttl) * HEARTBEAT_SHARE

    async def _room(self) -> RoomOut:
        crowd = self._crowd
        if crowd.capacity is None:
            try:
                return await self._ask(self._rooms.get(crowd.room))
            except UnknownThing:
                return await self._ask(self._rooms.put(crowd.room, capacity=DEFAULT_CAPACITY))
        return await self._ask(change_room(self._rooms, crowd.room, capacity=crowd.capacity))

    async def _look(self) -> None:
        while True:
            try:
                room = await self._ask(self._rooms.get(self._crowd.room))
            except PenstockError as exc:
                self._refused(exc)
            else:
                self.totals.most_inside = max(self.totals.most_inside, room.in_use)
            await self._sleep(LOOK_SECONDS)

    # --- one visitor ---

    async def _visitor(self, number: int) -> None:
        user = f"crowd-{self._visit}-{number}"
        await self._sleep(self._chance.random() * self._crowd.within)
        self.totals.arrived += 1
        try:
            await self._come(user)
        except PenstockError as exc:
            self._refused(exc)
            self.totals.lost += 1

    async def _come(self, user: str) -> None:
        joined = self._steady()
        place = await self._ask(self._rooms.join(self._crowd.room, user))
        self.totals.waiting += 1
        # Not `finally`: a visitor waiting when the simulation stops counts as waiting.
        try:
            admitted = await self._wait(user, place, self._gives_up_at(joined))
        except PenstockError:
            self.totals.waiting -= 1
            raise
        self.totals.waiting -= 1
        if admitted is not None:
            self._waits.append(self._steady() - joined)
            await self._inside(user, admitted)

    def _gives_up_at(self, joined: float) -> float | None:
        if self._chance.random() >= self._crowd.abandon:
            return None
        return joined + self._chance.expovariate(1 / max(self._crowd.patience, 1e-9))

    async def _wait(self, user: str, place: TicketOut, until: float | None) -> TicketOut | None:
        """The place once the turn has come; None if it never will."""
        while place.state is TicketState.WAITING:
            pause = place.poll_after_ms / 1000 * self._chance.uniform(0.9, 1.1)
            if until is not None and self._steady() + pause >= until:
                await self._sleep(max(0.0, until - self._steady()))
                await self._give_up(user)
                return None
            await self._sleep(pause)
            place = await self._ask(self._rooms.ticket(self._crowd.room, user))
        if place.token is None:
            self.totals.lost += 1
            return None
        return place

    async def _give_up(self, user: str) -> None:
        if self._chance.random() < 0.5:
            self.totals.vanished += 1
            return
        await self._ask(self._rooms.leave(self._crowd.room, user))
        self.totals.gave_up += 1

    async def _inside(self, user: str, place: TicketOut) -> None:
        await self._ask(self._rooms.enter(self._crowd.room, place.token or ""))
        self.totals.inside += 1
        try:
            left = self._chance.expovariate(1 / max(self._crowd.stay, 1e-9))
            while self._heartbeat and left > self._heartbeat:
                await self._sleep(self._heartbeat)
                left -= self._heartbeat
                await self._ask(self._rooms.heartbeat(self._crowd.room, user))
            await self._sleep(left)
            await self._ask(self._rooms.leave(self._crowd.room, user))
        except PenstockError:
            self.totals.inside -= 1
            raise
        self.totals.inside -= 1
        self.totals.left += 1

    async def _ask(self, call: Awaitable[T]) -> T:
        """A few calls at once: more connections than the server has cores do not help."""
        async with self._lines:
            return await call

    def _refused(self, exc: PenstockError) -> None:
        self.totals.errors[exc.code] = self.totals.errors.get(exc.code, 0) + 1


def _seconds(duration: str | None) -> float:
    """The seconds of a duration; 0 for none."""
    return 0.0 if duration is None else parse_duration(duration, "session_ttl") / 1000
