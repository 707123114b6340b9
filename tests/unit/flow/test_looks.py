"""How often a lane asks the store: as often as something may be due, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from penstock.flow.release import ANNOUNCED_POLL_MS
from penstock.model.outcome import Claim
from tests.unit.flow.rig import Engine


class Watched:
    """The store's claims: when they were asked, and something that happens in the middle of one."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[int] = []
        self.meanwhile: Callable[[], None] = lambda: None
        self._engine = engine
        self._start = engine.clock.now()
        self._claim = engine.store.claim
        monkeypatch.setattr(engine.store, "claim", self.claim)

    async def claim(self, route: str, limit: int, lease: int, now: int, max_bytes: int) -> Claim:
        self.asked.append(now - self._start)
        claim = await self._claim(route, limit, lease, now, max_bytes)
        self.meanwhile()
        for _ in range(20):  # whatever that sets in motion
            await asyncio.sleep(0)
        return claim


@pytest.fixture
def watched(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Watched:
    return Watched(engine, monkeypatch)


@pytest.mark.parametrize(("ahead", "looks"), [(5_000, [0, 50]), (7, [0, 7, 50]), (-1, [0, 0, 50])])
async def test_what_is_put_while_a_claim_is_under_way_is_looked_at_when_it_is_due(
    engine: Engine, watched: Watched, ahead: int, looks: list[int]
) -> None:
    await engine.schedule(id="m", delay="50ms")
    worker = engine.worker()

    def put() -> None:
        watched.meanwhile = lambda: None
        worker.lanes["default"].wake(engine.clock.now() + ahead)

    watched.meanwhile = put
    working = asyncio.create_task(worker.run())
    await engine.clock.advance(60)
    assert watched.asked == looks
    worker.stop()
    await engine.clock.advance(10)
    await working


async def test_what_is_settled_while_a_claim_is_under_way_causes_no_other(
    engine: Engine, watched: Watched
) -> None:
    engine.sink.gate = asyncio.Event()
    await engine.schedule(id="first", delay="10ms")
    await engine.schedule(id="second", delay="20ms")
    async with engine.working():
        await engine.clock.advance(10)
        watched.meanwhile = engine.sink.gate.set
        await engine.clock.advance(30)
        assert engine.observer.total("delivered") == 2
        assert watched.asked == [0, 10, 20]


async def test_what_comes_due_soon_after_a_claim_is_gathered_for_the_next(
    engine: Engine, watched: Watched
) -> None:
    engine.gather = 5
    for due in (10, 11, 12, 14, 15, 30):
        await engine.schedule(id=f"m{due}", delay=f"{due}ms")
    start = engine.clock.now()
    async with engine.working():
        await engine.clock.advance(60)
        assert watched.asked == [0, 10, 15, 30]
    sent = {name: at - start for name, _, at in engine.sink.sent}
    assert sent == {"m10": 10, "m11": 15, "m12": 15, "m14": 15, "m15": 15, "m30": 30}


async def test_what_is_put_soon_after_a_claim_waits_no_longer_than_it_is_gathered(
    engine: Engine, watched: Watched
) -> None:
    engine.gather = 5
    await engine.schedule(id="a", delay="10ms")
    async with engine.working():
        await engine.clock.advance(12)
        await engine.schedule(id="b")
        await engine.clock.advance(30)
        assert watched.asked == [0, 10, 15]


async def test_a_clock_set_back_does_not_keep_a_worker_gathering(
    engine: Engine, watched: Watched
) -> None:
    engine.gather = 5
    await engine.schedule(id="a", delay="10ms")
    async with engine.working():
        await engine.clock.advance(10)
        engine.clock.jump(-3_600_000)
        await engine.schedule(id="b")
        await engine.clock.settle()
        assert engine.sink.ids == ["a", "b"]


async def test_a_store_that_announces_what_others_put_is_asked_less_often(
    engine: Engine, watched: Watched
) -> None:
    engine.opened = replace(engine.opened, announces=lambda: True)
    async with engine.working():
        await engine.clock.advance(2 * ANNOUNCED_POLL_MS + 1)
        assert watched.asked == [0, ANNOUNCED_POLL_MS, 2 * ANNOUNCED_POLL_MS]
