"""Quiet hours against a minute-by-minute look at the wall clock, where it jumps and repeats."""

from datetime import UTC, date, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.limits.quiet import QuietHours
from penstock.limits.window import Period
from penstock.model.policy import Calendar, Day, Quiet

MINUTE = 60_000
CHANGES = [
    ("Europe/Berlin", date(2026, 3, 29)),  # 02:00 → 03:00
    ("Europe/Berlin", date(2026, 10, 25)),  # 03:00 → 02:00
    ("America/New_York", date(2026, 3, 8)),
    ("America/New_York", date(2026, 11, 1)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),  # half an hour forward
    ("Australia/Lord_Howe", date(2026, 4, 5)),  # half an hour back
    ("America/Asuncion", date(2023, 10, 1)),  # midnight does not exist
    ("America/Asuncion", date(2024, 3, 24)),  # midnight → 23:00 the day before
    ("America/Havana", date(2026, 3, 8)),  # 00:00 → 01:00
    ("America/Havana", date(2026, 11, 1)),  # 01:00 → 00:00: midnight comes twice
    ("America/St_Johns", date(2006, 10, 29)),  # 00:01 → 23:01 the day before
    ("Africa/Casablanca", date(2026, 2, 15)),  # back for Ramadan
    ("Pacific/Apia", date(2011, 12, 30)),  # a day that never was
    ("Asia/Kathmandu", date(2026, 6, 1)),  # 45 minutes off the hour, no change
    ("Asia/Pyongyang", date(2018, 5, 4)),  # half an hour forward before midnight
    ("Asia/Seoul", date(2026, 1, 1)),
]

walls = st.integers(0, 24 * 60 - 1)
any_days = st.sets(st.sampled_from(list(Day)), min_size=1).map(
    lambda days: tuple(day for day in Day if day in days)
)


def wall(minutes: int) -> str:
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def utc_ms(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()) * 1000


