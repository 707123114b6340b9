"""A worker whose requests reach the store and that gets no answers leaves messages to others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.model.errors import StoreUnavailable
from penstock.model.state import State
from tests.unit.flow.rig import Engine

CALLS = ("claim", "settle", "extend", "reap")


class Link:
    """Between the worker and the store."""

    def __init__(self, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
        self.requests_lost = self.answers_lost = False
        self.calls: list[str] = []
        """That arrived."""
        self.reap = engine.store.reap
        """By another process, whose link is fine."""
        for name in CALLS:
            monkeypatch.setattr(engine.store, name, self._over(name, getattr(engine.store, name)))

    def _over(self, name: str, call: Callable[..., Awaitable[Any]]) -> Any:
        async def over(*args: Any, **options: Any) -> Any:
            if self.requests_lost:
                raise StoreUnavailable("request lost")
            answer = await call(*args, **options)
            self.calls.append(name)
            if self.answers_lost:
                raise StoreUnavailable("answer lost")
            return answer

        return over


@pytest.fixture
def link(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Link:
    return Link(engine, monkeypatch)


async def test_a_worker_that_gets_no_answers_for_a_lease_keeps_no_lease(
    engine: Engine, link: Link
) -> None:
    engine.sink.gate = asyncio.Event()
    await engine.schedule(id="m")
    async with engine.working():
        await engine.clock.advance(2 * engine.lease)
        link.answers_lost = True
        for _ in range(3 * 30):
            await engine.clock.advance(1_000)
        assert [one.state for one in await link.reap(engine.clock.now(), 10)] == [State.SCHEDULED]
        link.answers_lost = False
        engine.sink.gate.set()


async def test_a_worker_that_gets_no_answers_for_a_lease_claims_nothing(
    engine: Engine, link: Link
) -> None:
    async with engine.working():
        await engine.clock.advance(1_000)
        link.answers_lost = True
        await engine.schedule(id="before")
        for _ in range(5 * 30):
            await engine.clock.advance(1_000)
            await link.reap(engine.clock.now(), 10)
        assert (await engine.find("before")).attempt == 1
        await engine.schedule(id="after")
        link.calls.clear()
        await engine.clock.advance(engine.lease)
        assert set(link.calls) == {"reap"}
        assert await engine.state("after") is State.SCHEDULED
        link.answers_lost = False
        await engine.clock.advance(1_000)
        assert set(engine.sink.ids) == {"before", "after"}


async def test_after_the_store_was_away_for_longer_than_a_lease_a_send_keeps_its_message(
    engine: Engine, link: Link
) -> None:
    engine.sink.gate = asyncio.Event()
    await engine.schedule(id="m")
    async with engine.working():
        await engine.clock.advance(1_000)
        link.requests_lost = True
        for _ in range(2 * 30):
            await engine.clock.advance(1_000)
        link.requests_lost = False
        for _ in range(30):
            await engine.clock.advance(1_000)
        engine.sink.gate.set()
        await engine.clock.advance(1_000)
    assert engine.sink.ids == ["m"]
    assert await engine.state("m") is State.DELIVERED


async def test_what_dead_workers_left_comes_back_though_a_part_of_the_store_stays_away(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One node of a cluster fails every extension; reaping goes on in the others."""

    async def fails(*_: object) -> None:
        raise StoreUnavailable("one node is away")

    engine.sink.gate = asyncio.Event()
    await engine.schedule(id="held")
    async with engine.working():
        await engine.clock.advance(100)
        monkeypatch.setattr(engine.store, "extend", fails)
        await engine.clock.advance(15_000)
        await engine.schedule(id="left", route="elsewhere")
        await engine.store.claim("elsewhere", 10, 1_000, engine.clock.now())
        for _ in range(3 * 30):
            await engine.clock.advance(1_000)
        assert await engine.state("left") is State.SCHEDULED
        engine.sink.gate.set()
