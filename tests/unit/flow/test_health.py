"""Each part of a process with its details."""

from __future__ import annotations

from penstock.flow.health import BEHIND_MS, sink_health, worker_health
from penstock.model.fleet import LaneState
from penstock.model.query import RouteFigures

NOW = 1_900_000_000_000
LANE = LaneState(sink="log://", in_flight=1, capacity=2, waiting_for_sink=False)
AWAY = LaneState(sink="log://", in_flight=0, capacity=2, waiting_for_sink=True)
LATE = RouteFigures(scheduled=3, overdue=2, next_due=NOW - BEHIND_MS - 1_000)


def test_without_a_worker_there_is_none() -> None:
    assert worker_health({}, {"r": LATE}, (), NOW).status == "none"


def test_a_worker_with_nothing_overdue_is_well() -> None:
    later = RouteFigures(scheduled=1, next_due=NOW + 1)
    found = worker_health({"r": LANE, "empty": LANE}, {"r": later}, (), NOW)
    assert (found.status, found.facts) == ("ok", {"lag_seconds": 0.0, "overdue": 0})


def test_a_worker_that_does_not_keep_up_is_behind() -> None:
    found = worker_health({"r": LANE}, {"r": LATE, "of others": LATE}, (), NOW)
    assert (found.status, found.facts) == ("behind", {"lag_seconds": 6.0, "overdue": 2})
    assert found.detail == "r has messages that were due 6.0 s ago"


def test_what_a_pause_or_a_sink_holds_back_is_no_lag() -> None:
    assert worker_health({"r": LANE}, {"r": LATE}, {"r"}, NOW).status == "ok"
    assert worker_health({"r": AWAY}, {"r": LATE}, (), NOW).status == "ok"


def test_a_sink_that_does_not_answer_is_told() -> None:
    assert sink_health(LANE).status == "ok"
    found = sink_health(AWAY)
    assert found.status == "waiting"
    assert found.facts["breaker_open"] is True
