"""Prometheus figures are what the observer counted."""

from typing import cast

from prometheus_client.parser import text_string_to_metric_families

from penstock.flow.observe import Observer
from penstock.flow.worker import Worker
from penstock.model.clock import SystemClock
from penstock.model.query import RouteFigures, StoreFigures
from penstock.model.route import Route
from penstock.ports.store import MessageStore
from penstock.sinks.log import LogSink
from penstock.telemetry.metrics import CONTENT_TYPE, render


def samples(text: bytes) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
    }


def test_counts_are_by_stage_and_route() -> None:
    observer = Observer()
    observer.count("released", "push", 3)
    observer.count("delivered", "push", 2)
    found = samples(render(observer))
    assert found["penstock_messages_total", (("route", "push"), ("stage", "released"))] == 3
    assert found["penstock_messages_total", (("route", "push"), ("stage", "delivered"))] == 2


def test_lateness_is_a_cumulative_histogram_in_seconds() -> None:
    observer = Observer()
    observer.late("push", [0, 1, 4, 70, 10_000_000, -2])
    found = samples(render(observer))

    def bucket(bound: str) -> float:
        return found["penstock_lateness_seconds_bucket", (("le", bound), ("route", "push"))]

    assert [bucket(bound) for bound in ("0.001", "0.005", "0.1", "300.0", "+Inf")] == [
        3,
        4,
        5,
        5,
        6,
    ]
    assert found["penstock_lateness_seconds_count", (("route", "push"),)] == 6
    assert found["penstock_lateness_seconds_sum", (("route", "push"),)] == 10_000.073
    assert found["penstock_early_total", (("route", "push"),)] == 1


def test_what_the_store_holds_is_shown_when_given() -> None:
    held = RouteFigures(scheduled=5, overdue=2, leased=1, dead=4)
    figures = StoreFigures(routes={'odd"\n': held}, states={})
    found = samples(render(Observer(), figures))
    assert found["penstock_held_messages", (("route", 'odd"\n'), ("state", "dead"))] == 4
    assert found["penstock_overdue_messages", (("route", 'odd"\n'),)] == 2


class NoStore:
    """As much of a store as a worker needs that is never run."""

    clock = SystemClock()

    def listen(self, listener: object) -> None: ...


def test_a_workers_lanes_are_shown_when_given() -> None:
    sink = LogSink()
    route = Route(name="push", semaphore_limit=7)
    worker = Worker(cast("MessageStore", NoStore()), {"push": (route, sink)}, Observer())
    worker.lanes["push"].in_flight = 3
    found = samples(render(Observer(), worker=worker))
    assert found["penstock_in_flight", (("route", "push"),)] == 3
    assert found["penstock_capacity", (("route", "push"),)] == 7
    assert found["penstock_breaker_open", (("route", "push"),)] == 0


def test_the_process_itself_is_measured() -> None:
    assert samples(render(Observer()))["process_resident_memory_bytes", ()] > 0
    assert CONTENT_TYPE.startswith("text/plain")
