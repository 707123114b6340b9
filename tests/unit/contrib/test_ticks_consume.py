"""What the consumer makes of messages: when they were due, and which are repeats."""

from __future__ import annotations

import pytest

from penstock.contrib.ticks.commands import lateness
from penstock.contrib.ticks.consume import Consumed, Tally
from penstock.model.times import format_moment

NOW = 1_893_456_000_123
DUE, ATTEMPT = "penstock-due", "penstock-attempt"


class Given:
    """A message as the client library gives it, handed to Kafka 5 ms ago."""

    def __init__(self, body: bytes, headers: dict[str, str] | None = None) -> None:
        self._body = body
        self._headers = [(name, value.encode()) for name, value in (headers or {}).items()]

    def headers(self) -> object:
        return self._headers or None

    def value(self) -> bytes | None:
        return self._body

    def timestamp(self) -> tuple[int, int]:
        return 1, NOW - 5


def counted(*messages: Given) -> Consumed:
    tally = Tally()
    tally.add(messages, NOW)
    return tally.totals()


def tick(at: int) -> bytes:
    return b'{"item":"user1","at":"%s"}' % format_moment(at).encode()


def test_anything_with_the_header_is_as_late_as_that_says() -> None:
    found = counted(Given(b"not a tick", {DUE: format_moment(NOW - 40), ATTEMPT: "1"}))
    assert (found.consumed, found.without_due, found.repeats, found.early) == (1, 0, 0, 0)
    assert found.lateness_ms["max"] == 40


@pytest.mark.parametrize("written", ["2030-01-01T00:00:00Z", "2030-01-01T01:00:00.000+01:00"])
def test_the_header_is_read_however_the_moment_is_written(written: str) -> None:
    assert counted(Given(b"", {DUE: written})).lateness_ms["max"] == 123


@pytest.mark.parametrize("written", ["", "soon", "2030-13-01T00:00:00.000Z", "2030-01-01T00:00:00"])
def test_a_header_that_is_no_moment_is_no_due_time(written: str) -> None:
    assert counted(Given(b"", {DUE: written})).without_due == 1


def test_a_tick_without_headers_knows_its_own_moment() -> None:
    found = counted(Given(tick(NOW - 60)))
    assert (found.without_due, found.lateness_ms["max"]) == (0, 60)


def test_a_repeat_of_a_tick_is_as_late_as_its_first_moment_says() -> None:
    found = counted(Given(tick(NOW - 900), {DUE: format_moment(NOW - 10), ATTEMPT: "3"}))
    assert (found.repeats, found.lateness_ms["max"]) == (1, 900)


def test_what_was_handed_over_before_it_was_due_is_early() -> None:
    assert counted(Given(b"", {DUE: format_moment(NOW)})).early == 1


def test_what_has_no_due_time_is_counted_and_said() -> None:
    found = counted(Given(b"{}"), Given(b"\xff"))
    assert (found.consumed, found.without_due) == (2, 2)
    assert lateness(found) == "unknown: nothing that came has a due time"


def test_some_without_a_due_time_are_said_beside_the_others() -> None:
    said = lateness(counted(Given(b"{}"), Given(tick(NOW - 60))))
    assert said == "p50 60 ms, p99 60 ms, max 60 ms; unknown of 1 that have no due time"


def test_distinct_messages_are_told_apart_by_their_id() -> None:
    tally = Tally(distinct=True)
    for name in ("a", "b", "a"):
        tally.add([Given(tick(NOW), {"penstock-id": name})], NOW)
    tally.add([Given(b"x"), Given(b"x"), Given(b"y")], NOW)
    assert (tally.totals().consumed, tally.totals().distinct) == (6, 4)
    assert counted(Given(b"x")).distinct is None


def test_nothing_is_said_of_nothing() -> None:
    assert lateness(counted()) == "nothing came"
