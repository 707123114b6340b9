"""Only a sink that cannot be reached closes a route, and it is probed with other messages."""

from __future__ import annotations

import random
from collections.abc import Sequence

from penstock.flow.breaker import PROBE, TRIP_AFTER, WIDEST, Breaker
from penstock.model.backoff import Backoff
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Retry, SendOutcome
from penstock.model.route import Route
from penstock.model.state import State
from tests.unit.flow.rig import Engine, FakeSink

REFUSED = Retry("connection refused", unreachable=True, unsure=False)
CUT = Retry("closed the connection without an answer", unreachable=True)
LATE = Retry("no answer in 1 s", unsure=True)
MANY = 1_000


def opened(outcome: Retry = CUT) -> Breaker:
    breaker = Breaker(random.Random(1))
    for _ in range(TRIP_AFTER):
        breaker.record([outcome], 0)
    return breaker


def after_probes(breaker: Breaker, *outcomes: Retry) -> int:
    """What may be claimed for the next probe, after probes that ended so."""
    for outcome in outcomes:
        assert breaker.retry_at is not None
        breaker.record([outcome], breaker.retry_at, breaker.began())
    assert breaker.retry_at is not None
    return breaker.allowance(MANY, breaker.retry_at)


def test_messages_that_are_not_answered_in_time_open_nothing() -> None:
    breaker = opened(LATE)
    assert breaker.lets_all_pass


def test_sends_that_reach_nobody_open_it() -> None:
    assert opened(REFUSED).is_open


def test_a_probe_after_refusals_is_any_one_message() -> None:
    assert after_probes(opened(REFUSED), REFUSED, REFUSED, REFUSED) == 1


def test_a_probe_after_cut_lines_is_chosen_from_ever_more_messages() -> None:
    assert after_probes(opened(), CUT, CUT, CUT) == 8
    assert after_probes(opened(), *[CUT] * 20) == WIDEST


def test_sends_that_began_before_it_opened_do_not_put_the_probe_off() -> None:
    breaker = opened()
    first = breaker.retry_at
    for _ in range(50):
        breaker.record([CUT], 400)
    assert breaker.retry_at == first == PROBE.low


def test_an_answer_to_a_send_that_began_before_it_opened_closes_it() -> None:
    breaker = opened()
    breaker.record([DELIVERED], 400)
    assert breaker.lets_all_pass


def test_an_older_send_that_ends_is_not_the_probe() -> None:
    breaker = opened()
    assert breaker.retry_at is not None
    probe = breaker.began()
    breaker.record([CUT], breaker.retry_at)
    assert breaker.allowance(MANY, breaker.retry_at) == 0
    breaker.not_sent(probe)
    assert breaker.allowance(MANY, breaker.retry_at) == 1


class SlowWithSome(FakeSink):
    """Answers at once, but for some ids after a time-out, or by cutting the line."""

    def __init__(self, engine: Engine, outcome: Retry, wait: int) -> None:
        super().__init__(engine.clock, max_batch=1)
        self._outcome = outcome
        self._wait = wait

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        (message,) = batch
        self.sent.append((message.id, message.attempt, self.clock.now()))
        if not message.id.startswith("bad"):
            return [DELIVERED]
        await self.clock.sleep_until(self.clock.now() + self._wait)
        return [self._outcome]


async def _ordinary_ones_beside(engine: Engine, sink: FakeSink) -> list[tuple[str, int, int]]:
    """20 bad messages of the highest priority, and 20 ordinary ones put 1.5 s later."""
    engine.add_route(Route(name="hook", backoff=Backoff(1_000, 300_000)), sink)
    for number in range(20):
        await engine.schedule(id=f"bad{number}", route="hook", priority=9)
    async with engine.working():
        await engine.clock.advance(1_500)
        for number in range(20):
            await engine.schedule(id=f"good{number}", route="hook")
        await engine.clock.advance(30_000)
    return [one for one in sink.sent if one[0].startswith("good")]


async def test_messages_the_receiver_is_slow_with_hold_up_no_others(engine: Engine) -> None:
    put_at = engine.clock.now() + 1_500
    good = await _ordinary_ones_beside(engine, SlowWithSome(engine, LATE, 1_000))
    assert sorted(good) == sorted((f"good{number}", 1, put_at) for number in range(20))


async def test_messages_that_make_the_receiver_cut_the_line_hold_others_up_until_a_probe(
    engine: Engine,
) -> None:
    good = await _ordinary_ones_beside(engine, SlowWithSome(engine, CUT, 0))
    assert {(name, attempt) for name, attempt, _ in good} == {
        (f"good{number}", 1) for number in range(20)
    }


async def test_a_probe_is_a_message_that_has_not_failed_and_the_others_pay_no_attempt(
    engine: Engine,
) -> None:
    sink = FakeSink(engine.clock, max_batch=1)
    sink.behave = lambda m: CUT if m.id.startswith("bad") else DELIVERED
    often = Route(name="hook", max_attempts=100, backoff=Backoff(400, 400))
    engine.add_route(often, sink)
    for number in range(TRIP_AFTER):
        await engine.schedule(id=f"bad{number}", route="hook", priority=9)
    async with engine.working():
        await engine.clock.advance(100)
        await engine.schedule(id="good", route="hook", priority=0)
        await engine.clock.advance(60_000)
        assert await engine.state("good") is State.DELIVERED
        (good,) = [one for one in sink.sent if one[0] == "good"]
        assert good[1] == 1
