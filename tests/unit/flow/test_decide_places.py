"""Places in a cap: taken with ALLOW, kept by what may have arrived, otherwise given back."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.outcome import DELIVERED, Action, Amendment, Dead, Retry, SendOutcome
from penstock.model.route import Route
from penstock.model.state import State
from tests.unit.flow.rig import Engine, used

MINUTE = 60_000
DAILY: dict[str, object] = {"kind": "cap", "scope": ["key"], "limit": 2, "window": "24h"}
BRIEF: dict[str, object] = {"kind": "cap", "scope": ["key"], "limit": 1, "window": "1m"}


def _cancel(message_id: str) -> Amendment:
    return Amendment(action=Action.CANCEL, id=message_id)


async def test_a_definite_failure_gives_the_place_back(engine: Engine) -> None:
    await engine.put_policies(brief=BRIEF)
    engine.sink.behave = lambda message: Dead("no such user") if message.id == "bad" else DELIVERED
    await engine.schedule(id="bad", key="ann")
    async with engine.working():
        await engine.clock.advance(100)
        assert await used(engine, "ann") == 0
        await engine.schedule(id="good", key="ann")
        await engine.clock.advance(100)
    assert engine.sink.ids == ["bad", "good"]


@pytest.mark.parametrize(
    ("last", "counted"),
    [
        (Retry("no answer in 10 s", unreachable=True), 1),
        (Retry("cannot connect", unreachable=True, unsure=False), 0),
        (Retry("answered 500"), 0),
    ],
)
async def test_a_dead_message_that_may_have_arrived_counts(
    engine: Engine, last: Retry, counted: int
) -> None:
    await engine.put_policies(brief=BRIEF)
    engine.add_route(Route(name="once", max_attempts=1), engine.sink)
    engine.sink.behave = lambda _: last
    await engine.schedule(id="m", key="ann", route="once")
    async with engine.working():
        await engine.clock.advance(100)
        assert await engine.state("m") is State.DEAD
        assert await used(engine, "ann") == counted


async def test_a_message_that_is_tried_again_keeps_its_place(engine: Engine) -> None:
    await engine.put_policies(brief=BRIEF)
    outcomes: list[SendOutcome] = [Retry("503", after=30.0), DELIVERED]
    engine.sink.behave = lambda message: outcomes.pop(0) if message.id == "first" else DELIVERED
    await engine.schedule(id="first", key="ann")
    async with engine.working():
        await engine.clock.advance(100)
        await engine.schedule(id="second", key="ann")
        await engine.clock.advance(30_000)
        assert engine.sink.ids == ["first", "first"]
        assert (await engine.find("first")).state is State.DELIVERED
        await engine.clock.advance(2 * MINUTE)
    assert engine.sink.ids == ["first", "first", "second"]
    assert engine.sink.sent[2][2] - engine.sink.sent[1][2] >= MINUTE


@pytest.mark.parametrize(
    ("outcome", "counted"),
    [(Retry("503", after=20.0), 0), (Retry("no answer in 10 s", unreachable=True), 1)],
    ids=["gives its place back", "counts if it may have arrived"],
)
async def test_a_cancelled_retry(engine: Engine, outcome: Retry, counted: int) -> None:
    await engine.put_policies(brief=BRIEF)
    engine.sink.behave = lambda _: outcome
    engine.sink.gate = asyncio.Event()
    await engine.schedule(id="m", key="ann")
    async with engine.working():
        await engine.clock.advance(100)
        await engine.store.amend([_cancel("m")], engine.clock.now())
        engine.sink.gate.set()
        await engine.clock.advance(100)
        assert await engine.state("m") is State.CANCELLED
        assert await used(engine, "ann") == counted


async def test_sends_under_way_count_before_they_are_done(engine: Engine) -> None:
    await engine.put_policies(brief=BRIEF)
    engine.sink.gate = asyncio.Event()
    await engine.schedule(id="slow", key="ann")
    async with engine.working():
        await engine.clock.advance(10_000)
        await engine.schedule(id="next", key="ann")
        await engine.clock.advance(10_000)
        assert engine.sink.ids == ["slow"]
        engine.sink.gate.set()
        await engine.clock.advance(100)
        assert await used(engine, "ann") == 1


async def test_a_crash_between_allow_and_settle_counts_the_message_once(engine: Engine) -> None:
    await engine.put_policies(daily=DAILY)
    await engine.schedule(id="m", key="ann")
    claim = await engine.store.claim("default", 10, 1_000, engine.clock.now())
    assert engine.policies is not None
    await engine.policies.decide(claim.messages, engine.clock.now(), 600_000)
    assert await used(engine, "ann") == 1  # and here the worker dies
    async with engine.working():
        await engine.clock.advance(5_000)
    assert engine.sink.sent[0][:2] == ("m", 2)
    assert await used(engine, "ann") == 1


async def test_a_message_that_died_with_its_workers_counts(engine: Engine) -> None:
    await engine.put_policies(brief=BRIEF)
    engine.add_route(Route(name="once", max_attempts=1), engine.sink)
    await engine.schedule(id="m", key="ann", route="once")
    claim = await engine.store.claim("once", 10, 1_000, engine.clock.now())
    assert engine.policies is not None
    await engine.policies.decide(claim.messages, engine.clock.now(), 600_000)
    async with engine.working():
        await engine.clock.advance(5_000)
    assert await engine.state("m") is State.DEAD
    assert engine.sink.ids == []
    assert await used(engine, "ann") == 1  # the worker may have sent it before it died
