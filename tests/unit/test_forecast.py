"""A forecast adds up whatever it is told, by minute, by hour and beyond."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.forecast import HOUR_MS, HOURS, MINUTE_MS, MINUTES, Forecast

NOW = 1_900_000_012_345


def told(forecast: Forecast) -> int:
    return sum(sum(hour.values()) for hour in forecast.hours) + sum(forecast.later.values())


def test_what_is_overdue_is_due_in_the_first_minute() -> None:
    forecast = Forecast(now=NOW)
    forecast.add("r", NOW - 10 * HOUR_MS, 3)
    assert forecast.minutes[0] == forecast.hours[0] == {"r": 3}


def test_minutes_are_part_of_their_hours() -> None:
    forecast = Forecast(now=NOW)
    for minute in range(MINUTES):
        forecast.add("r", forecast.first_minute + minute * MINUTE_MS, 1)
    first = (forecast.first_hour + HOUR_MS - forecast.first_minute) // MINUTE_MS
    assert [hour["r"] for hour in forecast.hours[:2]] == [first, MINUTES - first]


def test_behind_the_last_hour_is_later() -> None:
    forecast = Forecast(now=NOW)
    forecast.add("r", forecast.first_hour + HOURS * HOUR_MS - 1, 1)
    forecast.add("r", forecast.first_hour + HOURS * HOUR_MS, 2)
    assert forecast.hours[-1] == {"r": 1}
    assert forecast.later == {"r": 2}


def test_a_span_within_a_minute_is_exact() -> None:
    forecast = Forecast(now=NOW)
    start = forecast.first_minute + 5 * MINUTE_MS
    forecast.spread("r", start, start + MINUTE_MS, 7)
    assert forecast.minutes[5] == {"r": 7}
    assert forecast.exact


def test_a_longer_span_is_spread_evenly_and_said_to_be() -> None:
    forecast = Forecast(now=NOW)
    start = forecast.first_minute + 10 * MINUTE_MS
    forecast.spread("r", start, start + 10 * MINUTE_MS, 20)
    assert [minute["r"] for minute in forecast.minutes[9:21]] == [0, *([2] * 10), 0]
    assert not forecast.exact


@given(
    start=st.integers(-HOUR_MS, 100 * HOUR_MS),
    width=st.integers(1, 48 * HOUR_MS),
    number=st.integers(0, 10_000),
)
def test_spreading_loses_and_makes_nothing(start: int, width: int, number: int) -> None:
    forecast = Forecast(now=NOW)
    end = max(NOW + start + width, NOW + 1)
    forecast.spread("r", NOW + start, end, number)
    assert told(forecast) == number
