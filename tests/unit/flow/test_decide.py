"""Decide: caps, quiet hours and paces between release and deliver, on a clock that stands still."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.flow.decide import _refuse
from penstock.flow.policies import REFRESH_MS, Policies
from penstock.flow.release import STORE_AWAY_MS, needs_ruling
from penstock.model.decision import Conclusion, End, Reason, reason_of, verdict_of
from penstock.model.draft import DeferredDraft
from penstock.model.errors import StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Retry
from penstock.model.policy import Suppression, policy_from
from penstock.model.route import Route
from penstock.model.state import State
from penstock.model.times import format_moment
from penstock.model.verdict import Verdict
from penstock.testing.store_cases.base import timeline
from tests.unit.flow.rig import Engine, FakeSink, used

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
DAILY: dict[str, object] = {"kind": "cap", "scope": ["key"], "limit": 2, "window": "24h"}
BRIEF: dict[str, object] = {"kind": "cap", "scope": ["key"], "limit": 1, "window": "1m"}
NIGHTS: dict[str, object] = {"kind": "quiet", "from": "22:00", "to": "08:00", "spread": "0s"}


def set_before(engine: Engine, hour: int) -> None:
    """Two minutes before that hour of the day (UTC)."""
    wanted = hour * 60 * MINUTE - 2 * MINUTE
    engine.clock.jump((wanted - engine.clock.now()) % DAY)


async def test_what_a_cap_holds_back_goes_out_when_there_is_a_place_again(engine: Engine) -> None:
    await engine.put_policies(brief=BRIEF)
    for number in range(3):
        await engine.schedule(id=f"m{number}", key="ann", delay=number)
    async with engine.working():
        await engine.clock.advance(5_000)
        assert engine.sink.ids == ["m0"]
        held = await engine.find("m1")
        assert held.state is State.SCHEDULED
        assert held.attempt == 0
        assert held.decided is not None
        assert held.decided.verdict is Verdict.DEFER
        assert held.decided.policy == "brief"
        assert held.due == held.decided.until
        for _ in range(30):
            await engine.clock.advance(MINUTE // 10)
    sent = {name: at for name, _, at in engine.sink.sent}
    assert set(sent) == {"m0", "m1", "m2"}
    moments = sorted(sent.values())
    assert moments[1] - moments[0] >= MINUTE
    assert moments[2] - moments[1] >= MINUTE
    assert moments[2] - moments[0] < 2 * MINUTE + 5_000  # and not much later than it may


async def test_the_timeline_tells_each_decision_with_its_reason(engine: Engine) -> None:
    await engine.put_policies(brief=BRIEF)
    await engine.schedule(id="first", key="ann")
    await engine.schedule(id="second", key="ann")
    async with engine.working():
        await engine.clock.advance(MINUTE + 1_000)
    events = await timeline(engine.store, "second")
    assert [event.event for event in events] == ["accepted", "deferred", "released", "delivered"]
    assert [event.detail for event in events] == [
        None,
        "brief: 1 of 1 in 1m",
        "ALLOW by brief",
        None,
    ]
    assert engine.observer.counts["deferred", "default"] == 1
    assert engine.sink.sent[1][1] == 1  # a deferral is not an attempt


async def test_the_timeline_tells_what_a_shadow_would_have_done(engine: Engine) -> None:
    never = {**DAILY, "limit": 1, "on_exceed": "BLOCK"}
    await engine.put_policies(
        daily=DAILY,
        later={**BRIEF, "shadow": True},
        never={**never, "shadow": True},
        mails={**never, "bypass": ["transactional"]},
    )
    for name in ("first", "second"):
        await engine.schedule(id=name, key="ann", labels={"class": "transactional"})
    async with engine.working():
        await engine.clock.advance(1_000)
    released = {name: (await timeline(engine.store, name))[1] for name in ("first", "second")}
    assert released["first"].detail == "ALLOW by daily, later, never; bypassed mails"
    until = format_moment(released["second"].at + MINUTE)
    assert released["second"].detail == (
        "ALLOW by daily; bypassed mails; "
        f"shadow later would have deferred it until {until}: 1 of 1 in 1m; "
        "shadow never would have blocked it: 1 of 1 in 24h"
    )


async def test_the_timeline_is_silent_where_no_policy_applies(engine: Engine) -> None:
    await engine.put_policies(elsewhere={**BRIEF, "applies_to": {"route": ["other"]}})
    await engine.schedule(id="m", key="ann")
    async with engine.working():
        await engine.clock.advance(1_000)
    assert [event.detail for event in await timeline(engine.store, "m")] == [None] * 3
    assert (await engine.find("m")).decided is None


async def test_what_its_sender_put_off_beyond_its_expiry_is_blocked_when_it_wakes(
    engine: Engine,
) -> None:
    now = engine.clock.now()
    late = DeferredDraft(
        id="late", at=format_moment(now + MINUTE), expires=format_moment(now + MINUTE // 2)
    )
    await engine.intake.schedule([late])
    async with engine.working():
        await engine.clock.advance(MINUTE - 1_000)
        assert await engine.state("late") is State.SCHEDULED
        await engine.clock.advance(2_000)
    held = await engine.find("late")
    assert (held.state, engine.sink.ids) == (State.BLOCKED, [])
    assert held.last_error == f"expires: expired at {format_moment(now + MINUTE // 2)}"
    assert verdict_of(held) is Verdict.BLOCK
    assert reason_of(held) == Reason("expires", f"expired at {format_moment(now + MINUTE // 2)}")
    assert engine.observer.counts["blocked", "default"] == 1


async def test_a_block_is_the_end_with_its_reason(engine: Engine) -> None:
    await engine.put_policies(daily={**DAILY, "on_exceed": "BLOCK"})
    for number in range(3):
        await engine.schedule(id=f"m{number}", key="ann")
    async with engine.working():
        await engine.clock.advance(1_000)
    blocked = await engine.find("m2")
    assert blocked.state is State.BLOCKED
    assert blocked.last_error == "daily: 2 of 2 in 24h"
    events = await timeline(engine.store, "m2")
    assert (events[-1].event, events[-1].detail) == ("blocked", "daily: 2 of 2 in 24h")
    assert engine.observer.counts["blocked", "default"] == 1


async def test_quiet_hours_hold_until_the_morning_of_the_recipient(engine: Engine) -> None:
    await engine.put_policies(nights=NIGHTS)
    set_before(engine, 8)
    await engine.schedule(id="here", key="ann")
    await engine.schedule(id="there", key="bob", labels={"tz": "Asia/Seoul"})
    async with engine.working():
        await engine.clock.advance(2 * MINUTE - 1)
        assert engine.sink.ids == ["there"]
        await engine.clock.advance(1)
        assert engine.sink.ids == ["there", "here"]
    woke = datetime.fromtimestamp(engine.sink.sent[1][2] / 1000, UTC)
    assert (woke.hour, woke.minute) == (8, 0)


async def test_what_cannot_wait_that_long_is_blocked_by_its_deadline(engine: Engine) -> None:
    await engine.put_policies(nights=NIGHTS)
    set_before(engine, 8)
    await engine.schedule(
        id="m", expires=datetime.fromtimestamp(engine.clock.now() / 1000 + 60, UTC)
    )
    async with engine.working():
        await engine.clock.advance(10)
        message = await engine.find("m")
    assert message.state is State.BLOCKED
    assert message.last_error is not None
    assert message.last_error.startswith("nights: deadline: quiet until 08:00 UTC")


async def test_max_defer_counts_from_the_due_before_the_first_deferral(engine: Engine) -> None:
    await engine.put_policies(brief={**BRIEF, "max_defer": "90s"})
    for number in range(3):
        await engine.schedule(id=f"m{number}", key="ann")
    async with engine.working():
        for _ in range(40):
            await engine.clock.advance(MINUTE // 10)
    states = [await engine.state(f"m{number}") for number in range(3)]
    assert sorted(states) == [State.BLOCKED, State.DELIVERED, State.DELIVERED]


async def test_a_suppressed_recipient_gets_nothing(engine: Engine) -> None:
    assert engine.policies is not None
    await engine.policies.put_suppression("optout", Suppression(keys=("ann",), legal=True))
    await engine.schedule(id="no", key="ann", labels={"class": "transactional"})
    await engine.schedule(id="yes", key="bob")
    async with engine.working():
        await engine.clock.advance(100)
    assert engine.sink.ids == ["yes"]
    assert await engine.state("no") is State.BLOCKED


async def test_a_pace_of_a_whole_route_leaves_the_backlog_in_the_store_in_its_order(
    engine: Engine,
) -> None:
    await engine.put_policies(ppg={"kind": "pace", "rate": "10/s", "burst": 2})
    for number in range(10):
        await engine.schedule(id=f"m{number}", delay=number / 1000)
    await engine.schedule(id="urgent", delay=0.02, priority=9)
    async with engine.working():
        await engine.clock.advance(300)
        assert engine.observer.counts["deferred", "default"] == 0
        await engine.clock.advance(2_000)
    assert engine.sink.ids == ["m0", "m1", "urgent", *(f"m{n}" for n in range(2, 10))]
    moments = [at for _, _, at in engine.sink.sent]
    for first in range(11):
        for last in range(first, 11):
            assert last - first + 1 <= 2 + (moments[last] - moments[first]) / 100
    assert moments[-1] - moments[0] <= 950


async def test_a_pace_across_routes_gives_everyone_a_slot(engine: Engine) -> None:
    other = FakeSink(engine.clock)
    engine.add_route(Route(name="other"), other)
    await engine.put_policies(
        provider={
            "kind": "pace",
            "rate": "10/s",
            "applies_to": {"channel": ["sms"]},
        }
    )
    for number in range(6):
        for route in ("default", "other"):
            await engine.schedule(id=f"{route}{number}", route=route, labels={"channel": "sms"})
    await engine.schedule(id="mail", labels={"channel": "mail"})
    async with engine.working():
        await engine.clock.advance(1_500)
    moments = sorted(at for _, _, at in engine.sink.sent + other.sent)
    assert len(moments) == 13
    assert ("mail", 1, moments[0]) in engine.sink.sent
    paced = sorted(at for name, _, at in engine.sink.sent + other.sent if name != "mail")
    assert all(later - earlier >= 100 for earlier, later in pairwise(paced))
    assert paced[-1] - paced[0] <= 1_200


async def test_an_unpaced_route_does_not_wait_for_a_paced_one(engine: Engine) -> None:
    fast = FakeSink(engine.clock)
    engine.add_route(Route(name="fast"), fast)
    await engine.put_policies(
        slow={"kind": "pace", "rate": "1/h", "applies_to": {"route": ["default"]}}
    )
    for number in range(20):
        await engine.schedule(id=f"a{number}")
        await engine.schedule(id=f"b{number}", route="fast")
    async with engine.working():
        await engine.clock.advance(100)
        assert len(engine.sink.sent) == 1
        assert len(fast.sent) == 20


async def test_a_slow_pace_that_is_dropped_holds_nothing_back_any_more(engine: Engine) -> None:
    await engine.put_policies(slow={"kind": "pace", "rate": "1/h"})
    for number in range(3):
        await engine.schedule(id=f"m{number}")
    async with engine.working():
        await engine.clock.advance(10_000)
        assert engine.sink.ids == ["m0"]
        assert engine.policies is not None
        await engine.policies.drop("slow")
        await engine.clock.advance(2 * REFRESH_MS)
        assert engine.sink.ids == ["m0", "m1", "m2"]


async def test_a_shadow_policy_is_counted_and_does_not_act(engine: Engine) -> None:
    await engine.put_policies(brief={**BRIEF, "shadow": True})
    for number in range(3):
        await engine.schedule(id=f"m{number}", key="ann")
    async with engine.working():
        await engine.clock.advance(100)
    assert len(engine.sink.sent) == 3
    assert engine.observer.counts["shadowed", "default"] == 2
    assert await used(engine, "ann") == 1


async def test_without_policies_the_store_is_not_asked(engine: Engine) -> None:
    calls = []
    assert engine.opened.policies is not None
    book = engine.opened.policies.book

    class Watched:
        async def book(self) -> object:
            calls.append("book")
            return await book()

        def __getattr__(self, name: str) -> object:
            raise AssertionError(f"{name} was called")

    engine.policies = Policies(Watched(), engine.clock)  # type: ignore[arg-type] # only book() may be used
    for number in range(50):
        await engine.schedule(id=f"m{number}", delay=number / 100)
    async with engine.working():
        await engine.clock.advance(3 * REFRESH_MS)
    assert len(engine.sink.sent) == 50
    assert len(calls) <= 6


async def test_a_policy_put_by_another_process_binds_within_a_second(engine: Engine) -> None:
    async with engine.working():
        await engine.clock.advance(50)
        assert engine.opened.policies is not None
        await engine.opened.policies.put_policy("brief", policy_from(BRIEF))
        await engine.clock.advance(REFRESH_MS)
        await engine.schedule(id="a", key="ann")
        await engine.schedule(id="b", key="ann")
        await engine.clock.advance(100)
        assert len(engine.sink.sent) == 1


async def test_what_cannot_be_decided_goes_back_unsent(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.put_policies(daily=DAILY)
    await engine.schedule(id="m", key="ann")
    assert engine.policies is not None
    decide = engine.policies.decide
    away = True

    async def fails(*args: object) -> object:
        if away:
            raise StoreUnavailable("gone")
        return await decide(*args)  # type: ignore[arg-type] # passed through

    monkeypatch.setattr(engine.policies, "decide", fails)
    async with engine.working():
        await engine.clock.advance(100)
        assert engine.sink.sent == []
        away = False
        await engine.clock.advance(2_000)
    assert [sent[:2] for sent in engine.sink.sent] == [("m", 1)]


async def test_policies_that_do_not_answer_are_not_asked_again_and_again(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await engine.put_policies(daily=DAILY)
    await engine.schedule(id="m", key="ann")
    assert engine.policies is not None
    asked = []

    async def fails(*_: object) -> object:
        asked.append(engine.clock.now())
        raise StoreUnavailable("gone")

    monkeypatch.setattr(engine.policies, "decide", fails)
    async with engine.working():
        await engine.clock.advance(3 * STORE_AWAY_MS)
    assert len(asked) == 4


async def test_an_undecided_message_gives_no_reservation_back(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its decision may take effect later, on the reservation of the lease that follows."""
    await engine.put_policies(daily=DAILY)
    await engine.schedule(id="m", key="ann")
    policies = engine.policies
    assert policies is not None
    decide, conclude = policies.decide, policies.conclude
    unanswered: list[tuple[object, ...]] = []
    ends: list[End] = []

    async def answers_the_second_time(*args: object) -> object:
        if not unanswered:
            unanswered.append(args)
            raise StoreUnavailable("no answer")
        decisions = await decide(*args)  # type: ignore[arg-type] # passed through
        await decide(*unanswered[0])  # type: ignore[arg-type] # the first takes effect at last
        return decisions

    async def noted(conclusions: Sequence[Conclusion], now: int) -> None:
        ends.extend(conclusion.end for conclusion in conclusions)
        await conclude(conclusions, now)

    monkeypatch.setattr(policies, "decide", answers_the_second_time)
    monkeypatch.setattr(policies, "conclude", noted)
    async with engine.working():
        await engine.clock.advance(2_000)
    assert engine.sink.ids == ["m"]
    assert End.RELEASE not in ends
    assert await used(engine, "ann") == 1


