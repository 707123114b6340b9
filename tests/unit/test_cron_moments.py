"""Moments of cron expressions against a minute-by-minute look at the wall clock."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice, takewhile
from typing import NamedTuple
from zoneinfo import ZoneInfo, available_timezones

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from penstock.model.cron import cron
from penstock.model.errors import InvalidMessage

MINUTE, HOUR, DAY = 60, 3_600, 86_400
FIRST = int(datetime(2000, 1, 1, tzinfo=UTC).timestamp())
LAST = int(datetime(2038, 1, 1, tzinfo=UTC).timestamp())
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
        if self.minutes is not None and wall.minute not in self.minutes:
            return False
        if self.hours is not None and wall.hour not in self.hours:
            return False
        if self.months is not None and wall.month not in self.months:
            return False
        day = self.days is None or wall.day in self.days
        weekday = self.weekdays is None or wall.isoweekday() % 7 in self.weekdays
        either = self.days is not None and self.weekdays is not None
        return (day or weekday) if either else (day and weekday)


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


class Shown(NamedTuple):
    """One minute of the wall clock."""

    at: int
    wall: datetime
    is_new: bool
    """No minute before it showed this wall time or a later one."""
    left_out: tuple[datetime, ...]
    """Wall times that the clock jumped over on its way here."""


def wall_clock(zone: str, first: int, last: int, known: int = 2 * DAY) -> list[Shown]:
    """What the clock on the wall shows in [first, last), minute by minute.

    What it showed in the `known` seconds before `first` is not new.
    """
    info, minute = ZoneInfo(zone), timedelta(minutes=1)
    reached: datetime | None = None
    found = []
    for at in range(first - known, last, MINUTE):
        wall = datetime.fromtimestamp(at, info).replace(tzinfo=None, fold=0)
        left_out: list[datetime] = []
        is_new = reached is None or wall > reached
        if reached is not None and wall > (between := reached + minute):
            while between < wall:
                left_out.append(between)
                between += minute
        if is_new:
            reached = wall
        if at >= first:
            found.append(Shown(at, wall, is_new, tuple(left_out)))
    return found


def by_the_wall_clock(fields: Fields, shown: list[Shown]) -> list[int]:
    """Every moment among these minutes, by nothing but what the clock on the wall shows.

    A wall time shown before does not count again unless the hour is a wildcard. Where the clock
    jumps forward, what it leaves out fires when it has jumped.
    """
    if fields.hours is None:
        return [one.at for one in shown if fields.matches(one.wall)]
    return [
        one.at
        for one in shown
        if (one.is_new and fields.matches(one.wall))
        or (one.left_out and any(map(fields.matches, one.left_out)))
    ]


def moments_between(fields: Fields, zone: str, first: int, last: int) -> list[int]:
    return list(takewhile(lambda at: at < last, cron(repr(fields), zone).after(first - 1)))


def check_moments(fields: Fields, zone: str, shown: list[Shown]) -> None:
    """The moments of the expression in these minutes, one by one, counted, and the last of them."""
    first, last = shown[0].at, shown[-1].at + MINUTE
    expected = by_the_wall_clock(fields, shown)
    moments = cron(repr(fields), zone)
    assert moments_between(fields, zone, first, last) == expected, f"{fields} in {zone}"
    assert moments.count(first - 1, last - 1) == len(expected), f"{fields} in {zone}"
    latest = expected[-1] if expected else None
    assert moments.latest(first - 1, last - 1) == latest, f"{fields} in {zone}"


class Change(NamedTuple):
    """A moment at which a zone set its clocks, and its offsets before and after."""

    at: int
    before: int
    after: int


def every_change() -> dict[Change, list[str]]:
    """Every change of clocks from 2000 to 2037 in the time zone database, with its zones."""
    found: dict[Change, list[str]] = {}
    for zone in sorted(available_timezones()):
        info = ZoneInfo(zone)

        def offset(at: int, info: ZoneInfo = info) -> int:
            return int(
                (datetime.fromtimestamp(at, info).utcoffset() or timedelta()).total_seconds()
            )

        before = offset(FIRST)
        for day in range(FIRST + DAY, LAST, DAY):
            if (after := offset(day)) == before:
                continue
            early, late = day - DAY, day
            while late - early > 1:
                middle = (early + late) // 2
                early, late = (middle, late) if offset(middle) == before else (early, middle)
            found.setdefault(Change(late, before, after), []).append(zone)
            before = after
    return found


def awkward(change: Change) -> list[Fields]:
    """Expressions that fire where the clock jumps, or beside it."""
    walls = sorted(
        datetime.fromtimestamp(change.at + offset, UTC) for offset in (change.before, change.after)
    )
    middle = walls[0] + (walls[1] - walls[0]) / 2
    chance = random.Random(repr(change))
    return [
        *(Fields({wall.minute}, {wall.hour}, None, None, None) for wall in (*walls, middle)),
        Fields({middle.minute}, {middle.hour}, {middle.day}, {middle.month}, None),
        Fields(None, {wall.hour for wall in (*walls, middle)}, None, None, None),
        Fields({0, 15, 30, 45}, None, None, None, None),
        Fields(
            {chance.randrange(60), chance.randrange(60)},
            {chance.randrange(24), walls[0].hour, walls[1].hour},
            {walls[1].day, chance.randrange(1, 29)},
            None,
            {chance.randrange(7)},
        ),
    ]


@pytest.mark.slow
def test_every_change_of_clocks_since_2000_is_as_the_wall_clock_shows_it() -> None:
    changes = every_change()
    assert len({zone for zones in changes.values() for zone in zones}) > 300
    assert len(changes) > 3_000
    for change, (zone, *others) in changes.items():
        first = (change.at - 2 * HOUR) // MINUTE * MINUTE
        last = first + DAY + 4 * HOUR
        shown = wall_clock(zone, first, last, 6 * HOUR)
        for fields in awkward(change):
            check_moments(fields, zone, shown)
        expected = moments_between(fields, zone, first, last)
        for other in others:
            if moments_between(fields, other, first, last) != expected:  # another change is near
                check_moments(fields, other, wall_clock(other, first, last))


@settings(max_examples=150, deadline=None)
@given(expressions, around_a_change, st.integers(-3 * DAY, DAY))
def test_moments_are_those_of_the_wall_clock(
    fields: Fields, change: tuple[str, date], offset: int
) -> None:
    zone, day = change
    first = second(day) + offset - offset % MINUTE
    check_moments(fields, zone, wall_clock(zone, first, first + 3 * DAY))


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
    with pytest.raises(InvalidMessage, match="@reboot names no time of day"):
        cron("@reboot", "UTC")
