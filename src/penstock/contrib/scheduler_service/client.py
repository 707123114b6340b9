"""A client of the scheduler service: events by both gRPC services and by the topic.

Each way takes every third event. Some events are sent again by the next way, which must change
nothing, and some are cancelled. The client's final report is exact: a call without an answer is
repeated under the same id, and an id still without an answer when the client must stop counts as
unsure.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import grpc
import msgspec

from penstock.contrib.scheduler_service.ids import Numbers, event_id
from penstock.contrib.scheduler_service.ways import (
    CALL_SECONDS,
    Cancelled,
    Canceller,
    Event,
    OriginalWay,
    OurWay,
    Scheduled,
    TopicWay,
    TryAgain,
    Way,
)
from penstock.contrib.ticks.consume import Subscription
from penstock.flow.observe import Observer
from penstock.sim.errors import Unreachable

log = logging.getLogger("penstock.sim")

T = TypeVar("T")
STAGE = "scheduled events"
REPEAT_EVERY = 20
CANCEL_EVERY = 10
CANCELLED_INDEX = 7
"""The index, in every ten events, of the one that is cancelled and never sent twice."""
PAUSE, LONGEST_PAUSE = 0.1, 1.0
"""Seconds between tries."""
LAST_TRIES = 10.0
"""Seconds after the stop in which calls under way are answered or become unsure."""
MOST_SAMPLES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """The events to schedule, and the servers."""

    grpc: str
    """host:port of both services."""
    records: Subscription
    """The topic that events are published to."""
    topics: Sequence[str]
    """The topics that events name, in turn."""
    token: str | None = field(default=None, repr=False)
    ca: bytes | None = field(default=None, repr=False)
    """Authorities to trust; None for no TLS."""
    soonest: float = 5.0
    latest: float = 15.0
    """Seconds: events are due between `soonest` and this from now."""
    rate: float = 100.0
    count: int | None = None
    """Stop after this many events; None runs until stopped."""
    at_once: int = 200
    """Most events under way."""
    wait: float = 30.0
    """Seconds to wait for a server that does not listen yet."""


class WayTotals(msgspec.Struct):
    """The results of the events of one way."""

    scheduled: int = 0
    refused: int = 0
    repeats: int = 0
    """Events sent by this way after another had accepted them."""
    known: int = 0
    """Repeats that were answered as known."""


class Totals(msgspec.Struct, kw_only=True):
    """The results of all events."""

    run: str
    events: int = 0
    scheduled: int = 0
    refused: int = 0
    unsure: int = 0
    repeated: int = 0
    cancelled: int = 0
    cancelled_late: int = 0
    cancelled_unknown: int = 0
    """Cancels answered NOT_FOUND although the event had been accepted."""
    scheduled_twice: list[str] = []
    """Ids accepted as new a second time: must stay empty."""
    ways: dict[str, WayTotals] = {}
    ids: dict[str, str] = {}
    """Numbers by outcome, as `Numbers.text` writes them."""


class Client:
    """Schedules events until it is stopped."""

    def __init__(
        self,
        load: Load,
        observer: Observer,
        *,
        chance: random.Random | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._load = load
        self._observer = observer
        self._chance = chance or random.Random()
        self._now = now
        self._stopping = asyncio.Event()
        self._sets = {
            name: Numbers() for name in ("scheduled", "refused", "unsure", "cancelled", "late")
        }
        self.totals = Totals(run=f"{int(now() * 1000):x}"[-8:])

    def stop(self) -> None:
        self._stopping.set()

    async def run(self) -> Totals:
        """Run until stop() or the count is reached; Unreachable if the server never answers."""
        load = self._load
        async with _channel(load) as channel:
            await _connect(channel, load)
            log.info("scheduling at %s and on %s", load.grpc, load.records.topic)
            metadata = () if load.token is None else (("authorization", f"Bearer {load.token}"),)
            options = {"metadata": metadata, "timeout": CALL_SECONDS}
            ours, original = OurWay(channel, options), OriginalWay(channel, options)
            topic = TopicWay(load.records.config, load.records.topic)
            serving = asyncio.ensure_future(topic.serve())
            try:
                await self._schedule(ours, original, topic)
            finally:
                serving.cancel()
                topic.close()
        return self._finished()

    async def _schedule(self, ours: OurWay, original: OriginalWay, topic: TopicWay) -> None:
        ways: list[Way] = [ours, original, topic]
        self.totals.ways = {way.name: WayTotals() for way in ways}
        cancellers: list[Canceller] = [ours, original]
        room = asyncio.Semaphore(self._load.at_once)
        tasks: set[asyncio.Task[None]] = set()
        async for number in self._numbers():
            await room.acquire()
            first, second = ways[number % 3], ways[(number + 1) % 3]
            canceller = cancellers[number // CANCEL_EVERY % 2]
            task = asyncio.ensure_future(self._one(number, first, second, canceller))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
            task.add_done_callback(lambda _: room.release())
            self.totals.events += 1
        self._stopping.set()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=LAST_TRIES)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    async def _numbers(self) -> AsyncIterator[int]:
        """The numbers of the events, at the configured rate."""
        begun, number = time.monotonic(), 0
        while not self._stopping.is_set() and number != self._load.count:
            ahead = begun + number / self._load.rate - time.monotonic()
            if ahead > 0:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._stopping.wait(), ahead)
                continue
            yield number
            number += 1

    async def _one(self, number: int, first: Way, second: Way, canceller: Canceller) -> None:
        """Schedule one event and, if its number says so, cancel it."""
        event = self._event(number)
        totals = self.totals
        self._sets["unsure"].add(number)  # until there is an answer
        unanswered: list[str] = []
        outcome = await self._persist(lambda: first.schedule(event), unanswered)
        if outcome is Scheduled.REFUSED and unanswered:
            return  # an attempt without an answer may have been stored in time
        if outcome is Scheduled.REFUSED:
            totals.ways[first.name].refused += 1
            self._sets["refused"].add(number)
            return
        totals.ways[first.name].scheduled += 1
        self._sets["scheduled"].add(number)
        self._observer.count(STAGE, first.name)
        if number % REPEAT_EVERY == 0:
            await self._repeat(event, second, sure=outcome is not Scheduled.TAKEN)
        elif number % CANCEL_EVERY == CANCELLED_INDEX and outcome is not Scheduled.TAKEN:
            await self._cancel(number, event.id, canceller)

    async def _repeat(self, event: Event, way: Way, *, sure: bool) -> None:
        """Send the same event by another way. `sure`: the first way had confirmed it."""
        self.totals.repeated += 1
        own = self.totals.ways[way.name]
        own.repeats += 1
        outcome = await self._persist(lambda: way.schedule(event))
        own.known += outcome is Scheduled.KNOWN
        if sure and outcome is Scheduled.NEW and len(self.totals.scheduled_twice) < MOST_SAMPLES:
            self.totals.scheduled_twice.append(event.id)

    async def _cancel(self, number: int, event_id: str, way: Canceller) -> None:
        outcome = await self._persist(lambda: way.cancel(event_id))
        if outcome is Cancelled.DONE:
            self._sets["cancelled"].add(number)
        elif outcome is Cancelled.LATE:
            self._sets["late"].add(number)
        else:
            self.totals.cancelled_unknown += 1

    async def _persist(
        self, call: Callable[[], Awaitable[T]], failures: list[str] | None = None
    ) -> T:
        """Call until there is a definite answer; `failures` collects the errors before it."""
        pause = PAUSE
        while True:
            try:
                return await call()
            except TryAgain as exc:
                log.warning("no definite answer, the call is repeated: %s", exc)
                if failures is not None:
                    failures.append(str(exc))
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    def _event(self, number: int) -> Event:
        load, topics = self._load, self._load.topics
        ahead = load.soonest + self._chance.random() * (load.latest - load.soonest)
        due = int((self._now() + ahead) * 1000)
        if number % 3:
            due += -due % 1000  # whole seconds, rounded up
        return Event(event_id(self.totals.run, number), due, topics[number // 3 % len(topics)])

    def _finished(self) -> Totals:
        sets, totals = self._sets, self.totals
        answered = Numbers([*sets["scheduled"], *sets["refused"]])
        sets["unsure"] = Numbers(number for number in sets["unsure"] if number not in answered)
        totals.scheduled, totals.refused = len(sets["scheduled"]), len(sets["refused"])
        totals.unsure, totals.cancelled = len(sets["unsure"]), len(sets["cancelled"])
        totals.cancelled_late = len(sets["late"])
        totals.ids = {name: numbers.text() for name, numbers in sets.items()}
        return totals


def _channel(load: Load) -> grpc.aio.Channel:
    if load.ca is None:
        return grpc.aio.insecure_channel(load.grpc)
    return grpc.aio.secure_channel(load.grpc, grpc.ssl_channel_credentials(load.ca))


async def _connect(channel: grpc.aio.Channel, load: Load) -> None:
    try:
        async with asyncio.timeout(load.wait):
            await channel.channel_ready()
    except TimeoutError as exc:
        raise Unreachable(f"no gRPC server at {load.grpc} within {load.wait:g} s") from exc
