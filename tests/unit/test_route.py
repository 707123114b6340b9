"""Backoff between its two ends, and names of routes."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.backoff import Backoff, parse_backoff
from penstock.model.errors import InvalidMessage
from penstock.model.route import is_route_name


@given(st.integers(1, 10_000), st.integers(1, 10_000), st.integers(1, 10_000), st.integers())
def test_a_wait_is_never_outside_its_range(low: int, more: int, failures: int, seed: int) -> None:
    backoff = Backoff(low, low + more)
    assert low <= backoff.wait(failures, random.Random(seed)) <= low + more


def test_waits_grow_until_the_upper_end() -> None:
    backoff = parse_backoff("1s..1m")
    chance = random.Random(1)
    means = [sum(backoff.wait(n, chance) for _ in range(200)) / 200 for n in range(1, 9)]
    assert means[0] < means[1] < means[2] < means[3] < means[4]
    assert means[-1] > 30_000


@pytest.mark.parametrize("text", ["", "1s", "5m..1s", "0s..1s", "a..b", "1s..", "..5m"])
def test_other_backoffs_are_refused(text: str) -> None:
    with pytest.raises(InvalidMessage):
        parse_backoff(text)


@pytest.mark.parametrize("text", ["1s..5m", "250ms..250ms", "1m..2d"])
def test_a_backoff_prints_as_it_is_written(text: str) -> None:
    assert str(parse_backoff(text)) == text


def test_route_names_are_short_and_plain() -> None:
    assert all(map(is_route_name, ("default", "push-2", "a.b_c", "9")))
    assert not any(map(is_route_name, ("", "a b", "-x", "é", "x" * 101, "a/b", "a\n")))
