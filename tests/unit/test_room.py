"""Rooms' settings and the pure rules of admission."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidMessage, Malformed
from penstock.model.room import (
    Rate,
    Room,
    RoomSettings,
    RoomState,
    check_room,
    decode_room,
    first_state,
    is_room_name,
    parse_rate,
)
from penstock.model.room_admission import (
    Eta,
    Flow,
    LaneShares,
    admissible,
    burst_of,
    earn,
    estimate,
    frees_slot,
    lot,
    next_credit_at,
    poll_after_ms,
    silent_before,
)
from penstock.model.ticket import LIVE, TRANSITIONS, Outlook, TicketState, check_user


def settings_of(json: str) -> RoomSettings:
    return check_room(decode_room(json.encode()))


def test_a_room_is_read_as_people_write_it() -> None:
    settings = settings_of(
        '{"capacity":10,"admit_rate":"200/s","claim_ttl":"2m","session_ttl":600,"wait_grace":"90s"}'
    )
    assert settings.capacity == 10
    assert settings.admit_rate == Rate(200, 1000)
    assert (settings.claim_ttl, settings.session_ttl, settings.wait_grace) == (
        120_000,
        600_000,
        90_000,
    )
    assert settings.expire_outside


def test_an_empty_room_has_defaults_and_leaves_outside_tickets_alone() -> None:
    settings = settings_of("{}")
    assert settings == RoomSettings()
    assert not settings.expire_outside


def test_null_means_never() -> None:
    settings = settings_of('{"claim_ttl":null,"session_ttl":null,"wait_grace":null}')
    assert settings.claim_ttl is settings.session_ttl is settings.wait_grace is None


@pytest.mark.parametrize(
    ("json", "field"),
    [
        ('{"capacity":-1}', "capacity"),
        ('{"capacity":"x"}', "capacity"),
        ('{"admit_rate":"fast"}', "admit_rate"),
        ('{"admit_rate":"0/s"}', "admit_rate"),
        ('{"admit_rate":0.5}', "admit_rate"),
        ('{"claim_ttl":"0s"}', "claim_ttl"),
        ('{"session_ttl":"soon"}', "session_ttl"),
        ('{"wait_grace":-1}', "wait_grace"),
        ('{"lanes":{"a b":1}}', "lanes"),
        ('{"lanes":{"vip":0}}', "lanes.vip"),
        ('{"lanes":{"a":1,"b":1,"c":1,"d":1}}', "lanes"),
        ('{"seed":""}', "seed"),
        ('{"opens_at":"tomorrow"}', "opens_at"),
        ('{"state":"ajar"}', "state"),
        ('{"size":3}', "size"),
    ],
)
def test_a_bad_room_is_refused_by_field(json: str, field: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        settings_of(json)
    assert caught.value.field == field


def test_what_is_no_json_is_malformed() -> None:
    with pytest.raises(Malformed):
        decode_room(b"{")


def test_names_of_rooms_and_users() -> None:
    assert all(map(is_room_name, ("sale", "event:1", "서울-콘서트", "a" * 200)))
    assert not any(map(is_room_name, ("", "a b", "a/b", "{a}", "a" * 201, "a\n", "50%")))
    assert check_user("u 1") == "u 1"
    for bad in ("", "a\n", "x" * 201):
        with pytest.raises(InvalidMessage):
            check_user(bad)


@pytest.mark.parametrize(("value", "rate"), [(5, "5/s"), ("3 / min", "3/m"), ("7/h", "7/h")])
def test_rates_print_as_they_are_written(value: str | float, rate: str) -> None:
    assert str(parse_rate(value)) == rate


def test_only_a_room_with_a_moment_ahead_starts_scheduled() -> None:
    later = RoomSettings(opens_at=100)
    assert first_state(None, later, 50) is RoomState.SCHEDULED
    assert first_state(None, later, 100) is RoomState.OPEN
    assert first_state(None, RoomSettings(), 50) is RoomState.OPEN
    assert Room(name="r", settings=later, state=RoomState.SCHEDULED).state_at(99) == "scheduled"
    assert Room(name="r", settings=later, state=RoomState.SCHEDULED).state_at(100) == "open"


def test_ended_tickets_stay_ended() -> None:
    assert all(not TRANSITIONS[state] for state in set(TicketState) - LIVE)
    assert TicketState.WAITING not in {then for ends in TRANSITIONS.values() for then in ends}


rates = st.builds(Rate, st.integers(1, 1000), st.sampled_from([1, 1000, 60_000, 86_400_000]))


@given(rates, st.lists(st.integers(0, 100_000), min_size=1, max_size=50))
def test_admissions_never_exceed_burst_and_rate(rate: Rate, gaps: list[int]) -> None:
    now = start = 1_000_000_000_000
    credit, since, total = 0, 0, 0
    for gap in gaps:
        now += gap
        credit = earn(rate, credit, since, now)
        since = now
        tokens = credit // rate.per
        credit -= tokens * rate.per
        total += tokens
    assert total <= burst_of(rate) + (now - start) * rate.count / rate.per + 1e-9


@given(rates, st.integers(0, 10**9), st.integers(0, 10**6))
def test_the_next_credit_comes_when_it_is_said(rate: Rate, credit: int, now: int) -> None:
    credit %= rate.per
    then = next_credit_at(rate, credit, now)
    assert earn(rate, credit, now, then) >= rate.per
    assert then == now or earn(rate, credit, now, then - 1) < rate.per


def test_a_clock_that_was_set_back_lets_people_in_all_the_same() -> None:
    rate, now = Rate(2, 1_000), 1_000_000
    assert earn(rate, 0, now + 100, now) == 0, "clocks that differ a little"
    assert earn(rate, 0, now + 20_000, now) >= rate.per


def test_as_many_as_slots_rate_and_people_allow() -> None:
    assert admissible(10, 4, 100, None, 500) == 6
    assert admissible(10, 4, 100, 2, 500) == 2
    assert admissible(10, 4, 3, None, 500) == 3
    assert admissible(10, 4, 100, None, 5) == 5
    assert admissible(10, 12, 100, None, 500) == 0
    assert admissible(10, -5, 100, None, 500) == 10


def test_a_slot_another_program_gave_back_is_not_given_back_twice() -> None:
    assert frees_slot(5, 5)
    assert frees_slot(7, 5)  # somebody else holds two
    assert not frees_slot(4, 5)
    assert not frees_slot(0, 0)


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 300))
def test_lanes_get_their_share(vip: int, normal: int, count: int) -> None:
    lanes = {"default": normal, "vip": vip}
    order = LaneShares().draw(lanes, {"default": 1000, "vip": 1000}, count)
    assert len(order) == count
    assert abs(order.count("vip") - count * vip / (vip + normal)) <= 2


def test_an_empty_lane_saves_up_nothing() -> None:
    shares = LaneShares()
    lanes = {"default": 1, "vip": 1}
    assert shares.draw(lanes, {"default": 50}, 50) == ["default"] * 50
    assert shares.draw(lanes, {"default": 10, "vip": 10}, 10).count("vip") in (5, 6)


def test_no_more_are_drawn_than_wait() -> None:
    assert LaneShares().draw({"default": 1, "vip": 2}, {"vip": 1}, 5) == ["vip"]


@given(st.text(min_size=1), st.text())
def test_a_lot_is_the_same_each_time_and_below_every_number(user: str, seed: str) -> None:
    assert lot(seed, user) == lot(seed, user) < 1 << 40


def test_nobody_is_silent_while_the_room_was_unattended() -> None:
    settings = RoomSettings(wait_grace=1000)
    assert silent_before(settings, 0, 5000) == 4000
    assert silent_before(settings, 4001, 5000) is None
    assert silent_before(RoomSettings(wait_grace=None), 0, 5000) is None


def test_the_flow_counts_about_a_minute() -> None:
    flow = Flow()
    assert flow.a_minute(1) == 0
    flow = flow.after(60, 1_000)
    assert flow.a_minute(30_000) == 60
    assert flow.a_minute(1 + 60_000 + 30_000) == pytest.approx(30, abs=1)
    assert flow.a_minute(10_000_000) == 0


def outlook(
    settings: RoomSettings,
    state: RoomState = RoomState.OPEN,
    *,
    in_use: int = 0,
    a_minute: float = 0,
) -> Outlook:
    room = Room(name="r", settings=settings)
    waiting = {"default": 1000}
    return Outlook(room=room, state=state, in_use=in_use, waiting=waiting, a_minute=a_minute)


def test_an_estimate_is_a_range_around_what_is_seen() -> None:
    settings = RoomSettings(capacity=100, session_ttl=None)
    eta = estimate(599, "default", outlook(settings, in_use=100, a_minute=60))
    assert eta == Eta(480, 800)


def test_an_estimate_is_unknown_while_paused_or_without_any_figure() -> None:
    settings = RoomSettings(capacity=100, session_ttl=None)
    assert estimate(5, "default", outlook(settings, RoomState.PAUSED, a_minute=60)) is None
    assert estimate(500, "default", outlook(settings, in_use=100)) is None
    assert estimate(5, "default", outlook(RoomSettings(capacity=0))) is None


def test_whoever_has_a_free_slot_waits_no_time() -> None:
    assert estimate(5, "default", outlook(RoomSettings(capacity=100))) == Eta(0, 1)


@given(
    st.integers(0, 10**7), st.integers(0, 10**6), st.floats(0, 10**6), st.sampled_from([None, 3])
)
def test_an_estimate_never_has_its_ends_crossed(
    ahead: int, in_use: int, a_minute: float, rate: int | None
) -> None:
    settings = RoomSettings(admit_rate=None if rate is None else Rate(rate, 1000))
    eta = estimate(ahead, "default", outlook(settings, in_use=in_use, a_minute=a_minute))
    assert eta is not None
    assert 0 <= eta.low <= eta.high


@given(st.none() | st.integers(0, 10**6), st.none() | st.integers(0, 10**6), st.integers(3, 10**6))
def test_asking_again_is_always_within_the_grace(
    ahead: int | None, low: int | None, grace: int
) -> None:
    eta = None if low is None else Eta(low, low + 1)
    assert 1 <= poll_after_ms(ahead, eta, grace, 5) <= max(1, grace // 3)
    assert 1_000 <= poll_after_ms(ahead, eta, None, 5) <= 30_000


def test_whoever_could_be_next_asks_often_whatever_the_estimate() -> None:
    far_off = Eta(600, 3_600)
    assert poll_after_ms(0, far_off, None, 100) == 3_000
    assert poll_after_ms(99, far_off, None, 100) == 3_000
    assert poll_after_ms(250, far_off, None, 100) == 9_000
    assert poll_after_ms(5_000, far_off, None, 100) == 30_000


def test_asking_for_the_flow_does_not_begin_its_window() -> None:
    flow = Flow()
    assert flow.a_minute(1_000) == 0
    flow = flow.after(4, 31_000)
    assert flow.a_minute(31_000 + 60_000) == 4
    assert flow.a_minute(31_000 + 90_000) == 2
    assert flow.a_minute(31_000 + 60_000) == 4
