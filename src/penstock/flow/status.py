"""STATUS: the state of fleet and store, as values for the API, clients and command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TypedDict

import msgspec

from penstock.flow.dead_groups import dead_groups
from penstock.flow.fleet import Fleet
from penstock.flow.health import sink_health, worker_health
from penstock.flow.recurring import Recurring
from penstock.flow.reuse import Reuse
from penstock.model.errors import PenstockError, UnknownThing
from penstock.model.fleet import Heartbeat, LaneState
from penstock.model.forecast import HOUR_MS, MINUTE_MS, Forecast
from penstock.model.lateness import Lateness
from penstock.model.query import RouteFigures, StoreFigures
from penstock.model.status_view import (
    DeadGroups,
    ForecastSpan,
    ForecastView,
    LatenessStats,
    PartHealth,
    ProcessStats,
    Readiness,
    RouteStats,
    RouteStatus,
    Stats,
)
from penstock.model.times import format_moment
from penstock.ports.store import Store

FORECAST_MS = 1_000
"""A forecast serves at least so long."""
FAILED = ("retry", "dead")
"""Stages that are a failed attempt."""
VERDICTS = ("allowed", "deferred", "blocked", "shadowed")
MAX_ASKED = 100
"""Routes whose dead letters are remembered as grouped."""


class Tally(msgspec.Struct, kw_only=True):
    """The totals that the whole fleet has counted."""

    totals: dict[str, int] = {}
    counts: dict[str, dict[str, int]] = {}
    lateness: dict[str, Lateness] = {}
    policies: dict[str, dict[str, int]] = {}

    def all_lateness(self) -> Lateness:
        merged = Lateness()
        for late in self.lateness.values():
            merged.merge(late)
        return merged


class Status:
    """Asks the store and the fleet; the only place that puts their figures together."""

    def __init__(
        self,
        store: Store,
        fleet: Fleet,
        sinks: Mapping[str, str],
        *,
        version: str,
        recurring: Recurring | None = None,
    ) -> None:
        """`recurring`: rules whose future moments are part of the forecast."""
        self._recurring = recurring
        self._store = store
        self._fleet = fleet
        self._sinks = sinks
        self._version = version
        # A count that the store itself reuses must not be reused again: it would be too old.
        shared = store.figures_serve > 0
        self._figures = Reuse(store.clock, self._count, at_most=0 if shared else None)
        self._forecast = Reuse(
            store.clock,
            self._look_ahead,
            at_least=FORECAST_MS,
            at_most=FORECAST_MS if shared else None,
        )
        self._dead: dict[str | None, Reuse[DeadGroups]] = {}

    async def figures(self) -> StoreFigures:
        """The store's figures. Where counting is slow (millions), a count is reused for a while."""
        return await self._figures.get()

    async def routes(self) -> list[RouteStatus]:
        """The routes of these settings, of every worker and of the store, by name."""
        everyone = await self._fleet.everyone()
        routes = await self._route_stats(everyone, tally(everyone))
        return [
            RouteStatus(name=name, **msgspec.structs.asdict(route))
            for name, route in routes.items()
        ]

    async def check_route(self, name: str) -> None:
        """UnknownThing unless it is served here or the store holds something for it."""
        if name not in self._sinks and name not in {route.name for route in await self.routes()}:
            raise UnknownThing(f"no route named {name[:100]!r}", field="route")

    async def stats(self) -> Stats:
        now = self._store.clock.now()
        everyone = await self._fleet.everyone()
        counted = tally(everyone)
        alive = {beat.id for beat in self._fleet.alive(everyone)}
        return Stats(
            now=format_moment(now),
            version=self._version,
            uptime=(now - self._fleet.facts.started) / 1000,
            states=(await self.figures()).states,
            routes=await self._route_stats(everyone, counted),
            totals=counted.totals,
            counts=counted.counts,
            lateness={name: _lateness(late) for name, late in counted.lateness.items()},
            processes=[_process(beat, beat.id in alive) for beat in self._fleet.shown(everyone)],
            policies={
                policy: dict.fromkeys(VERDICTS, 0) | verdicts
                for policy, verdicts in counted.policies.items()
            },
        )

    async def tally(self) -> Tally:
        """The totals that the whole fleet has counted until now."""
        return tally(await self._fleet.everyone())

    async def forecast(self) -> ForecastView:
        found = await self._forecast.get()
        return ForecastView(
            now=format_moment(found.now),
            minutes=[
                ForecastSpan(from_=format_moment(found.first_minute + i * MINUTE_MS), routes=routes)
                for i, routes in enumerate(found.minutes)
            ],
            hours=[
                ForecastSpan(from_=format_moment(found.first_hour + i * HOUR_MS), routes=routes)
                for i, routes in enumerate(found.hours)
            ],
            later=found.later,
            exact=found.exact,
        )

    async def dead_groups(self, route: str | None) -> DeadGroups:
        """Dead letters grouped by error, of one route or of all."""
        if route not in self._dead:
            if len(self._dead) >= MAX_ASKED:
                self._dead.clear()
            self._dead[route] = Reuse(self._store.clock, partial(dead_groups, self._store, route))
        return await self._dead[route].get()

    async def readiness(self) -> Readiness:
        """Ready means that messages can be taken: one that cannot be sent waits in the store."""
        try:
            facts = await self._store.messages.check()
        except PenstockError as exc:
            failed = {"store": PartHealth(status="failed", detail=exc.message)}
            return Readiness("not ready", self._store.name, {}, exc.message, failed)
        own = self._fleet.own().routes
        parts = {
            "store": PartHealth(status="ok", facts=dict(facts)),
            "worker": worker_health(own),
            **{f"sink.{name}": sink_health(lane) for name, lane in own.items()},
        }
        return Readiness("ready", self._store.name, facts, None, parts)

    async def _count(self) -> StoreFigures:
        return await self._store.messages.figures(self._store.clock.now())

    async def _look_ahead(self) -> Forecast:
        now = self._store.clock.now()
        if self._store.forecasting is not None:
            found = await self._store.forecasting.forecast(now)
        else:
            found = Forecast(now=now, exact=False)
            for name, held in (await self.figures()).routes.items():
                if held.scheduled:
                    found.later[name] = held.scheduled
        if self._recurring is not None:
            await self._recurring.add_to(found)
        return found

    async def _route_stats(
        self, everyone: Sequence[Heartbeat], counted: Tally
    ) -> dict[str, RouteStats]:
        figures = (await self.figures()).routes
        paused = await self._store.messages.paused()
        served: dict[str, list[LaneState]] = {}
        for beat in self._fleet.alive(list(everyone)):
            for name, lane in beat.routes.items():
                served.setdefault(name, []).append(lane)
        names = sorted(self._sinks.keys() | figures.keys() | paused | served.keys())
        return {
            name: RouteStats(
                **_held(figures.get(name) or RouteFigures()),
                **_doing(served.get(name, [])),
                sink=self._sinks.get(name) or next((s.sink for s in served.get(name, [])), None),
                paused=name in paused,
                errors=sum(counted.counts.get(name, {}).get(stage, 0) for stage in FAILED),
            )
            for name in names
        }


