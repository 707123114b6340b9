"""Places in a cap: taken with ALLOW, kept by what may have arrived, otherwise given back."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.model.errors import StoreUnavailable
from penstock.model.outcome import DELIVERED, Action, Amendment, Dead, Retry, SendOutcome
from penstock.model.route import Route
from penstock.model.state import State
from penstock.model.times import format_moment
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


@pytest.mark.parametrize(
    ("first", "counted"),
    [
        (Retry("no answer in 10 s", after=1.0, unsure=True), 1),
        (Retry("answered 500", after=1.0), 0),
    ],
    ids=["that may have arrived", "that did not arrive"],
)
@pytest.mark.parametrize(
    "last",
    [Dead("no such user"), Retry("answered 500"), Retry("answered 500", after=300.0)],
    ids=["refused", "last attempt", "too late"],
)
async def test_an_attempt_before_the_last_counts_too(
    engine: Engine, first: Retry, last: SendOutcome, counted: int
) -> None:
    await engine.put_policies(brief=BRIEF)
    engine.add_route(Route(name="thrice", max_attempts=3), engine.sink)
    outcomes: list[SendOutcome] = [first, Retry("answered 503", after=1.0), last]
    engine.sink.behave = lambda _: outcomes.pop(0)
    expires = format_moment(engine.clock.now() + MINUTE)
    await engine.schedule(id="m", key="ann", route="thrice", expires=expires)
    async with engine.working():
        await engine.clock.advance(5_000)
        assert not outcomes
        assert await engine.state("m") in (State.DEAD, State.EXPIRED)
        assert await used(engine, "ann") == counted


async def test_a_lease_that_was_lost_counts_though_the_next_attempt_is_refused(
    engine: Engine,
) -> None:
    await engine.put_policies(brief=BRIEF)
    engine.sink.behave = lambda _: Dead("no such user")
    await engine.schedule(id="m", key="ann")
    claim = await engine.store.claim("default", 10, 1_000, engine.clock.now())
    assert engine.policies is not None
    await engine.policies.decide(claim.messages, engine.clock.now(), 600_000)
    async with engine.working():
        await engine.clock.advance(5_000)
    assert await engine.state("m") is State.DEAD
    assert await used(engine, "ann") == 1  # the worker may have sent it before it died


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


@pytest.mark.parametrize(
    ("first", "counted"),
    [(Retry("no answer in 10 s", after=5.0, unsure=True), 1), (Retry("503", after=5.0), 0)],
    ids=["that may have arrived counts", "that did not arrive does not"],
)
@pytest.mark.parametrize("verdict", ["DEFER", "BLOCK"])
async def test_an_attempt_before_a_refusal_by_another_policy(
    engine: Engine, first: Retry, verdict: str, counted: int
) -> None:
    await engine.put_policies(brief=DAILY)
    engine.sink.behave = lambda _: first
    await engine.schedule(id="m", key="ann")
    async with engine.working():
        await engine.clock.advance(100)
        full = {"kind": "cap", "scope": ["route"], "limit": 1, "window": "24h"}
        await engine.put_policies(full=full | {"on_exceed": verdict})
        engine.sink.behave = lambda message: first if message.id == "m" else DELIVERED
        await engine.schedule(id="other", key="bob")
        await engine.clock.advance(20_000)
        assert engine.sink.ids == ["m", "other"]
        decided = (await engine.find("m")).decided
        assert decided is not None
        assert decided.verdict == verdict
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


async def test_messages_that_are_redriven_need_places_of_their_own(engine: Engine) -> None:
    """However they were counted when they died: a cap is kept by what goes out now."""
    await engine.put_policies(brief=BRIEF)
    engine.add_route(Route(name="once", max_attempts=1), engine.sink)
    for name in ("m0", "m1"):
        await engine.schedule(id=name, key="ann", route="once")
        await engine.store.claim("once", 10, 1_000, engine.clock.now())
    async with engine.working():
        await engine.clock.advance(5_000)
        assert await engine.state("m0") is await engine.state("m1") is State.DEAD
        for name in ("m0", "m1"):
            redrive = Amendment(action=Action.REDRIVE, id=name, due=engine.clock.now())
            await engine.store.amend([redrive], engine.clock.now())
        for _ in range(20):
            await engine.clock.advance(10_000)
    assert sorted(engine.sink.ids) == ["m0", "m1"]
    (first, second) = sorted(at for _, _, at in engine.sink.sent)
    assert second - first >= MINUTE


async def test_a_backlog_behind_a_cap_comes_back_one_by_one_and_loses_no_place(
    engine: Engine,
) -> None:
    await engine.put_policies(slow={"kind": "cap", "scope": ["key"], "limit": 1, "window": "3s"})
    for number in range(30):
        await engine.schedule(id=f"m{number:02d}", key="ann")
    begun = engine.clock.now()
    async with engine.working():
        for _ in range(31 * 6):
            await engine.clock.advance(500)
        await engine.schedule(id="other", key="bob")
        await engine.clock.advance(10)
    assert sorted(engine.sink.ids) == [*(f"m{number:02d}" for number in range(30)), "other"]
    last = max(at for name, _, at in engine.sink.sent if name != "other")
    assert last - begun <= 31 * 3_000  # as soon as the cap lets them
    deferred = engine.observer.policies["slow", "deferred"]
    assert deferred <= 4 * 30  # once for everything behind each place it was 30 * 29 / 2


async def test_a_message_in_doubt_that_goes_back_unsent_takes_no_place(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.put_policies(brief=BRIEF)
    assert engine.policies is not None
    await engine.schedule(id="m", key="ann", delay=1)
    await engine.clock.advance(1_000)
    await engine.store.claim("default", 10, 500, engine.clock.now())  # and here the worker dies
    await engine.schedule(id="first", key="ann")
    decide, failures = engine.policies.decide, [StoreUnavailable("lost request")]

    async def fails_once(subjects: Any, now: int, hold: int) -> Any:
        if failures and subjects[0].id == "m":
            raise failures.pop()
        return await decide(subjects, now, hold)

    monkeypatch.setattr(engine.policies, "decide", fails_once)
    async with engine.working():
        await engine.clock.advance(20_000)
        assert not failures
        assert engine.sink.ids == ["first"]
        assert await used(engine, "ann") == 2  # the lost attempt may have arrived