def quiet_minutes(policy: Quiet, zone: ZoneInfo, first: int, last: int) -> set[int]:
    """Every minute of [first, last) that is quiet, by nothing but the wall clock.

    The nights are marked minute by minute, up to the last time the clock shows their end; in
    between a night has no holes, which is what "a repeated wall time: the longer quiet" means.
    """
    start = int(policy.from_[:2]) * 60 + int(policy.from_[3:])
    end = int(policy.to[:2]) * 60 + int(policy.to[3:])
    nights: dict[date, list[int]] = {}
    over: dict[date, int] = {}
    names = list(Day)
    for at in range(first, last, MINUTE):
        local = datetime.fromtimestamp(at // 1000, zone)
        now = local.hour * 60 + local.minute
        today = local.date()
        evening = today if start < end or now >= start else today - timedelta(days=1)
        if names[evening.weekday()] not in policy.days:
            continue
        if start <= now < end or (start > end and (now >= start or now < end)):
            nights.setdefault(evening, []).append(at)
        elif now == end:
            over[evening] = at
    return {
        at
        for evening, night in nights.items()
        for at in range(night[0], max(night[-1] + 1, over.get(evening, 0)), MINUTE)
    }


@pytest.mark.parametrize(("name", "day"), CHANGES)
@settings(max_examples=12)
@given(start=walls, end=walls, days=any_days)
def test_quiet_agrees_with_every_minute_of_the_wall_clock(
    name: str, day: date, start: int, end: int, days: tuple[Day, ...]
) -> None:
    if start == end:
        return
    zone = ZoneInfo(name)
    policy = Quiet(from_=wall(start), to=wall(end), days=days)
    hours = QuietHours(policy, zone)
    first, last = utc_ms(day) - 2 * 86_400_000, utc_ms(day) + 2 * 86_400_000
    # A margin on both sides, so that the nights at the ends are seen whole.
    quiet = quiet_minutes(policy, zone, first - 2 * 86_400_000, last + 2 * 86_400_000)
    for at in range(first, last, 7 * MINUTE):
        assert bool(hours.ends(at)) == (at in quiet), datetime.fromtimestamp(at // 1000, zone)
    for at in range(first, last, 97 * MINUTE):
        if end_of := hours.ends(at):
            assert end_of > at
            assert end_of - MINUTE in quiet
            assert end_of not in quiet
            assert hours.ends(end_of - 1) == end_of
            assert not hours.ends(end_of)
        else:
            begins = hours.begins(at)
            assert begins > at
            assert hours.ends(begins)
            assert not hours.ends(begins - 1)


def test_a_wall_time_that_does_not_exist_is_the_first_instant_after_the_jump() -> None:
    zone = ZoneInfo("Europe/Berlin")
    jump = int(datetime(2026, 3, 29, 1, tzinfo=UTC).timestamp()) * 1000
    until = QuietHours(Quiet(from_="22:00", to="02:30"), zone)
    assert until.ends(jump - 1) == jump
    start = QuietHours(Quiet(from_="02:30", to="08:00"), zone)
    assert not start.ends(jump - 1)
    assert start.ends(jump)


def test_a_repeated_wall_time_makes_the_quiet_longer() -> None:
    zone = ZoneInfo("Europe/Berlin")
    second = int(datetime(2026, 10, 25, 1, 30, tzinfo=UTC).timestamp()) * 1000  # 02:30 again
    assert QuietHours(Quiet(from_="22:00", to="02:30"), zone).ends(second - 3_600_000) == second
    assert QuietHours(Quiet(from_="02:30", to="08:00"), zone).begins(second - 4_000_000) == (
        second - 3_600_000
    )


def test_an_end_that_comes_twice_counts_the_second_time() -> None:
    second = int(datetime(2026, 10, 25, 1, tzinfo=UTC).timestamp()) * 1000  # 02:00 again
    hours = QuietHours(Quiet(from_="22:00", to="02:00"), ZoneInfo("Europe/Berlin"))
    assert hours.ends(second - 1) == second


def test_days_name_the_evening_on_which_a_night_begins() -> None:
    hours = QuietHours(Quiet(from_="22:00", to="08:00", days=(Day.FRI,)), ZoneInfo("UTC"))
    saturday = utc_ms(date(2026, 11, 14))
    assert hours.ends(saturday + 3_600_000) == saturday + 8 * 3_600_000
    assert not hours.ends(saturday + 23 * 3_600_000)


def test_days_that_touch_are_one_quiet_span() -> None:
    weekend = Quiet(from_="00:00", to="24:00", days=(Day.SAT, Day.SUN))
    saturday = utc_ms(date(2026, 11, 14))
    assert QuietHours(weekend, ZoneInfo("UTC")).ends(saturday) == saturday + 2 * 86_400_000


@pytest.mark.parametrize(("name", "day"), CHANGES)
@pytest.mark.parametrize("unit", list(Calendar))
def test_every_minute_lies_in_one_period_and_they_follow_without_gaps(
    name: str, day: date, unit: Calendar
) -> None:
    zone = ZoneInfo(name)
    end = 0
    for at in range(utc_ms(day) - 2 * 86_400_000, utc_ms(day) + 2 * 86_400_000, 5 * MINUTE):
        start, until = Period(unit, zone).bounds(at)
        assert start <= at < until
        assert Period(unit, zone).bounds(until)[0] == until
        assert Period(unit, zone).bounds(start) == (start, until)
        if end and at >= end:
            assert start >= end
        end = until


def test_a_day_begins_at_the_zones_own_midnight() -> None:
    period = Period(Calendar.DAY, ZoneInfo("Asia/Seoul"))
    midnight = utc_ms(date(2026, 11, 14)) - 9 * 3_600_000
    assert period.bounds(midnight) == (midnight, midnight + 86_400_000)
    spring = Period(Calendar.DAY, ZoneInfo("Europe/Berlin"))
    start, end = spring.bounds(utc_ms(date(2026, 3, 29)) + 43_200_000)
    assert end - start == 23 * 3_600_000
    week = Period(Calendar.WEEK, ZoneInfo("Europe/Berlin")).bounds(utc_ms(date(2026, 10, 23)))
    assert week[1] - week[0] == (7 * 24 + 1) * 3_600_000
    month = Period(Calendar.MONTH, ZoneInfo("UTC")).bounds(utc_ms(date(2026, 2, 10)))
    assert month == (utc_ms(date(2026, 2, 1)), utc_ms(date(2026, 3, 1)))
    year = Period(Calendar.YEAR, ZoneInfo("UTC")).bounds(utc_ms(date(2026, 2, 10)))
    assert year == (utc_ms(date(2026, 1, 1)), utc_ms(date(2027, 1, 1)))
