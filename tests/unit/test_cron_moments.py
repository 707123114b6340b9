"""Moments of cron expressions against a minute-by-minute look at the wall clock."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.model.cron import cron
from penstock.model.errors import InvalidMessage

MINUTE = 60
DAY = 86_400
ZONES = sorted(name for name in available_timezones() if "/" in name)
JUMPS = [
    ("Europe/Berlin", date(2026, 3, 29)),
    ("Europe/Berlin", date(2026, 10, 25)),
    ("America/New_York", date(2026, 11, 1)),
    ("Australia/Sydney", date(2026, 10, 4)),
    ("Australia/Lord_Howe", date(2026, 4, 5)),  # half an hour back
    ("Australia/Lord_Howe", date(2026, 10, 4)),
    ("America/Asuncion", date(2023, 10, 1)),  # midnight does not exist
    ("America/Havana", date(2026, 11, 1)),  # midnight comes twice
    ("America/St_Johns", date(2006, 10, 29)),  # 00:01 → 23:01 the day before
    ("Africa/Casablanca", date(2026, 2, 15)),
    ("Pacific/Apia", date(2011, 12, 30)),  # a day that never was
    ("Asia/Pyongyang", date(2018, 5, 4)),
    ("Asia/Kathmandu", date(2024, 2, 29)),
    ("Pacific/Kwajalein", date(2000, 2, 29)),
]


def second(day: date) -> int:
    return int(datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp())


@lru_cache(maxsize=4096)
def changes_of(zone: str, year: int) -> list[date]:
    """The days of a year on which the zone's offset changes."""
    info = ZoneInfo(zone)
    days = [date(year, 1, 1) + timedelta(days=n) for n in range(365)]
    offsets = [datetime.fromtimestamp(second(day), info).utcoffset() for day in days]
    return [day for day, one, two in zip(days, offsets, offsets[1:], strict=False) if one != two]


class Fields:
    """A cron expression by the values that each field matches; None is a wildcard."""

    def __init__(
        self,
        minutes: set[int] | None,
        hours: set[int] | None,
        days: set[int] | None,
        months: set[int] | None,
        weekdays: set[int] | None,
    ) -> None:
        self.minutes, self.hours, self.days = minutes, hours, days
        self.months, self.weekdays = months, weekdays

    def __repr__(self) -> str:
        return " ".join(
            "*" if values is None else ",".join(map(str, sorted(values)))
            for values in (self.minutes, self.hours, self.days, self.months, self.weekdays)
        )

    def matches(self, wall: datetime) -> bool:
        def fits(value: int, values: set[int] | None) -> bool:
            return values is None or value in values

        day, weekday = fits(wall.day, self.days), fits(wall.isoweekday() % 7, self.weekdays)
        either = self.days is not None and self.weekdays is not None
        return (
            fits(wall.minute, self.minutes)
            and fits(wall.hour, self.hours)
            and fits(wall.month, self.months)
            and ((day or weekday) if either else (day and weekday))
        )


def some(low: int, high: int, most: int = 3) -> st.SearchStrategy[set[int] | None]:
    return st.none() | st.sets(st.integers(low, high), min_size=1, max_size=most)


expressions = st.builds(
    Fields, some(0, 59), some(0, 23, 8), some(1, 28), some(1, 12, 6), some(0, 6)
)
around_a_change = st.sampled_from(JUMPS) | st.tuples(
    st.sampled_from(ZONES), st.integers(2000, 2034)
).flatmap(
    lambda at: st.tuples(st.just(at[0]), st.sampled_from(changes_of(*at) or [date(at[1], 6, 1)]))
)


def by_the_wall_clock(fields: Fields, zone: str, first: int, last: int) -> list[int]:
    """Every moment in [first, last), by nothing but what the clock on the wall shows.

    A wall time shown before does not count again unless the hour is a wildcard. Where the clock
    jumps forward, what it leaves out fires when it has jumped.
    """
    info = ZoneInfo(zone)
    found = []
    reached: datetime | None = None
    for at in range(first - 2 * DAY, last, MINUTE):
        wall = datetime.fromtimestamp(at, info).replace(tzinfo=None, fold=0)
        fires = fields.matches(wall)
        if fields.hours is not None and reached is not None:
            fires = fires and wall > reached
            between = reached + timedelta(minutes=1)
            while between < wall:
                fires = fires or fields.matches(between)
                between += timedelta(minutes=1)
        reached = wall if reached is None else max(reached, wall)
        if fires and at >= first:
            found.append(at)
    return found


