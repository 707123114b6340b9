"""Each part of a process with its details."""

from __future__ import annotations

import asyncio

from penstock.flow.health import BEHIND_MS, sink_health, worker_health
from penstock.model.fleet import LaneState
from penstock.model.route import Route
from tests.unit.flow.rig import Engine, FakeSink

LANE = LaneState(sink="log://", in_flight=1, capacity=2, waiting_for_sink=False)
AWAY = LaneState(sink="log://", in_flight=0, capacity=2, waiting_for_sink=True)
LATE = LaneState(
    sink="log://", in_flight=2, capacity=2, waiting_for_sink=False, lag=BEHIND_MS + 1_000
)


def test_a_sink_that_never_answered_is_not_well() -> None:
    lane = LaneState(
        sink="kafka://b/t", in_flight=0, capacity=2, waiting_for_sink=False, reached=False
    )
    found = sink_health(lane)
    assert (found.status, found.facts["reached"]) == ("waiting", False)
    assert found.detail == "was not reached yet: messages go to it one by one until it answers"
    assert sink_health(LANE).status == "ok"


def test_without_a_worker_there_is_none() -> None:
    assert worker_health({}).status == "none"


def test_a_worker_that_keeps_up_is_well() -> None:
    found = worker_health({"r": LANE, "away": AWAY})
    assert (found.status, found.facts) == ("ok", {"lag_seconds": 0.0})


def test_a_worker_that_does_not_keep_up_is_behind() -> None:
    found = worker_health({"other": LANE, "r": LATE})
    assert (found.status, found.facts) == ("behind", {"lag_seconds": 6.0})
    assert found.detail == "r has messages that were due 6.0 s ago"


async def test_a_lane_lags_while_more_is_due_than_its_sink_takes(engine: Engine) -> None:
    sink = FakeSink(engine.clock, max_batch=1, concurrency=1)
    sink.gate = asyncio.Event()
    engine.add_route(Route(name="slow"), sink)
    for number in range(3):
        await engine.schedule(id=f"m{number}", route="slow")
    async with engine.working() as worker:
        await engine.clock.advance(2_000)
        assert worker.lanes["slow"].lag == 2_000
        assert worker.lanes["default"].lag == 0
        sink.gate.set()
        await engine.clock.advance(1_000)
        assert worker.lanes["slow"].lag == 0


def test_a_sink_that_does_not_answer_is_told() -> None:
    assert sink_health(LANE).status == "ok"
    found = sink_health(AWAY)
    assert found.status == "waiting"
    assert found.facts["breaker_open"] is True
