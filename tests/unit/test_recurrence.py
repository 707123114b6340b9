"""The steps of a recurring rule: what is planted when, and what every other moment counts as."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model.errors import InvalidMessage, TooLarge
from penstock.model.recurrence import (
    AHEAD_MS,
    GRACE_MS,
    Misfire,
    Moments,
    Overlap,
    Rule,
    RuleRow,
    aimed,
    backfill,
    change,
    decode_row,
    digest,
    encode_row,
    failed,
    jitter_of,
    occurrence,
    occurrence_id,
    overdue,
    plant,
    rule_from,
    upcoming,
    words,
)
from penstock.model.times import format_moment, parse_moment

NOON = parse_moment("2026-11-18T12:00:00Z")
MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000


def rule(**fields: Any) -> Rule:
    return rule_from({"every": "1m"} | fields if "cron" not in fields else fields)


def made(at: int = NOON, **fields: Any) -> RuleRow:
    return change(None, "r", rule(**fields), at)


def planted_until(row: RuleRow, end: int) -> tuple[list[int], RuleRow]:
    """Plant at each wake, as a worker that is never late does."""
    found: list[int] = []
    while row.wake is not None and row.wake <= end:
        step = plant(row, row.wake)
        found += step.moments
        row = step.row
    return found, row


def moments_in(one: Rule, start: int, end: int) -> set[int]:
    return set(takewhile(lambda at: at <= end, Moments(one).after(start)))


# --- what is accepted


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({}, "cron"),
        ({"cron": "* * * * *", "every": "1m"}, "every"),
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "0 9 * * *", "zone": "Mars/Olympus"}, "zone"),
        ({"cron": "0 9 * * *", "anchor": "2026-01-01T00:00:00Z"}, "anchor"),
        ({"every": "1d", "zone": "Europe/Berlin"}, "zone"),
        ({"every": "999ms"}, "every"),
        ({"every": 0}, "every"),
        ({"every": "1500ms"}, "every"),
        ({"every": "401d"}, "every"),
        ({"every": "1m", "anchor": "2026-01-01T00:00:00.5Z"}, "anchor"),
        ({"every": "1m", "anchor": "yesterday"}, "anchor"),
        (
            {"every": "1m", "start": "2026-01-02T00:00:00Z", "end": "2026-01-01T00:00:00Z"},
            "end",
        ),
        ({"every": "1m", "limit": 0}, "limit"),
        ({"every": "1m", "jitter": "2d"}, "jitter"),
        ({"every": "1m", "misfire": "never"}, "misfire"),
        ({"every": "1m", "overlap": "x"}, "overlap"),
        ({"every": "1m", "catch_up": "500d"}, "catch_up"),
        ({"every": "1m", "expires_after": 0}, "expires_after"),
        ({"every": "1m", "priority": 10}, "priority"),
        ({"every": "1m", "headers": {"penstock-x": "1"}}, "headers"),
        ({"every": "1m", "labels": {"tz": "Nowhere"}}, "labels.tz"),
        ({"every": "1m", "route": "a b"}, "route"),
        ({"every": "1m", "key": ""}, "key"),
        ({"every": "1m", "payload": 1, "payload_base64": "AA=="}, "payload_base64"),
        ({"every": "1m", "evry": "1s"}, "evry"),
    ],
)
def test_what_makes_no_sense_names_its_field(fields: dict[str, object], field: str) -> None:
    with pytest.raises(InvalidMessage) as error:
        rule_from(fields)
    assert error.value.field == field


def test_a_payload_past_the_limit_is_refused() -> None:
    with pytest.raises(TooLarge, match="payload"):
        rule_from({"every": "1m", "payload": "x" * 100}, max_payload=50)


def test_rules_are_said_in_words() -> None:
    assert words(rule(cron="0 9 * * mon-fri", zone="Europe/Berlin")) == (
        "At 09:00, Monday to Friday (Europe/Berlin)"
    )
    assert words(rule(every="15m")) == "Every 15 minutes"
    assert words(rule(every="90s")) == "Every 90 seconds"
    assert words(rule(every="1d", anchor="2026-01-01T07:00:00+01:00")) == (
        "Every day, counted from 2026-01-01T06:00:00.000Z"
    )


def test_a_row_comes_back_as_it_was() -> None:
    row = made(payload={"a": [1, None]}, labels={"class": "x"}, headers={"h": "v"}, jitter="5s")
    assert decode_row(encode_row(row)) == row
    assert digest(row.rule) == digest(decode_row(encode_row(row)).rule)


# --- moments


def test_every_counts_from_its_anchor_and_not_from_the_last_run() -> None:
    moments = Moments(rule(every="7m", anchor="2026-11-18T11:58:00Z"))
    found = moments.after(NOON)
    assert [format_moment(next(found))[11:19] for _ in range(2)] == ["12:05:00", "12:12:00"]
    assert moments.latest(0, NOON) == parse_moment("2026-11-18T11:58:00Z")
    assert moments.latest(0, NOON - 3 * MINUTE) is None


def test_start_and_end_are_both_included() -> None:
    moments = Moments(rule(every="1h", start="2026-11-18T13:00:00Z", end="2026-11-18T15:00:00Z"))
    found = [NOON + n * HOUR for n in (1, 2, 3)]
    assert list(moments.after(NOON)) == found
    assert moments.count(0, NOON + DAY) == 3
    assert moments.latest(0, NOON + DAY) == found[-1]


# --- occurrences


def test_an_occurrence_is_a_message_with_the_id_of_its_moment() -> None:
    row = made(
        route="reports",
        payload={"a": 1},
        headers={"x": "y"},
        priority=9,
        expires_after="1h",
        labels={"channel": "push"},
    )
    message = occurrence(row, NOON)
    assert message.id == "r@2026-11-18T12:00:00Z"
    assert message.headers == {"x": "y", "penstock-recurring": "r"}
    assert (message.route, message.payload, message.priority) == ("reports", b'{"a":1}', 9)
    assert (message.due, message.expires) == (NOON, NOON + HOUR)
    assert message.key == message.id
    assert message.labels is not None
    assert message.labels.channel == "push"


def test_an_id_is_of_the_moment_and_not_of_its_jitter() -> None:
    message = occurrence(made(jitter="1h"), NOON)
    assert message.id == "r@2026-11-18T12:00:00Z"
    assert NOON < message.due <= NOON + HOUR


def test_jitter_is_the_same_everywhere_and_spreads() -> None:
    row = made(jitter="30s")
    delays = [occurrence(row, NOON + n * MINUTE).due - NOON - n * MINUTE for n in range(200)]
    assert delays == [jitter_of("r", row.rule, NOON + n * MINUTE) for n in range(200)]
    assert min(delays) >= 0
    assert max(delays) <= 30_000
    assert len(set(delays)) > 100


# --- planting


def test_an_occurrence_is_planted_ahead() -> None:
    row = made()
    assert (row.next, row.wake) == (NOON + MINUTE, NOON + MINUTE - AHEAD_MS)
    assert plant(row, NOON + MINUTE - AHEAD_MS - 1).moments == ()
    step = plant(row, NOON + MINUTE - AHEAD_MS)
    assert step.moments == (NOON + MINUTE,)
    assert step.row.wake == NOON + 2 * MINUTE - AHEAD_MS


def test_no_occurrence_is_planted_before_the_one_before_has_come() -> None:
    found, row = planted_until(made(every="1s"), NOON + 5_000)
    assert found == [NOON + n * 1_000 for n in range(1, 6)]
    assert row.wake == NOON + 6_000 - AHEAD_MS


@pytest.mark.parametrize("every", ["1s", "2s", "1m"])
def test_planting_begins_after_the_second_at_which_occurrences_leave(every: str) -> None:
    _, row = planted_until(made(every=every), NOON + 5 * MINUTE)
    assert row.next is not None
    assert row.wake is not None
    assert row.next - 1_000 < row.wake < row.next


def test_after_downtime_the_latest_is_planted() -> None:
    step = plant(made(), NOON + 10 * MINUTE + 30_000)
    assert step.moments == (NOON + 10 * MINUTE,)
    assert (step.row.planted, step.row.missed) == (1, 9)


def test_after_downtime_none_is_planted_where_misfires_are_skipped() -> None:
    step = plant(made(misfire="skip"), NOON + 10 * MINUTE + GRACE_MS + 1)
    assert step.moments == ()
    assert (step.row.planted, step.row.missed) == (0, 10)
    assert plant(made(misfire="skip"), NOON + MINUTE + GRACE_MS).moments == (NOON + MINUTE,)


def test_after_downtime_all_within_catch_up_are_planted() -> None:
    step = plant(made(misfire="all", catch_up="3m"), NOON + 10 * MINUTE)
    assert step.moments == tuple(NOON + n * MINUTE for n in (7, 8, 9, 10))
    assert (step.row.planted, step.row.missed) == (4, 6)


def test_a_long_catch_up_goes_step_by_step() -> None:
    row = made(every="1s", misfire="all")
    found: list[int] = []
    now = NOON + 1_200_500
    while row.wake is not None and row.wake <= now:
        step = plant(row, now)
        assert len(step.moments) <= 501
        found += step.moments
        row = step.row
    assert found == [NOON + n * 1_000 for n in range(1, 1_202)]


def test_an_occurrence_that_has_expired_is_missed() -> None:
    step = plant(made(expires_after="20s"), NOON + MINUTE + 20_000)
    assert step.moments == ()
    assert step.row.missed == 1


def test_a_rule_ends_at_its_limit() -> None:
    found, row = planted_until(made(limit=3), NOON + HOUR)
    assert found == [NOON + n * MINUTE for n in (1, 2, 3)]
    assert (row.next, row.wake, upcoming(row, NOON + HOUR)) == (None, None, [])


def test_a_paused_rule_plants_nothing_and_makes_up_for_nothing() -> None:
    row = made()
    paused = change(row, "r", replace(row.rule, paused=True), NOON + 30_000)
    assert (paused.wake, upcoming(paused, NOON + 30_000)) == (
        None,
        upcoming(row, NOON + 30_000),
    )
    again = change(paused, "r", row.rule, NOON + 10 * MINUTE + 1)
    assert (again.next, again.missed, again.version) == (NOON + 11 * MINUTE, 0, 3)


def test_a_moment_is_skipped_while_the_one_before_is_not_settled() -> None:
    first = plant(made(overlap="skip"), NOON + MINUTE)
    assert first.moments == (NOON + MINUTE,)
    second = plant(first.row, NOON + 2 * MINUTE, unsettled=True)
    assert (second.moments, second.row.skipped) == ((), 1)
    assert second.row.before == NOON + MINUTE
    third = plant(second.row, NOON + 3 * MINUTE)
    assert third.moments == (NOON + 3 * MINUTE,)


def test_a_moment_takes_the_place_of_the_one_before() -> None:
    first = plant(made(overlap="replace"), NOON + MINUTE)
    second = plant(first.row, NOON + 2 * MINUTE, unsettled=True)
    assert (second.cancel, second.moments) == (NOON + MINUTE, (NOON + 2 * MINUTE,))
    assert plant(first.row, NOON + 2 * MINUTE).cancel is None


def test_what_is_replaced_does_not_count_for_the_limit() -> None:
    row = made(misfire="all", overlap="replace", limit=5)
    step = plant(row, NOON + 10 * MINUTE)
    assert (step.moments, step.row.skipped) == ((NOON + 10 * MINUTE,), 9)
    assert step.row.next == NOON + 11 * MINUTE


def test_a_rule_that_fails_keeps_its_place() -> None:
    row = failed(made(), "no route", NOON + 5 * MINUTE)
    assert (row.error, row.wake, row.cursor) == ("no route", NOON + 5 * MINUTE, NOON)
    step = plant(row, NOON + 5 * MINUTE)
    assert (step.row.error, step.moments) == (None, (NOON + 5 * MINUTE,))


def test_backfill_is_bounded_and_past() -> None:
    row = made(every="1h")
    assert backfill(row, NOON - 2 * HOUR, NOON, NOON) == [NOON - n * HOUR for n in (2, 1, 0)]
    for first, last in ((NOON, NOON - 1), (NOON, NOON + 1), (NOON - 10_001 * HOUR, NOON)):
        with pytest.raises(InvalidMessage) as error:
            backfill(row, first, last, NOON)
        assert error.value.field == "to"


def test_the_same_rule_again_changes_nothing() -> None:
    row = made(payload={"a": 1})
    assert change(row, "r", rule(payload={"a": 1}), NOON + 1) is row


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"every": "1h"}, {"every": "60m"}),
        ({"every": "1h"}, {"every": 3600}),
        ({"every": "1h"}, {"every": "1h", "zone": "UTC"}),
        ({"every": "1h"}, {"every": "1h", "anchor": "1970-01-01T00:00:00Z"}),
        ({"every": "1h"}, {"every": "1h", "labels": {}, "headers": {}}),
        ({"every": "1h"}, {"every": "1h", "labels": {"tags": []}}),
        ({"every": "1h"}, {"every": "1h", "catch_up": "24h", "jitter": "0s"}),
        ({"every": "1h"}, {"every": "1h", "payload": None, "content_type": "application/json"}),
        ({"every": "1h"}, {"every": "1h", "route": "default", "priority": 5, "paused": False}),
        (
            {"every": "1h", "start": "2026-11-18T12:00:00Z", "expires_after": "90s"},
            {"every": "1h", "start": "2026-11-18T13:00:00.000+01:00", "expires_after": 90},
        ),
        ({"cron": "0 9 * * mon-fri"}, {"cron": "0  9 * * MON-FRI", "zone": "UTC"}),
    ],
)
def test_a_rule_written_otherwise_is_the_same_rule(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    for first, second in ((one, other), (other, one)):
        row = made(**first)
        assert change(row, "r", rule(**second), NOON + 1) is row


@pytest.mark.parametrize(
    "other",
    [
        {"every": "1h", "anchor": "2026-01-01T00:00:00Z"},
        {"every": "1h", "payload": "null"},
        {"every": "1h", "content_type": "text/plain", "payload_base64": "bnVsbA=="},
        {"every": "1h", "catch_up": "2d"},
        {"every": "1h", "end": "2027-01-01T00:00:00Z"},
        {"every": "1h", "labels": {"class": "x"}},
        {"cron": "0 * * * *"},
    ],
)
def test_a_rule_that_means_something_else_is_a_new_version(other: dict[str, Any]) -> None:
    row = made(every="1h")
    assert change(row, "r", rule(**other), NOON + 1).version == row.version + 1


def test_the_same_rule_from_other_settings_keeps_its_version() -> None:
    row = made(every="1h")
    after = change(row, "r", rule(every="60m"), NOON + 1, source="digest", managed=True)
    assert (after.version, after.source, after.managed) == (row.version, "digest", True)
    assert after.revision == row.revision + 1


# --- every moment is planted once or counted, whatever happens

rules = st.one_of(
    st.sampled_from(["1s", "7s", "1m", "1h"]).map(lambda every: {"every": every}),
    st.sampled_from(["* * * * *", "*/5 * * * *", "30 2 * * *", "0 * * * *"]).map(
        lambda text: {"cron": text, "zone": "Europe/Berlin"}
    ),
)
options = st.fixed_dictionaries(
    {},
    optional={
        "misfire": st.sampled_from(["latest", "skip", "all"]),
        "catch_up": st.sampled_from(["10s", "5m", "1d"]),
        "overlap": st.sampled_from(["allow", "skip", "replace"]),
        "expires_after": st.sampled_from(["5s", "10m"]),
    },
)
written = st.tuples(rules, options).map(lambda parts: rule_from({**parts[0], **parts[1]}))
waits = st.sampled_from([1, 500, 999, 1_000, 1_001, 5_000, 61_000, 600_000, 3 * HOUR])
happenings = st.lists(
    st.tuples(waits, st.sampled_from(["plant", "plant", "busy", "change", "pause"]), written),
    max_size=25,
)
DST = parse_moment("2027-10-31T00:00:00Z")


@settings(max_examples=300, deadline=None)
@given(written, happenings)
def test_every_moment_is_planted_once_or_counted(
    first: Rule, steps: Iterable[tuple[int, str, Rule]]
) -> None:
    now = DST
    row = change(None, "r", first, now)
    planted: list[int] = []
    counted = 0
    """Moments that should be accounted for."""
    since = now
    for wait, what, other in steps:
        now += wait
        while overdue(row, now) or what in ("plant", "busy"):
            step = plant(row, now, unsettled=what == "busy")
            planted += step.moments
            row = step.row
            if row.wake is None or row.wake > now:
                break
        if what in ("change", "pause"):
            new = replace(row.rule, paused=not row.rule.paused) if what == "pause" else other
            if not row.rule.paused:
                counted += Moments(row.rule).count(since, max(now, row.cursor))
            after = change(row, "r", new, now)
            since = after.cursor if after is not row else since
            if after is row and not row.rule.paused:
                counted -= Moments(row.rule).count(since, max(now, row.cursor))
            row = after
    if not row.rule.paused:
        counted += Moments(row.rule).count(since, row.cursor)
    assert len(planted) == len(set(planted)) == row.planted
    assert row.planted + row.missed + row.skipped == counted
    assert planted == sorted(planted)


@settings(max_examples=200, deadline=None)
@given(written, written, st.integers(0, 10_000), st.booleans())
def test_a_change_leaves_out_no_moment_that_both_rules_have(
    old: Rule, new: Rule, at: int, ahead: bool
) -> None:
    """Planted all the time, with a change at any moment in between."""
    steady: dict[str, Any] = {
        "misfire": Misfire.ALL,
        "overlap": Overlap.ALLOW,
        "catch_up": "1d",
        "expires_after": None,
    }
    old, new = replace(old, **steady), replace(new, **steady)
    start, now, end = DST, DST + at, DST + 3 * HOUR
    found, row = planted_until(change(None, "r", old, start), now if ahead else now - AHEAD_MS)
    while overdue(row, now):
        step = plant(row, now, ahead=0)
        found += step.moments
        row = step.row
    more, _ = planted_until(change(row, "r", new, now), end)
    both = moments_in(old, start, end) & moments_in(new, start, end)
    assert len(found + more) == len(set(found + more))
    assert both <= set(found + more)


def test_ids_of_whole_seconds_have_no_fraction() -> None:
    assert occurrence_id("r", NOON) == "r@2026-11-18T12:00:00Z"
    assert occurrence_id("r", NOON + 7) == "r@2026-11-18T12:00:00.007Z"
    assert aimed(made()).next == NOON + MINUTE
