"""STATUS: how things stand, as one value each for the API, the clients and the command line."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import msgspec

from penstock.flow.observe import Lateness, Observer
from penstock.flow.release import Lane
from penstock.flow.worker import Worker
from penstock.model.errors import PenstockError, UnknownThing
from penstock.model.query import RouteFigures, StoreFigures
from penstock.model.state import State
from penstock.model.times import format_moment
from penstock.ports.store import MessageStore

SLOW_COUNT_MS = 25
"""A count that takes longer is not made anew for everyone who asks …"""
COUNT_SHARE = 20
"""… but when this many times as long has passed."""


class RouteStatus(msgspec.Struct, frozen=True, kw_only=True):
    """A route and what the store holds for it."""

    name: str
    sink: str | None
    """None: this process does not know the route, but the store holds messages for it."""
    paused: bool
    scheduled: int
    overdue: int
    leased: int
    dead: int
    next_due: str | None
    in_flight: int | None = None
    """Sends under way here; None without a worker in this process."""
    capacity: int | None = None
    waiting_for_sink: bool | None = None
    """The sink does not answer at all: its messages wait in the store."""


class RouteStats(msgspec.Struct, frozen=True, kw_only=True):
    scheduled: int
    overdue: int
    leased: int
    dead: int
    next_due: str | None


class LatenessStats(msgspec.Struct, frozen=True, kw_only=True):
    """released - due in milliseconds; quantiles are upper bounds of their bucket."""

    count: int
    mean: float
    p50: int | None
    p99: int | None
    max: int
    early: int


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds, and what this process did since it started."""

    now: str
    version: str
    uptime: float
    states: dict[State, int]
    routes: dict[str, RouteStats]
    totals: dict[str, int]
    """Messages by stage: accepted, released, delivered, retry, dead …"""
    counts: dict[str, dict[str, int]]
    """The same by route, then stage."""
    lateness: dict[str, LatenessStats]


class Readiness(msgspec.Struct, frozen=True):
    """Whether messages can be taken now, with the facts."""

    status: str
    """ready · not ready · stopping"""
    store: str
    facts: dict[str, str]
    error: str | None = None


class Status:
    """Asks the store and the observer; the only place that puts their figures together."""

    def __init__(
        self,
        store: MessageStore,
        observer: Observer,
        sinks: Mapping[str, str],
        *,
        version: str,
    ) -> None:
        self._store = store
        self._observer = observer
        self._sinks = sinks
        self._version = version
        self._started = store.clock.now()
        self._counting = asyncio.Lock()
        self._counted: StoreFigures | None = None
        self._good_until = 0

    async def figures(self) -> StoreFigures:
        """What the store holds. Where counting is slow (millions), a count serves for a while,

        so that however many pages are open, the store spends little of its time on counting.
        """
        async with self._counting:
            clock = self._store.clock
            began = clock.now()
            if self._counted is None or began >= self._good_until:
                self._counted = await self._store.figures(began)
                took = clock.now() - began
                self._good_until = began + took * COUNT_SHARE if took > SLOW_COUNT_MS else 0
            return self._counted

    async def routes(self, worker: Worker | None = None) -> list[RouteStatus]:
        """The routes of this process and those the store holds messages for, by name.

        With the process's own worker, also what it is doing for each.
        """
        figures = (await self.figures()).routes
        paused = await self._store.paused()
        names = sorted(self._sinks.keys() | figures.keys() | paused)
        lanes = {} if worker is None else worker.lanes
        return [
            self._route(name, figures.get(name), name in paused, lanes.get(name)) for name in names
        ]

    async def check_route(self, name: str) -> None:
        """UnknownThing unless it is served here or the store holds something for it."""
        if name not in self._sinks and name not in {route.name for route in await self.routes()}:
            raise UnknownThing(f"no route named {name[:100]!r}", field="route")

    async def stats(self) -> Stats:
        now = self._store.clock.now()
        figures = await self.figures()
        totals: dict[str, int] = {}
        counts: dict[str, dict[str, int]] = {}
        for (stage, route), number in self._observer.counts.items():
            totals[stage] = totals.get(stage, 0) + number
            counts.setdefault(route, {})[stage] = number
        return Stats(
            now=format_moment(now),
            version=self._version,
            uptime=(now - self._started) / 1000,
            states=figures.states,
            routes={name: _route_stats(held) for name, held in figures.routes.items()},
            totals=totals,
            counts=counts,
            lateness={name: _lateness(late) for name, late in self._observer.lateness.items()},
        )

    async def readiness(self) -> Readiness:
        try:
            facts = await self._store.check()
        except PenstockError as exc:
            return Readiness("not ready", self._store.name, {}, exc.message)
        return Readiness("ready", self._store.name, facts)

    def _route(
        self, name: str, figures: RouteFigures | None, paused: bool, lane: Lane | None
    ) -> RouteStatus:
        held = figures if figures is not None else RouteFigures()
        return RouteStatus(
            name=name,
            sink=self._sinks.get(name),
            paused=paused,
            scheduled=held.scheduled,
            overdue=held.overdue,
            leased=held.leased,
            dead=held.dead,
            next_due=_text(held.next_due),
            in_flight=None if lane is None else lane.in_flight,
            capacity=None if lane is None else lane.capacity,
            waiting_for_sink=None if lane is None else lane.breaker.is_open,
        )


def _route_stats(held: RouteFigures) -> RouteStats:
    return RouteStats(
        scheduled=held.scheduled,
        overdue=held.overdue,
        leased=held.leased,
        dead=held.dead,
        next_due=_text(held.next_due),
    )


def _lateness(late: Lateness) -> LatenessStats:
    return LatenessStats(
        count=late.count,
        mean=round(late.total / late.count, 3) if late.count else 0.0,
        p50=late.quantile(0.5),
        p99=late.quantile(0.99),
        max=late.worst,
        early=late.early,
    )


def _text(moment: int | None) -> str | None:
    return None if moment is None else format_moment(moment)
