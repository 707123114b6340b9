"""How often a lane asks the store: as often as something may be due, and no more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

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
