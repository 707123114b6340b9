"""Figures of the promoter under the Dispatcher's names, for Prometheus and the actuator."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from penstock.model.durations import DURATION_SECONDS, Durations
from penstock.rooms.parts import RoomParts
from penstock.telemetry.histogram import cumulative

CONTENT_TYPE = CONTENT_TYPE_LATEST
PROMOTIONS = "dispatcher.promotions.total"
DURATION = "dispatcher.promotion.duration"
ACTIVE = "dispatcher.thread.pool.active"
QUEUE = "dispatcher.queue.size"
SCRIPTS = "dispatcher.lua.script.duration"
ERRORS = "dispatcher.redis.errors.total"
_NOT_PROMETHEUS = re.compile(r"[.-]")


@dataclass(frozen=True)
class Meter:
    """One metric as the actuator shows it."""

    values: Mapping[str, float]
    """Statistic → value."""
    unit: str | None = None


def prometheus_name(dotted: str) -> str:
    return _NOT_PROMETHEUS.sub("_", dotted)


def meters_of(rooms: RoomParts | None) -> dict[str, Meter]:
    """Every metric by its Micrometer name; timers in seconds, as Micrometer has them."""
    if rooms is None:
        return {}
    promoter, calls = rooms.promoter, rooms.calls()
    figures = promoter.figures
    return {
        PROMOTIONS: Meter({"COUNT": figures.promotions}),
        DURATION: _timer(figures.durations, promoter.seconds),
        ACTIVE: Meter({"VALUE": figures.active}),
        QUEUE: Meter({"VALUE": promoter.queue_size}),
        SCRIPTS: _timer(calls.scripts, calls.seconds),
        ERRORS: Meter({"COUNT": calls.errors + figures.errors}),
        "executor.active": Meter({"VALUE": figures.active}, "threads"),
        "executor.pool.size": Meter({"VALUE": promoter.workers}, "threads"),
        "executor.pool.core": Meter({"VALUE": promoter.workers}, "threads"),
        "executor.pool.max": Meter({"VALUE": promoter.workers}, "threads"),
        "executor.queued": Meter({"VALUE": promoter.queue_size}, "tasks"),
        "executor.queue.remaining": Meter(
            {"VALUE": promoter.queue_limit - promoter.queue_size}, "tasks"
        ),
    }


def names_of(rooms: RoomParts | None) -> list[str]:
    """The available names: Micrometer's, and the Dispatcher's own in Prometheus."""
    dotted = list(meters_of(rooms))
    return sorted({*dotted, *(prometheus_name(n) for n in dotted if n.startswith("dispatcher."))})


def meter_of(rooms: RoomParts | None, name: str) -> Meter | None:
    """The metric of that name; by Prometheus' names, timers are in milliseconds."""
    meters = meters_of(rooms)
    if name in meters:
        return meters[name]
    spelled = {prometheus_name(dotted): meter for dotted, meter in meters.items()}
    meter = spelled.get(prometheus_name(name))
    if meter is None or meter.unit != "seconds" or "." in name:
        return meter
    millis = {key: v if key == "COUNT" else v * 1000 for key, v in meter.values.items()}
    return Meter(millis, "milliseconds")


def _timer(durations: Durations, now: float) -> Meter:
    values = {"COUNT": durations.count, "TOTAL_TIME": durations.total}
    return Meter({**values, "MAX": durations.longest(now)}, "seconds")


class RoomCollector(Collector):
    """The figures for Prometheus; timers in milliseconds, and in seconds as is usual there."""

    def __init__(self, rooms: RoomParts) -> None:
        self._rooms = rooms

    def collect(self) -> Iterable[Metric]:
        meters = meters_of(self._rooms)
        for name, about in (
            (PROMOTIONS, "People let in by this process."),
            (ERRORS, "Calls of the store that failed."),
        ):
            yield CounterMetricFamily(
                prometheus_name(name).removesuffix("_total"),
                about,
                value=meters[name].values["COUNT"],
            )
        for name, about in (
            (ACTIVE, "Workers that promote now."),
            (QUEUE, "Tasks that wait for a worker."),
        ):
            yield GaugeMetricFamily(
                prometheus_name(name), about, value=meters[name].values["VALUE"]
            )
        for name, about, durations in (
            (DURATION, "Steps of promotion", self._rooms.promoter.figures.durations),
            (SCRIPTS, "Scripts run in the store", self._rooms.calls().scripts),
        ):
            longest = meters[name].values["MAX"]
            yield from _histograms(prometheus_name(name), about, durations, longest)


def _histograms(name: str, about: str, durations: Durations, longest: float) -> Iterable[Metric]:
    millis = [f"{bound * 1000:g}" for bound in DURATION_SECONDS]
    for unit, bounds, factor in (("", millis, 1000.0), ("_seconds", DURATION_SECONDS, 1.0)):
        family = HistogramMetricFamily(
            f"{name}{unit}", f"{about}{'.' if unit else ', in milliseconds.'}"
        )
        buckets = cumulative(bounds, durations.buckets)
        family.add_metric([], buckets, sum_value=durations.total * factor)
        yield family
    yield GaugeMetricFamily(
        f"{name}_seconds_max", f"{about}: the longest of the last minute or two.", value=longest
    )


def collectors(rooms: RoomParts | None) -> list[Collector]:
    """The promoter's collectors for /metrics."""
    return [] if rooms is None else [RoomCollector(rooms)]


def render_rooms(rooms: RoomParts | None) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors(rooms):
        registry.register(collector)
    return generate_latest(registry)
