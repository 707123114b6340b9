"""Prometheus figures are what the observer counted."""

from typing import cast

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.flow.observe import Observer
from penstock.flow.worker import Worker
from penstock.model.errors import StoreUnavailable
from penstock.model.query import RouteFigures, StoreFigures
from penstock.model.route import Route
from penstock.ports.store import MessageStore, Store
from penstock.sinks.log import LogSink
from penstock.telemetry.metrics import CONTENT_TYPE, render
from penstock.time.clock import SystemClock


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
    assert found["penstock_early_messages_total", (("route", "push"),)] == 1


def test_what_the_store_holds_is_shown_when_given() -> None:
    held = RouteFigures(scheduled=5, overdue=2, leased=1, dead=4)
    figures = StoreFigures(routes={'odd"\n': held}, states={})
    found = samples(render(Observer(), figures))
    assert found["penstock_pending_messages", (("route", 'odd"\n'),)] == 5
    assert found["penstock_leased_messages", (("route", 'odd"\n'),)] == 1
    assert found["penstock_dead_messages", (("route", 'odd"\n'),)] == 4
    assert found["penstock_overdue_messages", (("route", 'odd"\n'),)] == 2


class NoStore:
    """As much of a store as a worker needs that is never run."""

    clock = SystemClock()

    def listen(self, listener: object) -> None: ...


def test_a_workers_lanes_are_shown_when_given() -> None:
    sink = LogSink()
    route = Route(name="push", semaphore_limit=7)
    store = Store(messages=cast("MessageStore", NoStore()))
    worker = Worker(store, {"push": (route, sink)}, Observer())
    worker.lanes["push"].in_flight = 3
    found = samples(render(Observer(), worker=worker))
    assert found["penstock_in_flight_messages", (("route", "push"),)] == 3
    assert found["penstock_capacity_messages", (("route", "push"),)] == 7
    assert found["penstock_breaker_open", (("route", "push"),)] == 0


def test_sends_are_a_histogram_of_messages_by_how_long_they_took() -> None:
    observer = Observer()
    observer.sent("push", 40, 10)
    observer.sent("push", 700, 1)
    found = samples(render(observer))
    assert found["penstock_delivery_seconds_bucket", (("le", "0.06"), ("route", "push"))] == 10
    assert found["penstock_delivery_seconds_count", (("route", "push"),)] == 11
    assert found["penstock_delivery_seconds_sum", (("route", "push"),)] == 1.1


def test_store_calls_are_timed_and_their_errors_counted() -> None:
    observer = Observer(iter([1.0, 1.25, 2.0]).__next__)
    with observer.asking("claim"):
        pass
    with pytest.raises(StoreUnavailable), observer.asking("claim"):
        raise StoreUnavailable("away")
    found = samples(render(observer))
    assert found["penstock_store_call_seconds_count", (("call", "claim"),)] == 1
    assert found["penstock_store_call_seconds_sum", (("call", "claim"),)] == 0.25
    assert found["penstock_store_errors_total", (("call", "claim"),)] == 1


def test_policies_are_counted_by_verdict() -> None:
    observer = Observer()
    observer.bound("three-a-day", "deferred", 5)
    labels = (("policy", "three-a-day"), ("verdict", "deferred"))
    assert samples(render(observer))["penstock_policy_verdicts_total", labels] == 5


def test_lost_leases_have_a_counter_of_their_own() -> None:
    observer = Observer()
    observer.count("recovered", "push", 2)
    found = samples(render(observer))
    assert found["penstock_lease_recoveries_total", (("route", "push"),)] == 2


def test_rooms_are_no_label_since_there_may_be_any_number_of_them() -> None:
    observer = Observer()
    observer.visited("joined", 2)
    observer.visited("joined", 3)
    observer.visited("revoked")
    text = render(observer)
    assert samples(text)["penstock_room_visitors_total", (("stage", "joined"),)] == 5
    assert samples(text)["penstock_room_visitors_total", (("stage", "revoked"),)] == 1
    assert not [name for name, _ in samples(text) if name == "penstock_messages_total"]


def test_the_process_itself_is_measured() -> None:
    assert samples(render(Observer()))["process_resident_memory_bytes", ()] > 0
    assert CONTENT_TYPE.startswith("text/plain")
