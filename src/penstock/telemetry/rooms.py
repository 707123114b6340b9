"""Figures of the promoter, under the names the Dispatcher had, for Prometheus and the actuator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.registry import Collector

from penstock.rooms.parts import RoomParts

CONTENT_TYPE = CONTENT_TYPE_LATEST
PROMOTIONS = "dispatcher_promotions_total"
DURATION = "dispatcher_promotion_duration"
ACTIVE = "dispatcher_thread_pool_active"
QUEUE = "dispatcher_queue_size"
SCRIPTS = "dispatcher_lua_script_duration"
ERRORS = "dispatcher_redis_errors_total"


def figures_of(rooms: RoomParts | None) -> Mapping[str, Mapping[str, float]]:
    """Metric → statistic → value, timers in milliseconds as the Dispatcher had them."""
    if rooms is None:
        return {}
    promoter, calls = rooms.promoter, rooms.calls()
    figures = promoter.figures
    return {
        PROMOTIONS: {"COUNT": figures.promotions},
        DURATION: {"COUNT": figures.steps, "TOTAL_TIME": figures.millis},
        ACTIVE: {"VALUE": figures.active},
        QUEUE: {"VALUE": promoter.queue_size},
        SCRIPTS: {"COUNT": calls.scripts, "TOTAL_TIME": calls.script_seconds * 1000},
        ERRORS: {"COUNT": calls.errors + figures.errors},
        "executor.active": {"VALUE": figures.active},
        "executor.pool.size": {"VALUE": promoter.workers},
        "executor.queued": {"VALUE": promoter.queue_size},
        "executor.queue.remaining": {"VALUE": promoter.queue_limit - promoter.queue_size},
    }


class RoomCollector(Collector):
    """The same for Prometheus; timers also in seconds, as Prometheus wants them."""

    def __init__(self, rooms: RoomParts) -> None:
        self._rooms = rooms

    def collect(self) -> Iterable[Metric]:
        figures = figures_of(self._rooms)
        for name, about in (
            (PROMOTIONS, "People let in by this process."),
            (ERRORS, "Calls of the store that failed."),
        ):
            yield CounterMetricFamily(
                name.removesuffix("_total"), about, value=figures[name]["COUNT"]
            )
        for name, about in (
            (ACTIVE, "Workers that promote now."),
            (QUEUE, "Tasks that wait for a worker."),
        ):
            yield GaugeMetricFamily(name, about, value=figures[name]["VALUE"])
        for name, about in (
            (DURATION, "Steps of promotion."),
            (SCRIPTS, "Scripts run in the store."),
        ):
            count, millis = int(figures[name]["COUNT"]), figures[name]["TOTAL_TIME"]
            yield SummaryMetricFamily(name, f"{about} Milliseconds.", count, millis)
            yield SummaryMetricFamily(f"{name}_seconds", about, count, millis / 1000)


def render_rooms(rooms: RoomParts | None) -> bytes:
    registry = CollectorRegistry(auto_describe=False)
    if rooms is not None:
        registry.register(RoomCollector(rooms))
    return generate_latest(registry)
