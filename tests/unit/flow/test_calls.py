"""Calls that cannot be interrupted keep their lease: nobody makes them again beside themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from penstock.flow.health import sink_health
from penstock.flow.worker import Worker
from penstock.model.fleet import LaneState
from penstock.model.message import Message
from penstock.model.outcome import SendOutcome
from penstock.model.route import Route
from penstock.model.state import State
from tests.unit.flow.rig import Engine, FakeSink

LONG = 200_000
"""Milliseconds: many leases."""


class InThreads(FakeSink):
    """Its calls go on when they are cancelled."""

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        sending = asyncio.ensure_future(super().send(batch))
        while not sending.done():
            try:
                await asyncio.shield(sending)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                assert task is not None
                task.uncancel()
        return sending.result()


async def _hanging(engine: Engine, route: Route) -> InThreads:
    sink = InThreads(engine.clock)
    sink.gate = asyncio.Event()
    engine.add_route(route, sink)
    await engine.schedule(id="m", route=route.name)
    return sink


async def test_a_worker_that_stops_waits_for_them_with_their_lease_renewed(engine: Engine) -> None:
    sink = await _hanging(engine, Route(name="calls"))
    worker = engine.worker()
    running = asyncio.create_task(worker.run())
    await engine.clock.advance(10)
    worker.stop()
    await engine.clock.advance(LONG)
    assert not running.done()
    assert await engine.state("m") is State.LEASED
    assert await engine.store.reap(engine.clock.now(), 10) == []
    assert sink.gate is not None
    sink.gate.set()
    await engine.clock.advance(10)
    await running
    assert await engine.state("m") is State.DELIVERED
    assert len(sink.sent) == 1


async def test_a_worker_whose_process_ends_leaves_them_with_a_whole_lease(engine: Engine) -> None:
    sink = await _hanging(engine, Route(name="calls"))
    worker = Worker(
        engine.opened,
        engine.routes,
        engine.observer,
        lease=engine.lease,
        shutdown=5_000,
        leave_calls=True,
    )
    running = asyncio.create_task(worker.run())
    await engine.clock.advance(10)
    worker.stop()
    await engine.clock.advance(6_000)
    await running
    assert worker.calls_left
    assert await engine.state("m") is State.LEASED
    await engine.clock.advance(engine.lease - 1_000)
    assert await engine.store.reap(engine.clock.now(), 10) == []
    await engine.clock.advance(2_000)
    assert [reaped.id for reaped in await engine.store.reap(engine.clock.now(), 10)] == ["m"]
    assert sink.gate is not None
    sink.gate.set()


async def test_a_call_longer_than_the_routes_timeout_is_shown(engine: Engine) -> None:
    sink = await _hanging(engine, Route(name="calls", timeout=60_000))
    async with engine.working() as worker:
        lane = worker.lanes["calls"]
        await engine.clock.advance(60_000)
        assert lane.overdue == 0
        await engine.clock.advance(10_000)
        assert lane.overdue == 1
        assert sink.gate is not None
        sink.gate.set()
        await engine.clock.advance(10)
        assert lane.overdue == 0


def test_overdue_calls_are_told_by_the_health_of_their_route() -> None:
    lane = LaneState(sink="python:", in_flight=2, capacity=16, waiting_for_sink=False, overdue=2)
    found = sink_health(lane)
    assert found.status == "overdue"
    assert found.detail == "2 sends have been under way for longer than the route's timeout"
