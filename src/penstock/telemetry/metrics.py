"""Prometheus metrics: the observer's counts, read on each scrape; a message costs nothing.

Labels are routes, stages, policies and kinds of store calls: as many as are configured, never one
per message, key or visitor.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock.flow.observe import CALL_SECONDS, Observer
from penstock.flow.worker import Worker
from penstock.model.lateness import LATENESS_MS, Lateness
from penstock.model.query import StoreFigures
from penstock.telemetry.histogram import cumulative
from penstock.version import __version__

OCCURRENCES = frozenset({"planted", "missed", "skipped"})
"""Stages of the observer that count moments of rules."""
CONTENT_TYPE = CONTENT_TYPE_LATEST
_LATENESS_SECONDS = tuple(bound / 1000 for bound in LATENESS_MS)


def render(
    observer: Observer,
    figures: StoreFigures | None = None,
    worker: Worker | None = None,
    more: Iterable[Collector] = (),
) -> bytes:
    """All current metrics in Prometheus's text format, with those of the process and `more`."""
    return generate_latest(_registry(PenstockCollector(observer, figures, worker), more))


def _registry(own: Collector, more: Iterable[Collector]) -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    for collector in (own, *more):
        registry.register(collector)
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return registry


class Sample(msgspec.Struct, frozen=True, array_like=True):
    """One line of Prometheus' text format."""

    name: str
    labels: dict[str, str]
    value: float


class Family(msgspec.Struct, frozen=True, array_like=True):
    """The lines of one name, as one process hands them to another."""

    name: str
    about: str
    kind: str
    samples: list[Sample]


def families(
    observer: Observer, worker: Worker | None = None, more: Iterable[Collector] = ()
) -> list[Family]:
    """The metrics of this process as in `render`, without the store's figures."""
    found = _registry(PenstockCollector(observer, worker=worker), more).collect()
    return [
        Family(
            one.name,
            one.documentation,
            one.type,
            [Sample(line.name, line.labels, line.value) for line in one.samples],
        )
        for one in found
    ]


