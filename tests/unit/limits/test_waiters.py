"""Who waits behind a cap is told of a place of its own."""

from __future__ import annotations

from collections import Counter

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from penstock.limits.waiters import KNOWN_MS, LINES, Waiters
from penstock.model.decision import Question
from penstock.model.message import Labels
from penstock.model.policy import Cap, Scope, policy_from
from penstock.model.verdict import Decided, Verdict

NOW = 1_700_000_000_000


def cap(**fields: object) -> Cap:
    policy = policy_from({"kind": "cap", "scope": ["key"], **fields})
    assert isinstance(policy, Cap)
    return policy


SLOW = cap(limit=1, window="3s")


def waiter(number: int, **fields: object) -> Question:
    given = {"id": f"m-{number}", "key": "ann", "due": NOW, **fields}
    return msgspec.convert(given, Question)


def places(waiters: Waiters, policy: Cap, number: int, until: int = NOW + 3_000) -> list[int]:
    return [waiters.place("p", policy, waiter(n), until, NOW) for n in range(number)]


def test_the_kth_waiter_is_told_of_the_kth_place() -> None:
    told = places(Waiters(), SLOW, 50)
    assert told == [NOW + 3_000 * (n + 1) for n in range(50)]


def test_as_many_as_the_cap_lets_through_at_once_are_told_of_the_same() -> None:
    told = places(Waiters(), cap(limit=10, window="1m"), 25)
    assert Counter(told) == {NOW + 3_000: 10, NOW + 63_000: 10, NOW + 123_000: 5}


def test_an_interval_between_two_is_a_place_each() -> None:
    told = places(Waiters(), cap(min_interval="10s"), 3)
    assert [place - told[0] for place in told] == [0, 10_000, 20_000]


def test_a_backlog_of_any_size_comes_back_a_few_at_a_time() -> None:
    told = places(Waiters(), SLOW, 40_000)
    assert min(told) == NOW + 3_000
    assert max(told) <= NOW + 3_000 + 2 * KNOWN_MS
    busiest = Counter(place // 3_000 for place in told).most_common(1)[0][1]
    assert busiest <= 1_000  # of 40,000, which all came back for the same place before


def test_who_found_the_place_taken_goes_before_those_who_never_waited() -> None:
    waiters = Waiters()
    places(waiters, SLOW, 30)
    until = NOW + 6_000
    came = Decided(Verdict.DEFER, "p", "why", NOW + 3_000, NOW)
    back = msgspec.structs.replace(waiter(0), due=NOW + 3_000, decided=came)
    assert waiters.place("p", SLOW, back, until, NOW + 3_000) == until
    assert waiters.place("p", SLOW, waiter(99), until, NOW + 3_000) == NOW + 93_000


def test_when_the_places_told_are_past_the_line_begins_anew() -> None:
    waiters = Waiters()
    places(waiters, SLOW, 5)
    later = NOW + 100_000
    assert waiters.place("p", SLOW, waiter(9), later, later - 10) == later


def test_what_is_counted_apart_waits_apart() -> None:
    waiters, policy = Waiters(), cap(scope=["key", "channel"], limit=1, window="3s")
    for labels in (None, Labels(channel="push"), Labels(channel="mail")):
        asked = msgspec.structs.replace(waiter(1), labels=labels)
        assert waiters.place("p", policy, asked, NOW + 3_000, NOW) == NOW + 3_000
    assert policy.scope == (Scope.KEY, Scope.CHANNEL)


@given(st.integers(1, 200), st.integers(1, 100_000), st.integers(0, 100_000))
def test_nobody_is_told_of_a_moment_after_the_last(number: int, left: int, ahead: int) -> None:
    waiters, until = Waiters(), NOW + 1 + min(ahead, left)
    for n in range(number):
        one = waiter(n, expires=NOW + left + 2)
        assert until <= waiters.place("p", SLOW, one, until, NOW) <= NOW + left + 1


def test_what_is_remembered_is_bounded() -> None:
    waiters = Waiters()
    for number in range(2 * LINES + 5):
        one = waiter(number, key=f"k{number}")
        waiters.place("p", SLOW, one, NOW + 3_000, NOW)
    assert len(waiters._lines) <= LINES