def tally(everyone: Sequence[Heartbeat]) -> Tally:
    """Add up the counters of every process."""
    counted = Tally()
    for beat in everyone:
        for route, stages in beat.counts.items():
            by_stage = counted.counts.setdefault(route, {})
            for stage, number in stages.items():
                by_stage[stage] = by_stage.get(stage, 0) + number
                counted.totals[stage] = counted.totals.get(stage, 0) + number
        for route, late in beat.lateness.items():
            counted.lateness.setdefault(route, Lateness()).merge(late)
        for policy, verdicts in beat.policies.items():
            by_verdict = counted.policies.setdefault(policy, {})
            for verdict, number in verdicts.items():
                by_verdict[verdict] = by_verdict.get(verdict, 0) + number
    return counted


class _Held(TypedDict):
    scheduled: int
    overdue: int
    leased: int
    dead: int
    next_due: str | None


class _Doing(TypedDict):
    in_flight: int | None
    capacity: int | None
    waiting_for_sink: bool | None
    reached: bool | None


def _held(held: RouteFigures) -> _Held:
    return {
        "scheduled": held.scheduled,
        "overdue": held.overdue,
        "leased": held.leased,
        "dead": held.dead,
        "next_due": None if held.next_due is None else format_moment(held.next_due),
    }


def _doing(lanes: Sequence[LaneState]) -> _Doing:
    if not lanes:
        return {"in_flight": None, "capacity": None, "waiting_for_sink": None, "reached": None}
    return {
        "in_flight": sum(lane.in_flight for lane in lanes),
        "capacity": sum(lane.capacity for lane in lanes),
        "waiting_for_sink": any(lane.waiting_for_sink for lane in lanes),
        "reached": all(lane.reached for lane in lanes),
    }


def _process(beat: Heartbeat, alive: bool) -> ProcessStats:
    return ProcessStats(
        id=beat.id,
        role=beat.role,
        host=beat.host,
        pid=beat.pid,
        version=beat.version,
        started=format_moment(beat.started),
        last_seen=format_moment(beat.seen),
        alive=alive,
        stopped=beat.ended,
        routes=beat.routes,
        metrics=beat.metrics,
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