async def test_a_retry_that_quiet_hours_defer_before_its_due_leaves_the_unit_to_others(
    engine: Engine,
) -> None:
    once = {**DAILY, "limit": 1, "on_exceed": "BLOCK"}
    calls = {**NIGHTS, "applies_to": {"class": ["promotional"]}}
    await engine.put_policies(once=once, calls=calls)
    set_before(engine, 22)
    engine.sink.behave = lambda message: (
        Retry("busy", after=3_600, unsure=False) if message.id == "first" else DELIVERED
    )
    await engine.schedule(id="first", key="ann", labels={"class": "promotional"})
    async with engine.working():
        await engine.clock.advance(1_000)
        assert await used(engine, "ann") == 1
        await engine.clock.advance(3 * MINUTE)
        await engine.control.release("first")
        await engine.clock.advance(1_000)
        assert verdict_of(await engine.find("first")) is Verdict.DEFER
        assert await used(engine, "ann") == 0
        await engine.schedule(id="second", key="ann")
        await engine.clock.advance(1_000)
        assert await engine.state("second") is State.DELIVERED


async def test_it_is_counted_how_often_each_policy_binds(engine: Engine) -> None:
    await engine.put_policies(
        brief=BRIEF,
        watched={**DAILY, "limit": 1, "shadow": True},
        elsewhere={**BRIEF, "applies_to": {"route": ["other"]}},
    )
    for name in ("first", "second"):
        await engine.schedule(id=name, key="ann")
    async with engine.working():
        await engine.clock.advance(1_000)
        assert engine.observer.policies == {
            ("brief", "allowed"): 1,
            ("brief", "deferred"): 1,
            ("watched", "allowed"): 1,
            ("watched", "shadowed"): 1,
        }


@given(
    attempt=st.integers(0, 4),
    floor=st.integers(0, 3),
    expires=st.none() | st.integers(-2, 2),
    max_attempts=st.integers(1, 3),
)
def test_what_a_lane_sends_without_a_ruling_would_not_have_been_refused(
    attempt: int, floor: int, expires: int | None, max_attempts: int
) -> None:
    """`Lane._is_plain` leaves out `Decide.decide` where no policy has a say."""
    now = 1_000
    message = Message(
        id="m",
        route="r",
        key="m",
        payload=b"",
        due=now,
        attempt=attempt,
        attempt_floor=floor,
        expires=None if expires is None else now + expires,
    )
    route = Route(name="r", max_attempts=max_attempts)
    if not needs_ruling(message):
        assert _refuse(message, 1, route, now) is None
