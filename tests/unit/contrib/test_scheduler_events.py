"""Ids of simulated events, what the consumer makes of them, and what the verdict says of a run."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.contrib.scheduler_service.consumer import Checks, Received
from penstock.contrib.scheduler_service.ids import Numbers, event_id, read_id
from penstock.contrib.scheduler_service.ways import Event
from systems.verdict import Verdict
from systems.verdicts.scheduler import verdict

DUE = 1_893_456_000_000
RUN = "3f9a1c"


class Given:
    """A message as the client library gives it."""

    def __init__(self, body: bytes, headers: dict[str, str], at: int) -> None:
        self._body, self._at = body, at
        self._headers = [(name, value.encode()) for name, value in headers.items()]

    def headers(self) -> object:
        return self._headers or None

    def value(self) -> bytes | None:
        return self._body

    def timestamp(self) -> tuple[int, int]:
        return 1, self._at


def message(number: int, *, at: int = DUE + 5, attempt: int = 1) -> Given:
    event = Event(event_id(RUN, number), DUE, "orders.new")
    headers = {"penstock-id": event.id, "penstock-attempt": str(attempt)}
    return Given(event.payload, headers, at)


def received(*messages: Given, topic: str = "orders.new") -> Received:
    checks = Checks("refused")
    for one in messages:
        checks.add(topic, one, DUE + 40)
    return checks.totals()


@given(st.sets(st.integers(0, 5_000)))
def test_a_set_of_numbers_is_the_same_after_a_report(numbers: set[int]) -> None:
    read = Numbers.of_text(Numbers(numbers).text())
    assert (set(read), len(read)) == (numbers, len(numbers))
    assert all(number in read for number in numbers)
    assert (max(numbers, default=0) + 1) not in read


def test_a_regular_set_of_a_million_fits_into_a_line() -> None:
    numbers = Numbers(number for number in range(1_000_000) if number % 10 != 7)
    assert len(numbers.text()) < 2_000


@pytest.mark.parametrize("number", [0, 42, 1_000_000])
def test_an_id_is_read_as_it_was_made(number: int) -> None:
    assert read_id(event_id(RUN, number)) == (RUN, number)


@pytest.mark.parametrize("text", ["", "o-1", "ev-x", "ev-a-1", "ev-a-9999999999", "ev-a-000001\n"])
def test_another_id_is_not_taken_for_one(text: str) -> None:
    assert read_id(text) is None


def test_an_event_that_came_in_time_is_counted_once() -> None:
    found = received(message(1), message(2))
    assert (found.consumed, found.early, found.repeats, found.doubles) == (2, 0, 0, 0)
    assert found.lateness_ms["max"] == 40
    assert set(Numbers.of_text(found.ids[RUN])) == {1, 2}


def test_an_event_before_the_moment_its_client_asked_for_is_early() -> None:
    found = received(message(1, at=DUE - 1))
    assert (found.early, found.samples["early"]) == (1, [event_id(RUN, 1)])


def test_a_further_attempt_is_a_repeat_and_a_second_first_attempt_a_double() -> None:
    found = received(message(1), message(1, attempt=2), message(1))
    assert (found.repeats, found.doubles) == (1, 1)


def test_an_event_on_another_topic_than_it_names_is_misplaced() -> None:
    assert received(message(1), topic="events").misplaced == 1


def test_what_no_simulated_client_sent_is_foreign() -> None:
    forged = Given(Event(event_id(RUN, 1), DUE, "orders.new").payload, {"penstock-id": "x"}, DUE)
    assert received(Given(b"hello", {}, DUE), forged).foreign == 2


@pytest.mark.parametrize("name", ["event_id", "id"])
def test_a_refused_record_is_known_by_its_id(name: str) -> None:
    record = msgspec.json.encode({name: event_id(RUN, 3)})
    found = received(Given(record, {"penstock-error": "at: too near"}, DUE), topic="refused")
    assert (found.refused, found.consumed) == (1, 0)
    assert found.samples["refused"] == ["at: too near"]
    assert set(Numbers.of_text(found.refused_ids[RUN])) == {3}


def judged(came: set[int], received: dict[str, Any] | None = None, /, **sets: set[int]) -> Verdict:
    """A run of ten events of which 7 was cancelled, unless `sets` says otherwise."""
    known = {"scheduled": set(range(10)), "cancelled": {7}, "late": set(), "unsure": set()}
    numbers = {**known, "refused": set(), **sets}
    client = {
        "run": RUN,
        "scheduled": len(numbers["scheduled"]),
        "refused": 0,
        "unsure": 0,
        "repeated": 1,
        "cancelled": 1,
        "cancelled_late": 0,
        "cancelled_unknown": 0,
        "scheduled_twice": [],
        "ways": {"penstock.v1": {"scheduled": 4}, "topic": {"scheduled": 3}},
        "ids": {name: Numbers(found).text() for name, found in numbers.items()},
    }
    totals = Received(ids={RUN: Numbers(came).text()}, lateness_ms={"p50": 3, "p99": 8})
    consumer = {**msgspec.to_builtins(totals), **(received or {})}
    return verdict({"client": [{"totals": client, "rate": 5}], "consumer": [{"totals": consumer}]})


ALL_BUT_CANCELLED = set(range(10)) - {7}


def row(found: Verdict, what: str) -> tuple[str, bool | None]:
    return next((row.value, row.holds) for row in found.rows if row.what == what)


def test_the_verdict_holds_when_all_came_but_the_cancelled_ones() -> None:
    found = judged(ALL_BUT_CANCELLED)
    assert found.holds
    assert row(found, "lost") == ("0", True)
    assert row(found, "out")[0] == "9 events"


def test_a_lost_event_is_named() -> None:
    found = judged(ALL_BUT_CANCELLED - {3})
    assert not found.holds
    assert row(found, "lost") == ("1: ev-3f9a1c-000003", False)


def test_a_cancelled_event_that_came_is_named() -> None:
    found = judged(set(range(10)))
    assert row(found, "cancelled and sent") == ("1: ev-3f9a1c-000007", False)


def test_an_event_that_nobody_scheduled_is_named() -> None:
    assert row(judged(ALL_BUT_CANCELLED | {11}), "not scheduled")[1] is False


@pytest.mark.parametrize("kind", ["late", "unsure", "refused"])
def test_what_has_no_definite_answer_may_come_or_not(kind: str) -> None:
    for came in (ALL_BUT_CANCELLED - {3}, ALL_BUT_CANCELLED):
        assert judged(came, None, **{kind: {3}}).holds


def test_a_record_that_the_service_refused_is_not_lost() -> None:
    kept = {"refused": 1, "refused_ids": {RUN: Numbers([3]).text()}}
    assert judged(ALL_BUT_CANCELLED - {3}, kept).holds


@pytest.mark.parametrize("wrong", ["early", "doubles", "misplaced"])
def test_the_verdict_does_not_hold_with_one_wrong(wrong: str) -> None:
    assert not judged(ALL_BUT_CANCELLED, {wrong: 1}).holds


def test_an_early_event_is_named() -> None:
    found = judged(ALL_BUT_CANCELLED, {"early": 9, "samples": {"early": ["ev-a-000001"]}})
    assert row(found, "early") == ("9: ev-a-000001 …", False)