def render_all(processes: Mapping[str, Iterable[Family]], figures: StoreFigures | None) -> bytes:
    """`render` of several processes that share a port.

    A line says by the label `process` whose it is; the store's figures are there once.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Merged(processes, figures))
    return generate_latest(registry)


class _Merged(Collector):
    def __init__(
        self, processes: Mapping[str, Iterable[Family]], figures: StoreFigures | None
    ) -> None:
        self._processes = processes
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        merged: dict[str, Metric] = {}
        for process, families in self._processes.items():
            for family in families:
                if family.name not in merged:
                    merged[family.name] = Metric(family.name, family.about, family.kind)
                for line in family.samples:
                    labels = {**line.labels, "process": process}
                    merged[family.name].add_sample(line.name, labels, line.value)
        yield from merged.values()
        if self._figures is not None:
            yield from _stored(self._figures)


class PenstockCollector(Collector):
    """For a program with a registry of its own: `REGISTRY.register(PenstockCollector(…))`."""

    def __init__(
        self,
        observer: Observer,
        figures: StoreFigures | None = None,
        worker: Worker | None = None,
    ) -> None:
        self._observer = observer
        self._figures = figures
        self._worker = worker

    def collect(self) -> Iterable[Metric]:
        yield InfoMetricFamily(
            "penstock_build", "The version of this process.", {"version": __version__}
        )
        yield from self._counts()
        yield _histogram(
            "penstock_lateness_seconds", "Time from due to released.", self._observer.lateness
        )
        yield _histogram(
            "penstock_delivery_seconds",
            "Duration of each message's send, whatever its outcome.",
            self._observer.sends,
        )
        yield self._early()
        yield from self._store_calls()
        yield self._policies()
        if self._worker is not None:
            yield from _lanes(self._worker)
            yield _planting(self._worker)
        if self._figures is not None:
            yield from _stored(self._figures)

    def _counts(self) -> Iterable[Metric]:
        messages = CounterMetricFamily(
            "penstock_messages", "Messages that passed a stage here.", labels=["stage", "route"]
        )
        recovered = CounterMetricFamily(
            "penstock_lease_recoveries",
            "Messages returned to be claimed again because their lease ran out.",
            labels=["route"],
        )
        visitors = CounterMetricFamily(
            "penstock_room_visitors",
            "Visitors of waiting rooms that passed a stage here.",
            labels=["stage"],
        )
        for (stage, route), number in sorted(self._observer.counts.items()):
            if stage in OCCURRENCES:
                continue
            messages.add_metric([stage, route], number)
            if stage == "recovered":
                recovered.add_metric([route], number)
        for stage, number in sorted(self._observer.visitors.items()):
            visitors.add_metric([stage], number)
        return messages, recovered, visitors, self._occurrences()

    def _occurrences(self) -> Metric:
        """Counters of every route served here, from zero on: a rate needs a first value."""
        family = CounterMetricFamily(
            "penstock_recurring_occurrences",
            "Moments of recurring rules that were planted, missed or skipped here.",
            labels=["what", "route"],
        )
        counts = self._observer.counts
        routes = {route for stage, route in counts if stage in OCCURRENCES}
        routes |= set() if self._worker is None else set(self._worker.lanes)
        for route in sorted(routes):
            for what in sorted(OCCURRENCES):
                family.add_metric([what, route], counts[what, route])
        return family

    def _early(self) -> Metric:
        family = CounterMetricFamily(
            "penstock_early_messages", "Messages released before they were due.", labels=["route"]
        )
        for route, late in sorted(self._observer.lateness.items()):
            family.add_metric([route], late.early)
        return family

    def _store_calls(self) -> Iterable[Metric]:
        took = HistogramMetricFamily(
            "penstock_store_call_seconds",
            "Duration of store calls that were answered, one per batch.",
            labels=["call"],
        )
        errors = CounterMetricFamily(
            "penstock_store_errors", "Store calls that got no answer.", labels=["call"]
        )
        for call, figures in sorted(self._observer.store.items()):
            buckets = cumulative(CALL_SECONDS, figures.buckets)
            took.add_metric([call], buckets, sum_value=figures.seconds)
            errors.add_metric([call], figures.errors)
        return took, errors

    def _policies(self) -> Metric:
        family = CounterMetricFamily(
            "penstock_policy_verdicts",
            "Messages a policy allowed, deferred, blocked, or would have (shadowed).",
            labels=["policy", "verdict"],
        )
        for (policy, verdict), number in sorted(self._observer.policies.items()):
            family.add_metric([policy, verdict], number)
        return family


def _histogram(name: str, about: str, by_route: Mapping[str, Lateness]) -> Metric:
    family = HistogramMetricFamily(name, about, labels=["route"])
    for route, late in sorted(by_route.items()):
        buckets = cumulative(_LATENESS_SECONDS, late.buckets)
        family.add_metric([route], buckets, sum_value=late.total / 1000)
    return family


def _planting(worker: Worker) -> Metric:
    lag = GaugeMetricFamily(
        "penstock_recurring_lag_seconds",
        "How long the oldest rule had waited to be planted when this process last looked.",
    )
    lag.add_metric([], worker.planting_lag / 1000)
    return lag


def _lanes(worker: Worker) -> Iterable[Metric]:
    in_flight = GaugeMetricFamily(
        "penstock_in_flight_messages", "Messages being sent by this process.", labels=["route"]
    )
    capacity = GaugeMetricFamily(
        "penstock_capacity_messages", "Most messages in flight.", labels=["route"]
    )
    breaker = GaugeMetricFamily(
        "penstock_breaker_open", "1 while the sink does not answer.", labels=["route"]
    )
    overdue = GaugeMetricFamily(
        "penstock_overdue_sends",
        "Sends under way for longer than the route's timeout.",
        labels=["route"],
    )
    for route, lane in sorted(worker.lanes.items()):
        in_flight.add_metric([route], lane.in_flight)
        capacity.add_metric([route], lane.capacity)
        breaker.add_metric([route], int(lane.breaker.is_open))
        overdue.add_metric([route], lane.overdue)
    return in_flight, capacity, breaker, overdue


def _stored(figures: StoreFigures) -> Iterable[Metric]:
    pending = GaugeMetricFamily(
        "penstock_pending_messages", "Messages that wait in the store.", labels=["route"]
    )
    overdue = GaugeMetricFamily(
        "penstock_overdue_messages",
        "Messages waiting in the store past their due.",
        labels=["route"],
    )
    leased = GaugeMetricFamily(
        "penstock_leased_messages", "Messages claimed by a worker.", labels=["route"]
    )
    dead = GaugeMetricFamily(
        "penstock_dead_messages", "Dead letters in the store.", labels=["route"]
    )
    for route, now in sorted(figures.routes.items()):
        pending.add_metric([route], now.scheduled)
        overdue.add_metric([route], now.overdue)
        leased.add_metric([route], now.leased)
        dead.add_metric([route], now.dead)
    return pending, overdue, leased, dead
