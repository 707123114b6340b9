"""Release and deliver: never early, bounded, in order, retried, and never in each other's way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from penstock.flow.recover import Recover
from penstock.flow.release import PER_MS, SPACING_MS
from penstock.model.backoff import Backoff
from penstock.model.errors import AlreadyReleased
from penstock.model.outcome import DELIVERED, Claim, Dead, Retry, SendOutcome
from penstock.model.patch import decode_patch
from penstock.model.query import Filter
from penstock.model.route import Route
from penstock.model.size import ANY_SIZE
from penstock.model.state import State
from penstock.model.times import format_moment
from penstock.telemetry.rates import Rates
from tests.unit.flow.rig import Engine, FakeSink


async def test_a_message_leaves_at_its_moment_and_not_before(engine: Engine) -> None:
    receipt = await engine.schedule(id="m", delay=10)
    async with engine.working():
        await engine.clock.advance(9_999)
        assert engine.sink.sent == []
        await engine.clock.advance(1)
        assert engine.sink.sent == [("m", 1, receipt.due)]
    assert await engine.state("m") is State.DELIVERED


async def test_something_nearer_wakes_a_sleeping_lane(engine: Engine) -> None:
    await engine.schedule(id="far", delay="1h")
    async with engine.working():
        await engine.clock.advance(50)
        near = await engine.schedule(id="near", delay="7ms")
        await engine.clock.advance(7)
        assert engine.sink.sent == [("near", 1, near.due)]


async def test_a_lane_that_rests_asks_again_only_when_something_may_be_due(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    claim = engine.store.claim

    async def counted(route: str, limit: int, lease: int, now: int, max_bytes: int) -> Claim:
        asked.append(now)
        return await claim(route, limit, lease, now, max_bytes)

    monkeypatch.setattr(engine.store, "claim", counted)
    start = engine.clock.now()
    for number in range(3):
        await engine.schedule(id=f"m{number}", delay=f"{10 * number + 10}ms")
    async with engine.working():
        await engine.clock.advance(40)
        assert [now - start for now in asked] == [0, 10, 20, 30]
        assert engine.sink.ids == ["m0", "m1", "m2"]


async def test_a_timer_that_rings_early_sends_nothing_and_sleeps_again(engine: Engine) -> None:
    receipt = await engine.schedule(id="m", delay="1s")
    async with engine.working() as worker:
        await engine.clock.advance(999)
        worker.lanes["default"].wake(0)  # as a loop whose timers round down would
        await engine.clock.settle()
        assert engine.sink.sent == []
        await engine.clock.advance(1)
        assert engine.sink.sent == [("m", 1, receipt.due)]


async def test_higher_priority_leaves_first_then_the_earlier_due(engine: Engine) -> None:
    await engine.schedule(id="late", delay=2)
    await engine.schedule(id="early", delay=1)
    await engine.schedule(id="urgent", delay=3, priority=9)
    await engine.schedule(id="idle", delay=0, priority=0)
    await engine.clock.advance(5_000)
    async with engine.working():
        assert engine.sink.ids == ["urgent", "early", "late", "idle"]


async def test_a_failed_send_is_repeated_with_a_higher_attempt_after_a_growing_wait(
    engine: Engine,
) -> None:
    answers: list[SendOutcome] = [Retry("503"), Retry("503"), DELIVERED]
    engine.sink.behave = lambda _: answers.pop(0)
    await engine.schedule(id="m")
    async with engine.working():
        await engine.clock.advance(60_000)
    first, second, third = engine.sink.sent
    assert [attempt for _, attempt, _ in engine.sink.sent] == [1, 2, 3]
    assert 1_000 <= second[2] - first[2] <= 2_000 + 1
    assert 2_000 <= third[2] - second[2] <= 4_000 + 1
    assert await engine.state("m") is State.DELIVERED


async def test_retry_after_is_honoured_to_the_millisecond(engine: Engine) -> None:
    answers: list[SendOutcome] = [Retry("429", after=17.5), DELIVERED]
    engine.sink.behave = lambda _: answers.pop(0)
    await engine.schedule(id="m")
    async with engine.working():
        await engine.clock.advance(20_000)
    first, second = engine.sink.sent
    assert second[2] - first[2] == 17_500


async def test_a_message_is_dead_when_its_attempts_are_used_up(engine: Engine) -> None:
    sink = FakeSink(engine.clock)
    sink.behave = lambda _: Retry("no", after=0.0)
    engine.add_route(Route(name="r", max_attempts=3, backoff=Backoff(1, 1)), sink)
    await engine.schedule(id="m", route="r")
    async with engine.working():
        await engine.clock.advance(1_000)
    assert [attempt for _, attempt, _ in sink.sent] == [1, 2, 3]
    assert await engine.state("m") is State.DEAD
    message, timeline = await engine.control.get("m")
    assert message.last_error is not None
    assert "3 of 3" in message.last_error
    assert [event.event for event in timeline][-1] == "dead"


async def test_refused_for_good_is_dead_at_once_and_can_be_redriven(engine: Engine) -> None:
    engine.sink.behave = lambda _: Dead("410 gone")
    await engine.schedule(id="m")
    async with engine.working():
        await engine.clock.advance(10)
        assert await engine.state("m") is State.DEAD
        engine.sink.behave = lambda _: DELIVERED
        await engine.clock.advance(1_000)
        result = await engine.control.redrive_where(Filter(route="default"))
        assert (result.matched, result.done) == (1, 1)
        await engine.clock.advance(10)
    assert await engine.state("m") is State.DELIVERED
    assert [attempt for _, attempt, _ in engine.sink.sent] == [1, 2]


async def test_an_expired_message_is_settled_and_not_sent(engine: Engine) -> None:
    expires = format_moment(engine.clock.now() + 5_000)
    await engine.schedule(id="m", delay=1, expires=expires)
    await engine.clock.advance(10_000)
    async with engine.working():
        await engine.clock.advance(10)
    assert engine.sink.sent == []
    assert await engine.state("m") is State.EXPIRED


async def test_a_retry_that_would_come_after_the_expiry_ends_it(engine: Engine) -> None:
    engine.sink.behave = lambda _: Retry("later", after=60.0)
    await engine.schedule(id="m", expires=format_moment(engine.clock.now() + 5_000))
    async with engine.working():
        await engine.clock.advance(10)
    assert await engine.state("m") is State.EXPIRED


async def test_a_hanging_sink_holds_no_more_than_its_capacity_and_delays_nobody(
    engine: Engine,
) -> None:
    stuck = FakeSink(engine.clock, max_batch=1, concurrency=7)
    stuck.gate = asyncio.Event()
    engine.add_route(Route(name="stuck"), stuck)
    for i in range(50):
        await engine.schedule(id=f"s{i}", route="stuck")
    async with engine.working() as worker:
        await engine.clock.advance(1_000)
        assert len(stuck.sent) == worker.lanes["stuck"].in_flight == 7
        receipt = await engine.schedule(id="free", delay="5ms")
        await engine.clock.advance(5)
        assert engine.sink.sent == [("free", 1, receipt.due)]
        stuck.gate.set()
        await engine.clock.advance(1_000)
        assert sorted(stuck.ids) == sorted(f"s{i}" for i in range(50))


async def test_a_slow_send_keeps_its_lease(engine: Engine) -> None:
    engine.sink.gate = asyncio.Event()
    await engine.schedule(id="m")
    async with engine.working():
        await engine.clock.advance(engine.lease * 5)
        engine.sink.gate.set()
        await engine.clock.advance(10)
    assert engine.sink.sent[0][:2] == ("m", 1)
    assert len(engine.sink.sent) == 1
    assert await engine.state("m") is State.DELIVERED


async def test_a_paused_route_holds_and_a_resumed_one_goes_on(engine: Engine) -> None:
    await engine.control.pause("default", True)
    await engine.schedule(id="m")
    async with engine.working():
        await engine.clock.advance(5_000)
        assert engine.sink.sent == []
        await engine.control.pause("default", False)
        await engine.clock.advance(200)
        assert engine.sink.ids == ["m"]


async def test_cancelling_in_mid_send_says_so_and_prevents_the_retry(engine: Engine) -> None:
    engine.sink.gate = asyncio.Event()
    engine.sink.behave = lambda _: Retry("boom")
    await engine.schedule(id="m")
    async with engine.working():
        await engine.clock.advance(10)
        with pytest.raises(AlreadyReleased) as too_late:
            await engine.control.cancel("m")
        assert too_late.value.cancel_pending
        engine.sink.gate.set()
        await engine.clock.advance(120_000)
    assert await engine.state("m") is State.CANCELLED
    assert len(engine.sink.sent) == 1


async def test_a_silent_sink_opens_the_breaker_and_keeps_attempts_for_better_days(
    engine: Engine,
) -> None:
    sink = FakeSink(engine.clock, max_batch=1)
    sink.behave = lambda _: Retry("connection refused", unreachable=True)
    engine.add_route(Route(name="gone", semaphore_limit=1, backoff=Backoff(500, 500)), sink)
    for i in range(30):
        await engine.schedule(id=f"m{i}", route="gone")
    async with engine.working() as worker:
        await engine.clock.advance(600_000)
        breaker = worker.lanes["gone"].breaker
        assert breaker.retry_at is not None
        assert len(sink.sent) < 100  # 30 messages x 8 attempts would be 240
        sink.behave = lambda _: DELIVERED
        await engine.clock.advance(60_000)
        assert not breaker.is_open
    states = {await engine.state(f"m{i}") for i in range(30)}
    assert states == {State.DELIVERED}


async def test_a_worker_that_died_with_a_message_again_and_again_buries_it(engine: Engine) -> None:
    await engine.schedule(id="poison")
    for _ in range(8):
        claim = await engine.store.claim("default", 1, 1_000, engine.clock.now())
        assert len(claim.messages) == 1
        await engine.clock.advance(1_000)
        await engine.store.reap(engine.clock.now(), 10)
    async with engine.working():
        await engine.clock.advance(1_000)
    assert engine.sink.sent == []
    assert await engine.state("poison") is State.DEAD


async def test_a_wall_clock_that_jumps_back_fires_nothing_early(engine: Engine) -> None:
    receipt = await engine.schedule(id="m", delay=60)
    async with engine.working():
        await engine.clock.advance(1_000)
        engine.clock.jump(-3_600_000)
        await engine.clock.advance(65_000)
        assert engine.sink.sent == []
        await engine.clock.advance(3_600_000)
    assert [(name, when >= receipt.due) for name, _, when in engine.sink.sent] == [("m", True)]


async def test_a_wall_clock_that_jumps_forward_releases_what_is_then_due(engine: Engine) -> None:
    await engine.schedule(id="m", delay="10m")
    async with engine.working():
        await engine.clock.advance(1_000)
        engine.clock.jump(3_600_000)
        await engine.clock.advance(1_000)
        assert engine.sink.ids == ["m"]


async def test_a_jump_forward_in_mid_send_does_not_send_twice(engine: Engine) -> None:
    engine.sink.gate = asyncio.Event()
    await engine.schedule(id="m")
    async with engine.working():
        await engine.clock.advance(10)
        engine.clock.jump(3_600_000)
        await engine.clock.advance(5_000)
        engine.sink.gate.set()
        await engine.clock.advance(100)
    assert engine.sink.ids == ["m"]
    assert await engine.state("m") is State.DELIVERED


async def test_stopping_finishes_what_is_in_flight_and_gives_back_the_rest(engine: Engine) -> None:
    sink = FakeSink(engine.clock, max_batch=1, concurrency=1)
    engine.add_route(Route(name="slow"), sink)
    sink.gate = asyncio.Event()
    await engine.schedule(id="hangs", route="slow")
    async with engine.working() as worker:
        await engine.clock.advance(10)
        worker.stop()
        await engine.clock.advance(10_000)
    message, timeline = await engine.control.get("hangs")
    assert message.state is State.SCHEDULED
    assert message.due <= engine.clock.now()
    assert timeline[-1].event == "retry"


async def test_lateness_is_counted_and_nothing_is_early(engine: Engine) -> None:
    for i in range(20):
        await engine.schedule(delay=i / 10)
    async with engine.working():
        await engine.clock.advance(5_000)
    lateness = engine.observer.lateness["default"]
    assert (lateness.count, lateness.early, lateness.worst) == (20, 0, 0)
    assert engine.observer.total("delivered") == 20


async def test_failures_and_the_breaker_are_told_in_the_log(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    sink = FakeSink(engine.clock, max_batch=1)
    sink.behave = lambda _: Retry("connection refused", unreachable=True)
    forever = Route(name="gone", max_attempts=1000, backoff=Backoff(500, 500))
    engine.add_route(forever, sink)
    await engine.schedule(id="m", route="gone")
    with caplog.at_level("INFO", "penstock"):
        async with engine.working():
            await engine.clock.advance(10_000)
            sink.behave = lambda _: Dead("410 gone")
            await engine.clock.advance(60_000)
    failed = "route gone: 1 of 1 messages failed and are"
    assert f"{failed} sent again after a pause, such as m: connection refused" in caplog.text
    assert "fake:// does not answer: messages of gone wait in the store" in caplog.text
    assert "fake:// answers again: gone goes on" in caplog.text
    listed = "(penstock dead list)"
    assert f"{failed} dead letters now {listed}, such as m: 410 gone" in caplog.text


async def test_an_expiry_can_be_removed(engine: Engine) -> None:
    await engine.schedule(id="m", delay=1, expires=format_moment(engine.clock.now() + 5_000))
    patch = decode_patch(b'{"expires": null, "delay": "1h"}')
    changed = await engine.control.reschedule(engine.intake.change("m", patch))
    assert changed.expires is None


def answer_a_claim_late(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, late_by: Callable[[int], int]
) -> None:
    """The first claim that finds messages; `late_by`: milliseconds, of a lease."""
    claim = engine.store.claim

    async def late(route: str, limit: int, lease: int, now: int, max_bytes: int) -> Claim:
        claimed = await claim(route, limit, lease, now, max_bytes)
        if claimed.messages:
            engine.clock.jump(late_by(lease))
            monkeypatch.setattr(engine.store, "claim", claim)
        return claimed

    monkeypatch.setattr(engine.store, "claim", late)


async def test_an_answer_later_than_its_lease_is_not_acted_on(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_a_claim_late(engine, monkeypatch, lambda lease: lease)
    receipt = await engine.schedule(id="m")
    async with engine.working() as worker:
        lease = worker.lanes["default"]._lease
        await engine.clock.advance(1)
    ((sent, attempt, at),) = engine.sink.sent
    assert (sent, attempt) == ("m", 1)
    assert at >= receipt.due + lease


async def test_an_answer_late_in_its_lease_is_sent_with_a_whole_one(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def too_late(_self: Recover) -> None:
        """Leases were extended just before the claim was answered."""

    monkeypatch.setattr(Recover, "run", too_late)
    answer_a_claim_late(engine, monkeypatch, lambda lease: lease - 2)
    engine.sink.gate = asyncio.Event()
    await engine.schedule(id="m")
    async with engine.working():
        await engine.clock.advance(5)
        assert await engine.store.reap(engine.clock.now(), 10) == []
        engine.sink.gate.set()
        await engine.clock.advance(1)
    assert [(name, attempt) for name, attempt, _ in engine.sink.sent] == [("m", 1)]


async def test_a_message_that_is_tried_again_counts_once(
    engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="penstock.rates")
    outcomes: list[SendOutcome] = [Retry("not now", after=0.1)] * 3
    engine.sink.behave = lambda _: outcomes.pop() if outcomes else DELIVERED
    await engine.schedule(id="a")
    rates = asyncio.ensure_future(Rates(engine.observer, engine.clock).run())
    async with engine.working():
        await engine.clock.advance(3_000)
    rates.cancel()
    assert engine.sink.ids == ["a"] * 4
    told = [record.message for record in caplog.records if record.name == "penstock.rates"]
    assert told == ["Delivered/s: 1"]


async def spread(engine: Engine, per_ms: int, millis: int) -> tuple[int, list[int]]:
    """So many due each millisecond for a while: (claims, how late each was sent)."""
    engine.sink.max_batch = engine.sink.concurrency = engine.batch_size = 10_000
    start = engine.clock.now() + 1_000
    for at in range(millis):
        for number in range(per_ms):
            await engine.schedule(id=f"{at}-{number}", at=format_moment(start + at))
    claims, claim = 0, engine.store.claim

    async def counted(
        route: str, limit: int, lease: int, now: int, max_bytes: int = ANY_SIZE
    ) -> Claim:
        nonlocal claims
        claims += now >= start
        return await claim(route, limit, lease, now, max_bytes)

    engine.store.claim = counted  # type: ignore[method-assign] # only to count
    async with engine.working():
        await engine.clock.advance(1_000 + millis + SPACING_MS)
        lates = [when - (start + int(name.split("-")[0])) for name, _, when in engine.sink.sent]
    return claims, lates


async def test_where_many_come_due_claims_keep_a_distance_and_nothing_waits_longer(
    engine: Engine,
) -> None:
    claims, lates = await spread(engine, per_ms=2 * PER_MS, millis=60)
    assert len(lates) == 2 * PER_MS * 60
    assert claims <= 60 // SPACING_MS + 5
    assert 0 <= min(lates) <= max(lates) <= SPACING_MS


async def test_where_few_come_due_each_leaves_at_its_moment(engine: Engine) -> None:
    _, lates = await spread(engine, per_ms=PER_MS - 1, millis=60)
    assert lates == [0] * (PER_MS - 1) * 60
