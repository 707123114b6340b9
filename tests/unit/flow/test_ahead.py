"""The next claim is made while policies are asked about those before."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from penstock.flow.policies import Policies
from penstock.flow.release import DECIDING
from penstock.model.decision import Decision
from penstock.model.message import Message
from penstock.model.state import State
from tests.unit.flow.rig import Engine

CAP: dict[str, object] = {"kind": "cap", "scope": ["key"], "limit": 100, "window": "24h"}
BATCH = 5
ALL = (DECIDING + 2) * BATCH


class Slow:
    """Asks the policies when it is let."""

    def __init__(self, policies: Policies) -> None:
        self._decide = policies.decide
        self.let = asyncio.Semaphore(0)
        self.asked: list[list[str]] = []
        self.error: Exception | None = None

    async def decide(self, messages: Sequence[Message], now: int, hold: int) -> Sequence[Decision]:
        self.asked.append([message.id for message in messages])
        await self.let.acquire()
        if self.error is not None:
            raise self.error
        return await self._decide(messages, now, hold)


@pytest.fixture
async def slow(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Slow:
    """Some batches of messages, and policies that take their time."""
    assert engine.policies is not None
    await engine.put_policies(cap=CAP)
    engine.batch_size = BATCH
    for number in range(ALL):
        await engine.schedule(id=f"m{number:02}", key=f"k{number}")
    slow = Slow(engine.policies)
    monkeypatch.setattr(engine.policies, "decide", slow.decide)
    return slow


async def states(engine: Engine) -> list[State]:
    return [await engine.state(f"m{number:02}") for number in range(ALL)]


async def test_a_batch_is_claimed_while_those_before_are_decided_and_all_go_in_order(
    engine: Engine, slow: Slow
) -> None:
    async with engine.working():
        await engine.clock.advance(100)
        assert len(slow.asked) == DECIDING
        claimed = (DECIDING + 1) * BATCH
        assert await states(engine) == [State.LEASED] * claimed + [State.SCHEDULED] * BATCH
        for _ in range(DECIDING + 2):
            slow.let.release()
            await engine.clock.advance(100)
    assert [len(asked) for asked in slow.asked] == [BATCH] * (DECIDING + 2)
    assert engine.sink.ids == [f"m{number:02}" for number in range(ALL)]


async def test_no_more_is_claimed_than_a_pace_leaves_beside_what_is_not_decided(
    engine: Engine, slow: Slow
) -> None:
    burst = BATCH + 2
    await engine.put_policies(pace={"kind": "pace", "rate": "1/m", "burst": burst})
    slow.let = asyncio.Semaphore(9)
    async with engine.working():
        await engine.clock.advance(1_000)
    assert len(engine.sink.ids) == burst
    assert engine.observer.counts["deferred", "default"] == 0  # the rest waits in its order
    assert await states(engine) == [State.DELIVERED] * burst + [State.SCHEDULED] * (ALL - burst)


async def test_what_is_decided_first_waits_until_it_is_its_turn_to_go(
    engine: Engine, slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine.policies is not None
    first, decide = asyncio.Event(), slow.decide

    async def first_is_last(messages: Sequence[Message], now: int, hold: int) -> Sequence[Decision]:
        decisions = await decide(messages, now, hold)
        if messages[0].id == "m00":
            await first.wait()
        return decisions

    monkeypatch.setattr(engine.policies, "decide", first_is_last)
    slow.let = asyncio.Semaphore(9)
    async with engine.working():
        await engine.clock.advance(100)
        assert engine.sink.ids == []
        first.set()
        await engine.clock.advance(100)
    assert engine.sink.ids == [f"m{number:02}" for number in range(ALL)]


async def test_a_worker_that_stops_waits_for_what_is_decided(engine: Engine, slow: Slow) -> None:
    async with engine.working():
        await engine.clock.advance(100)
        for _ in range(DECIDING + 1):
            slow.let.release()
    gone = (DECIDING + 1) * BATCH
    assert len(engine.sink.ids) == gone
    assert await states(engine) == [State.DELIVERED] * gone + [State.SCHEDULED] * BATCH


async def test_what_goes_wrong_while_deciding_ends_the_worker(engine: Engine, slow: Slow) -> None:
    slow.error = ArithmeticError("nonsense")
    slow.let.release()
    with pytest.raises(BaseExceptionGroup) as caught:
        async with engine.working():
            await engine.clock.advance(100)
    assert caught.group_contains(ArithmeticError, match="nonsense")
