"""Prometheus: the observer's counters and the store's figures in its text format."""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock.flow.observe import LATENESS_MS, Observer
from penstock.model.query import StoreFigures

CONTENT_TYPE = CONTENT_TYPE_LATEST


def render(observer: Observer, figures: StoreFigures) -> bytes:
    """Everything, as it is now."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Now(observer, figures))
    return generate_latest(registry)


class _Now(Collector):
    def __init__(self, observer: Observer, figures: StoreFigures) -> None:
        self._observer = observer
        self._figures = figures

    def collect(self) -> Iterable[Metric]:
        yield self._counts()
        yield self._lateness()
        yield from self._held()

    def _counts(self) -> Metric:
        family = CounterMetricFamily(
            "penstock_messages", "Messages that passed a stage here.", labels=["stage", "route"]
        )
        for (stage, route), number in sorted(self._observer.counts.items()):
            family.add_metric([stage, route], number)
        return family

    def _lateness(self) -> Metric:
        family = HistogramMetricFamily(
            "penstock_lateness_seconds", "released - due.", labels=["route"]
        )
        for route, late in sorted(self._observer.lateness.items()):
            seen = 0
            buckets: list[tuple[str, float]] = []
            for bound, number in zip(LATENESS_MS, late.buckets, strict=False):
                seen += number
                buckets.append((str(bound / 1000), seen))
            buckets.append(("+Inf", late.count))
            family.add_metric([route], buckets, sum_value=late.total / 1000)
        return family

    def _held(self) -> Iterable[Metric]:
        pending = GaugeMetricFamily(
            "penstock_held_messages", "Messages the store holds.", labels=["route", "state"]
        )
        overdue = GaugeMetricFamily(
            "penstock_overdue_messages", "Scheduled messages past their due.", labels=["route"]
        )
        for route, held in sorted(self._figures.routes.items()):
            pending.add_metric([route, "scheduled"], held.scheduled)
            pending.add_metric([route, "leased"], held.leased)
            pending.add_metric([route, "dead"], held.dead)
            overdue.add_metric([route], held.overdue)
        yield pending
        yield overdue
