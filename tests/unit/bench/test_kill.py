"""Repeats are counted for the kill that caused them."""

from __future__ import annotations

from bench.run_kill import Arrived, repeats_by_kill


def test_a_message_that_comes_again_is_a_repeat_of_the_kill_after_its_first_arrival() -> None:
    found = [Arrived("a", 1), Arrived("b", 5), Arrived("a", 15), Arrived("c", 16), Arrived("c", 25)]
    assert repeats_by_kill(found, [10, 20]) == [1, 1]


def test_what_came_once_is_no_repeat() -> None:
    assert repeats_by_kill([Arrived("a", 1), Arrived("b", 30)], [10, 20]) == [0, 0]