@settings(max_examples=150, deadline=None)
@given(expressions, around_a_change, st.integers(-3 * DAY, DAY))
def test_moments_are_those_of_the_wall_clock(
    fields: Fields, change: tuple[str, date], offset: int
) -> None:
    zone, day = change
    first = second(day) + offset - offset % MINUTE
    last = first + 3 * DAY
    expected = by_the_wall_clock(fields, zone, first, last)
    moments = cron(repr(fields), zone)
    found = list(islice(moments.after(first - 1), len(expected) + 1))
    assert [at for at in found if at < last] == expected
    assert moments.count(first - 1, last - 1) == len(expected)
    assert moments.latest(first - 1, last - 1) == (expected[-1] if expected else None)


@settings(max_examples=100, deadline=None)
@given(
    expressions,
    st.sampled_from(ZONES),
    st.integers(946_684_800, 2_000_000_000),
    st.integers(0, 90 * DAY),
)
def test_counting_and_the_latest_agree_with_the_moments_one_by_one(
    fields: Fields, zone: str, after: int, width: int
) -> None:
    moments = cron(repr(fields), zone)
    found: list[int] = []
    for at in moments.after(after):
        if at > after + width or len(found) > 5_000:
            break
        found.append(at)
    assume(len(found) <= 5_000)
    assert found == sorted(set(found))
    assert moments.count(after, after + width) == len(found)
    assert moments.latest(after, after + width) == (found[-1] if found else None)


def shown(text: str, zone: str, after: str, number: int) -> list[str]:
    start = int(datetime.fromisoformat(after).timestamp())
    info = ZoneInfo(zone)
    found = islice(cron(text, zone).after(start), number)
    return [datetime.fromtimestamp(at, info).isoformat() for at in found]


def test_a_time_that_does_not_exist_fires_at_the_first_instant_after_the_gap() -> None:
    assert shown("30 2 * * *", "Europe/Berlin", "2027-03-27T12:00Z", 2) == [
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:30:00+02:00",
    ]
    assert shown("* 2 * * *", "Europe/Berlin", "2027-03-28T00:00Z", 2) == [
        "2027-03-28T03:00:00+02:00",
        "2027-03-29T02:00:00+02:00",
    ]


def test_a_time_that_comes_twice_fires_once_unless_the_hour_is_a_wildcard() -> None:
    assert shown("30 2 * * *", "Europe/Berlin", "2027-10-30T12:00Z", 2) == [
        "2027-10-31T02:30:00+02:00",
        "2027-11-01T02:30:00+01:00",
    ]
    assert shown("30 * * * *", "Europe/Berlin", "2027-10-31T00:00Z", 3) == [
        "2027-10-31T02:30:00+02:00",
        "2027-10-31T02:30:00+01:00",
        "2027-10-31T03:30:00+01:00",
    ]


def test_a_day_that_a_zone_skipped_fires_when_it_is_over() -> None:
    assert shown("0 9 30 12 *", "Pacific/Apia", "2011-12-28T00:00Z", 2) == [
        "2011-12-31T00:00:00+14:00",
        "2012-12-30T09:00:00+14:00",
    ]


def test_the_29th_of_february_comes_in_leap_years() -> None:
    assert shown("0 0 29 2 *", "UTC", "2096-01-01T00:00Z", 2) == [
        "2096-02-29T00:00:00+00:00",
        "2104-02-29T00:00:00+00:00",
    ]


def test_seconds_may_come_first() -> None:
    assert shown("*/20 0 9 * * *", "UTC", "2026-01-01T09:00:01Z", 3)[:2] == [
        "2026-01-01T09:00:20+00:00",
        "2026-01-01T09:00:40+00:00",
    ]


def test_expressions_are_explained() -> None:
    assert cron("0 9 * * mon-fri", "UTC").words() == "At 09:00, Monday to Friday"
    both = "At 00:00 on the 13th day of the month or on "
    assert cron("0 0 13 * fri", "UTC").words() == f"{both}Friday"
    assert cron("0 0 13 * mon-fri", "UTC").words() == f"{both}Monday to Friday"
    assert cron("@daily", "UTC").words() == "At 00:00 every day"
    assert cron("*/15 * * * *", "UTC").words() == "Every 15th minute of every hour"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0 0 30 2 *", "never comes: no month of '2' has day '30'"),
        ("0 0 31 4,6 *", "never comes: no month of '4,6' has day '31'"),
        ("60 * * * *", "'60' is not a minute"),
        ("0 9 * * mon-xyz", "'mon-xyz' is not a day-of-week"),
        ("0 9 * *", "needs 5 fields (minute hour day month weekday), not 4"),
        ("", "needs 5 fields (minute hour day month weekday), not 0"),
        ("0" * 300, "is longer than 200 characters"),
    ],
)
def test_what_makes_no_sense_is_named(text: str, reason: str) -> None:
    with pytest.raises(InvalidMessage, match="cron") as failed:
        cron(text, "UTC").check_it_comes()
    assert failed.value.reason == reason


def test_a_word_without_a_moment_is_named() -> None:
    with pytest.raises(InvalidMessage, match="@reboot has no moment of the clock"):
        cron("@reboot", "UTC")
