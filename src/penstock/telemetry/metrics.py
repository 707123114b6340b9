"""Prometheus: what the observer counted, read when somebody asks; a message costs nothing."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock.flow.observe import Observer
from penstock.flow.worker import Worker
from penstock.model.lateness import LATENESS_MS, Lateness
from penstock.model.query import StoreFigures

CONTENT_TYPE = CONTENT_TYPE_LATEST


def render(
    observer: Observer, figures: StoreFigures | None = None, worker: Worker | None = None
) -> bytes:
    """Everything as it is now, in Prometheus' text format, the process itself included."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(PenstockCollector(observer, figures, worker))
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    return generate_latest(registry)


class PenstockCollector(Collector):
    """For a program that has a registry of its own: `REGISTRY.register(PenstockCollector(…))`."""

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
        yield self._messages()
        yield self._lateness()
        yield self._early()
        if self._worker is not None:
            yield from _lanes(self._worker)
        if self._figures is not None:
            yield from _held(self._figures)

    def _messages(self) -> Metric:
        family = CounterMetricFamily(
            "penstock_messages", "Messages that passed a stage here.", labels=["stage", "route"]
        )
        for (stage, route), number in sorted(self._observer.counts.items()):
            family.add_metric([stage, route], number)
        return family

    def _lateness(self) -> Metric:
        family = HistogramMetricFamily(
            "penstock_lateness_seconds", "From due to released.", labels=["route"]
        )
        for route, late in sorted(self._observer.lateness.items()):
            family.add_metric([route], _cumulative(late), sum_value=late.total / 1000)
        return family

    def _early(self) -> Metric:
        family = CounterMetricFamily(
            "penstock_early", "Messages released before they were due.", labels=["route"]
        )
        for route, late in sorted(self._observer.lateness.items()):
            family.add_metric([route], late.early)
        return family


def _cumulative(late: Lateness) -> list[tuple[str, float]]:
    seen = 0
    buckets: list[tuple[str, float]] = []
    for bound, number in zip(LATENESS_MS, late.buckets, strict=False):
        seen += number
        buckets.append((str(bound / 1000), seen))
    return [*buckets, ("+Inf", late.count)]


def _lanes(worker: Worker) -> Iterable[Metric]:
    in_flight = GaugeMetricFamily(
        "penstock_in_flight", "Messages being sent by this process.", labels=["route"]
    )
    capacity = GaugeMetricFamily(
        "penstock_capacity", "Messages in flight at most.", labels=["route"]
    )
    breaker = GaugeMetricFamily(
        "penstock_breaker_open", "1 while the sink does not answer.", labels=["route"]
    )
    for route, lane in sorted(worker.lanes.items()):
        in_flight.add_metric([route], lane.in_flight)
        capacity.add_metric([route], lane.capacity)
        breaker.add_metric([route], int(lane.breaker.is_open))
    return in_flight, capacity, breaker


def _held(figures: StoreFigures) -> Iterable[Metric]:
    held = GaugeMetricFamily(
        "penstock_held_messages", "Messages the store holds.", labels=["route", "state"]
    )
    overdue = GaugeMetricFamily(
        "penstock_overdue_messages", "Scheduled messages past their due.", labels=["route"]
    )
    for route, now in sorted(figures.routes.items()):
        held.add_metric([route, "scheduled"], now.scheduled)
        held.add_metric([route, "leased"], now.leased)
        held.add_metric([route, "dead"], now.dead)
        overdue.add_metric([route], now.overdue)
    return held, overdue
