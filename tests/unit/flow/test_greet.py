"""A worker that starts does not know yet whether somebody is there."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from penstock.flow.breaker import TRIP_AFTER
from penstock.model.errors import SinkUnavailable
from penstock.model.message import Message
from penstock.model.outcome import Retry, SendOutcome
from penstock.model.route import Route
from tests.unit.flow.rig import Engine, FakeSink

MESSAGES = 50


class Greeted(FakeSink):
    """Says what came in one send, and whether it is there as the test wants it."""

    name = "greeted://"
    refuses = False
    door: asyncio.Event | None = None
    """While set and not open, checks hang."""

    @property
    def sizes(self) -> list[int]:
        return self._sizes

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine.clock)
        self._sizes: list[int] = []

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        self._sizes.append(len(batch))
        return await super().send(batch)

    async def check(self) -> None:
        if self.door is not None:
            await self.door.wait()
        if self.refuses:
            raise SinkUnavailable("nobody is there")


@pytest.fixture
async def sink(engine: Engine) -> Greeted:
    sink = Greeted(engine)
    engine.add_route(Route(name="r"), sink)
    for _ in range(MESSAGES):
        await engine.schedule(route="r")
    return sink


async def test_a_sink_that_is_gone_costs_a_few_messages_an_attempt_and_not_a_batch(
    engine: Engine, sink: Greeted
) -> None:
    sink.refuses = True
    sink.behave = lambda _: Retry("connection refused", unreachable=True)
    async with engine.working() as worker:
        await engine.clock.advance(100)
        assert worker.lanes["r"].breaker.is_open
        assert sink.sizes == [1] * TRIP_AFTER


async def test_to_a_sink_that_is_there_everything_goes_at_once(
    engine: Engine, sink: Greeted
) -> None:
    async with engine.working():
        await engine.clock.advance(10)
        assert sink.sizes == [MESSAGES]


async def test_a_sink_that_takes_a_message_is_there_whatever_its_check_said(
    engine: Engine, sink: Greeted
) -> None:
    sink.refuses = True
    async with engine.working():
        await engine.clock.advance(10)
        assert sink.sizes == [1, MESSAGES - 1]


async def test_a_check_that_ends_well_lets_the_others_pass_a_message_that_hangs(
    engine: Engine, sink: Greeted
) -> None:
    sink.door = asyncio.Event()
    sink.gate = asyncio.Event()
    async with engine.working():
        await engine.clock.advance(1_000)
        assert sink.sizes == [1]
        sink.door.set()
        await engine.clock.advance(10)
        assert sink.sizes == [1, MESSAGES - 1]
        sink.gate.set()
        await engine.clock.advance(10)
