"""What a kill repeats is bounded: no send begins while too much is sent and not settled."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from penstock.flow.release import SETTLE_AHEAD
from penstock.model.outcome import Settlement
from penstock.model.route import Route
from penstock.model.state import State
from tests.unit.flow.rig import Engine, FakeSink

MESSAGES = 400


@pytest.fixture
def store_open(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """While not set, the store takes no settlement."""
    is_open = asyncio.Event()
    settle = engine.store.settle

    async def late(settlements: Sequence[Settlement], now: int) -> list[State | None]:
        await is_open.wait()
        return await settle(settlements, now)

    monkeypatch.setattr(engine.store, "settle", late)
    return is_open


async def _sent(engine: Engine, route: Route, *, max_batch: int) -> FakeSink:
    sink = FakeSink(engine.clock, max_batch=max_batch, concurrency=10 * MESSAGES)
    engine.add_route(route, sink)
    engine.batch_size = MESSAGES
    for _ in range(MESSAGES):
        await engine.schedule(route=route.name)
    return sink


@pytest.mark.parametrize(
    ("settle_ahead", "max_batch", "sent"),
    [
        (10, 10, 10),
        (1, 10, 10),  # a batch is sent whole
        (25, 10, 30),
        (1, 1, 1),
        (None, 1, SETTLE_AHEAD),
        (None, 300, 300),
    ],
)
async def test_no_send_begins_while_that_many_are_sent_and_not_settled(
    engine: Engine,
    store_open: asyncio.Event,
    settle_ahead: int | None,
    max_batch: int,
    sent: int,
) -> None:
    sink = await _sent(engine, Route(name="r", settle_ahead=settle_ahead), max_batch=max_batch)
    async with engine.working():
        await engine.clock.advance(1_000)
        before = len(sink.sent)
        store_open.set()
        await engine.clock.advance(10_000)
    assert before == sent
    assert len(sink.sent) == MESSAGES
    assert engine.observer.total("delivered") == MESSAGES


async def test_what_waits_to_be_sent_at_the_end_of_a_shutdown_is_given_back_unsent(
    engine: Engine, store_open: asyncio.Event
) -> None:
    sink = await _sent(engine, Route(name="r", settle_ahead=1), max_batch=1)
    worker = engine.worker()
    running = asyncio.create_task(worker.run())
    await engine.clock.advance(100)
    worker.stop()
    await engine.clock.advance(6_000)
    store_open.set()
    await engine.clock.advance(6_000)
    await running
    assert len(sink.sent) == 1
    assert engine.observer.total("delivered") == 1
    assert engine.observer.total("returned") > 0
