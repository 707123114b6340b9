"""Intake: durable before it answers, one outcome each, group commit for single puts."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from penstock.flow.intake import Intake
from penstock.flow.observe import Observer
from penstock.model.draft import block
from penstock.model.errors import InvalidMessage, PenstockError, StoreUnavailable, UnknownRoute
from penstock.model.message import NewMessage
from penstock.model.outcome import Receipt
from penstock.sdk.asked import draft
from tests.unit.flow.rig import Engine


def _counted(engine: Engine, monkeypatch: pytest.MonkeyPatch, turns: int = 0) -> list[int]:
    """How many messages each call of the store has from now on; it takes so many turns."""
    sizes: list[int] = []
    put = engine.store.put

    async def counted(messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        sizes.append(len(messages))
        for _ in range(turns):
            await asyncio.sleep(0)
        return await put(messages, now)

    monkeypatch.setattr(engine.store, "put", counted)
    return sizes


async def test_in_a_batch_the_bad_do_not_hold_back_the_good(engine: Engine) -> None:
    outcomes = await engine.intake.schedule(
        [draft(1, id="a"), draft(2, id="b", delay=-1), draft(3, id="c"), draft(4, id="a")]
    )
    good, bad, also_good, again = outcomes
    assert isinstance(good, Receipt)
    assert isinstance(bad, InvalidMessage)
    assert isinstance(also_good, Receipt)
    assert isinstance(again, Receipt)
    assert (good.duplicate, again.duplicate) == (False, True)
    assert [m is not None for m in await engine.store.find(["a", "b", "c"])] == [True, False, True]


async def test_single_puts_of_one_moment_share_store_calls(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = _counted(engine, monkeypatch)
    receipts = await asyncio.gather(
        *(engine.intake.schedule_one(draft(i, id=f"m{i}")) for i in range(1_200))
    )
    assert [receipt.id for receipt in receipts] == [f"m{i}" for i in range(1_200)]
    assert len(sizes) <= 4
    assert max(sizes) <= 500


async def test_a_caller_by_itself_gives_others_their_turn(engine: Engine) -> None:
    """Also on a store that never waits for anything."""
    turns = 0

    async def beside() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(beside())
    for i in range(10):
        await engine.intake.schedule_one(draft(i))
    other.cancel()
    assert turns >= 10
    assert engine.observer.total("accepted") == 10


async def test_a_bad_message_by_itself_is_refused_and_counted(engine: Engine) -> None:
    with pytest.raises(InvalidMessage):
        await engine.intake.schedule_one(draft(1, delay=-1))
    assert (await engine.intake.schedule_one(draft(1, id="good"))).id == "good"
    assert engine.observer.total("rejected") == 1


async def test_callers_that_came_together_go_on_together(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes = _counted(engine, monkeypatch, turns=1)

    async def caller() -> None:
        for i in range(20):
            await engine.intake.schedule_one(draft(i))

    await asyncio.gather(*(caller() for _ in range(16)))
    assert sum(sizes) == 320
    assert len(sizes) <= 23  # nobody breaks away from the rest, but for the first
    await caller()
    assert sizes[-20:] == [1] * 20


async def test_when_the_store_is_away_everyone_waiting_is_told(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def away(messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        raise StoreUnavailable("gone fishing")

    monkeypatch.setattr(engine.store, "put", away)
    answers = await asyncio.gather(
        *(engine.intake.schedule_one(draft(i)) for i in range(10)), return_exceptions=True
    )
    assert all(isinstance(answer, StoreUnavailable) for answer in answers)


async def test_a_fault_nobody_expects_is_told_alike_to_one_and_to_many(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(messages: Sequence[NewMessage], now: int) -> list[Receipt]:
        raise RuntimeError("a secret detail")

    monkeypatch.setattr(engine.store, "put", broken)
    with pytest.raises(StoreUnavailable, match="see the server's log"):
        await engine.intake.schedule_one(draft(1))
    assert "a secret detail" in caplog.text


async def test_a_caller_that_gives_up_does_not_disturb_the_others(engine: Engine) -> None:
    gone = asyncio.create_task(engine.intake.schedule_one(draft(1, id="gone")))
    stays = asyncio.create_task(engine.intake.schedule_one(draft(1, id="stays")))
    await asyncio.sleep(0)
    gone.cancel()
    assert (await stays).id == "stays"
    await engine.intake.drain()


@pytest.mark.parametrize(("delay", "fits"), [("59s", False), ("1m", True), ("16d", False)])
async def test_horizon_limits_are_enforced_when_set(engine: Engine, delay: str, fits: bool) -> None:
    intake = Intake(engine.store, Observer(), min_delay=60_000, max_delay=15 * 86_400_000)
    (outcome,) = await intake.schedule([draft(1, delay=delay)])
    assert isinstance(outcome, Receipt) is fits
    if isinstance(outcome, PenstockError):
        assert outcome.field == "delay"


async def test_an_unknown_route_is_refused_with_the_known_ones(engine: Engine) -> None:
    intake = Intake(engine.store, Observer(), routes=frozenset({"push", "default"}))
    (outcome,) = await intake.schedule([draft(1, route="psuh")])
    assert isinstance(outcome, UnknownRoute)
    assert "default, push" in outcome.message


async def test_a_repeated_id_is_accepted_once(engine: Engine) -> None:
    await engine.intake.schedule([draft(1, id="a"), draft(1, id="b")])
    await engine.intake.schedule([draft(1, id="a"), draft(1, id="b"), draft(1, id="c")])
    await engine.intake.schedule_one(draft(1, id="c"))
    await engine.intake.schedule_one(draft(1, id="d"))
    assert engine.observer.total("accepted") == 4


async def test_what_comes_blocked_counts_as_blocked_once(engine: Engine) -> None:
    for _ in range(2):
        await engine.intake.schedule([block(draft(1, id="a"), "no"), draft(1, id="b")])
    assert engine.observer.counts["blocked", "default"] == 1
    assert engine.observer.counts["accepted", "default"] == 2
