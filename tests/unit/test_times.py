"""Moments and durations as people write them."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.errors import InvalidMessage
from penstock.model.times import (
    MAX_TIME,
    format_duration,
    format_moment,
    parse_duration,
    parse_moment,
)


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("2023-02-28T14:16:00Z", 1_677_593_760_000),
        ("2023-02-28T15:16:00+01:00", 1_677_593_760_000),
        ("2023-02-28 14:16:00.5Z", 1_677_593_760_500),
        ("2023-02-28t14:16:00.001z", 1_677_593_760_001),
        ("9999-12-31T23:59:59.999Z", MAX_TIME),
    ],
)
def test_a_moment_with_an_offset_is_read(text: str, millis: int) -> None:
    assert parse_moment(text) == millis


@pytest.mark.parametrize(
    ("fraction", "extra"),
    [(".0001", 1), (".000000001", 1), (".0010000", 1), (".0010001", 2), (".9999999", 1000)],
)
def test_fractions_below_a_millisecond_are_rounded_up(fraction: str, extra: int) -> None:
    assert parse_moment(f"2030-01-01T00:00:00{fraction}Z") == 1_893_456_000_000 + extra


@pytest.mark.parametrize(
    "text",
    [
        "2023-02-28T14:16:00",  # naive: whose clock?
        "2023-02-28",
        "tomorrow",
        "",
        "20230228T141600Z",
        "2023-02-30T00:00:00Z",
        "2023-02-28T24:00:01Z",
        "2023-02-28T23:59:60Z",
        "0001-01-01T00:00:00+14:00",
        "1969-12-31T23:59:59Z",
        "9999-12-31T23:59:59.9999Z",
        "2023-02-28T14:16:00+99:00",
        "2023-02-28T14:16:00Z" + "0" * 100,
        "٢٠٢٣-02-28T14:16:00Z",
    ],
)
def test_other_texts_are_refused_naming_the_field(text: str) -> None:
    with pytest.raises(InvalidMessage) as refused:
        parse_moment(text, "expires")
    assert refused.value.field == "expires"


@given(st.integers(0, MAX_TIME))
def test_formatting_and_parsing_a_moment_agree(millis: int) -> None:
    text = format_moment(millis)
    assert parse_moment(text) == millis
    assert text.endswith("Z")
    assert datetime.fromisoformat(text) == datetime(1970, 1, 1, tzinfo=UTC) + timedelta(
        milliseconds=millis
    )


@pytest.mark.parametrize(
    ("value", "millis"),
    [
        (0, 0),
        (5, 5_000),
        (0.1, 100),
        (0.0001, 1),
        (1e-9, 1),
        ("1500ms", 1_500),
        ("0.5ms", 1),
        ("90s", 90_000),
        ("15m", 900_000),
        ("2h", 7_200_000),
        ("3d", 259_200_000),
        ("90", 90_000),
        ("1.5h", 5_400_000),
    ],
)
def test_a_duration_is_seconds_or_a_text_with_a_unit(value: float | str, millis: int) -> None:
    assert parse_duration(value) == millis


@pytest.mark.parametrize(
    "value", [-1, float("inf"), float("nan"), 1e300, "", "15 minutes", "-5s", "1h30m", "9" * 41]
)
def test_other_durations_are_refused(value: float | str) -> None:
    with pytest.raises(InvalidMessage):
        parse_duration(value)


@given(st.integers(0, 10**12))
def test_a_formatted_duration_reads_back_the_same(millis: int) -> None:
    assert parse_duration(format_duration(millis)) == millis
