"""Isolation: the item to blame is found, and no other pays for it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.model.isolation import PATIENCE, Isolation, halves, isolate


class Receiver:
    """Takes numbers, all of a call or none; some it cannot take."""

    def __init__(self, poison: set[int]) -> None:
        self.poison = poison
        self.taken: Counter[int] = Counter()
        self.calls = 0

    async def take(self, part: Sequence[int]) -> Sequence[str]:
        self.calls += 1
        bad = self.poison.intersection(part)
        if bad:
            raise ValueError(min(bad))
        self.taken.update(part)
        return ["taken"] * len(part)


@given(st.integers(0, 200), st.sets(st.integers(0, 199), max_size=PATIENCE - 1))
async def test_only_the_poison_is_to_blame_and_all_others_are_taken_once(
    size: int, poison: set[int]
) -> None:
    receiver = Receiver(poison)
    results = await isolate(range(size), receiver.take, str)
    assert results == [str(n) if n in poison else "taken" for n in range(size)]
    assert receiver.taken == Counter(n for n in range(size) if n not in poison)


async def test_a_batch_without_poison_is_one_call() -> None:
    receiver = Receiver(set())
    await isolate(range(500), receiver.take, str)
    assert receiver.calls == 1


async def test_one_poison_of_many_costs_two_calls_per_halving() -> None:
    receiver = Receiver({317})
    await isolate(range(512), receiver.take, str)
    assert receiver.calls == 1 + 2 * 9


async def test_where_nothing_passes_only_a_few_are_tried_alone() -> None:
    receiver = Receiver(set(range(500)))
    results = await isolate(range(500), receiver.take, str)
    assert len(results) == 500
    assert receiver.calls < 40


async def test_an_error_that_is_everyones_is_not_halved() -> None:
    receiver = Receiver({3})
    results = await isolate(range(10), receiver.take, str, shared=(ValueError,))
    assert results == ["3"] * 10
    assert receiver.calls == 1


async def test_what_is_known_is_known_to_a_caller_that_is_cancelled() -> None:
    class Ended(BaseException):
        """As a cancellation."""

    async def take(part: Sequence[int]) -> Sequence[int]:
        if len(part) > 2:
            raise ValueError
        if 2 in part:
            raise Ended
        return part

    known: list[int] = []
    with pytest.raises(Ended):
        await isolate(range(4), take, lambda _: -1, results=known)
    assert known == [0, 1]


def test_parts_are_tried_in_the_order_of_the_batch() -> None:
    isolation = Isolation([1, 2, 3, 4], [5])
    assert isolation.split(isolation.take()[0])
    assert isolation.take(10) == [[1, 2], [3, 4], [5]]
    assert isolation.take() == []


def test_halves_of_an_odd_number_are_not_empty() -> None:
    assert halves([1, 2, 3]) == ([1], [2, 3])
