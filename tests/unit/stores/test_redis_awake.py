"""Staying awake for an answer, by a timer that a test sets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.stores.redis.awake import CLOSE, MOMENT, PATIENCE, REST, ROW, Awake

TURNS = 20
"""Of the loop: more than any of these needs."""


class Timer:
    """Stands still unless it is told, and counts how often it is read."""

    def __init__(self) -> None:
        self.now = 100.0
        self.step = 0.0
        self.reads = 0

    def __call__(self) -> float:
        self.now += self.step
        self.reads += 1
        return self.now


@pytest.fixture
def timer() -> Timer:
    return Timer()


@pytest.fixture
async def awake(timer: Timer) -> Awake:
    """After some calls, so that the next one follows."""
    made = Awake(timer, spare=True)
    for _ in range(ROW):
        made.wait(answered())
    return made


def asked() -> asyncio.Future[Any]:
    return asyncio.get_running_loop().create_future()


def answered() -> asyncio.Future[Any]:
    answer = asked()
    answer.set_result(1)
    return answer


async def looks(timer: Timer) -> int:
    """How often somebody looks in so many turns of the loop."""
    before = timer.reads
    for _ in range(TURNS):
        await asyncio.sleep(0)
    return timer.reads - before


async def test_it_looks_with_every_turn_of_the_loop_until_the_answer_is_there(
    awake: Awake, timer: Timer
) -> None:
    answer = asked()
    awake.wait(answer)
    assert await looks(timer) == TURNS
    answer.set_result(1)
    assert await looks(timer) == 0


async def test_whatever_else_is_ready_has_its_turn(awake: Awake) -> None:
    turns: list[int] = []
    answer = asked()

    async def other() -> None:
        for n in range(5):
            turns.append(n)
            await asyncio.sleep(0)
        answer.set_result(1)

    awake.wait(answer)
    await asyncio.gather(other(), answer)
    assert turns == [0, 1, 2, 3, 4]


async def test_it_sleeps_when_the_moment_is_over(awake: Awake, timer: Timer) -> None:
    timer.step = MOMENT / 3.5
    awake.wait(asked())
    assert await looks(timer) == 4


async def test_a_call_that_follows_none_is_waited_for_asleep(awake: Awake, timer: Timer) -> None:
    timer.now += CLOSE
    awake.wait(asked())
    assert await looks(timer) == 0


async def test_a_few_that_follow_one_another_are_no_row_yet(awake: Awake, timer: Timer) -> None:
    timer.now += CLOSE
    for _ in range(ROW):
        awake.wait(asked())
    assert await looks(timer) == 0
    awake.wait(asked())
    assert await looks(timer) == TURNS


async def test_where_no_core_is_to_spare_every_call_is(timer: Timer) -> None:
    awake = Awake(timer, spare=False)
    for _ in range(2 * ROW):
        awake.wait(asked())
    assert await looks(timer) == 0


async def test_when_another_call_is_made_it_sleeps(awake: Awake, timer: Timer) -> None:
    awake.wait(asked())
    awake.stop()
    assert await looks(timer) == 0


async def test_after_that_it_looks_once_a_turn_again(awake: Awake, timer: Timer) -> None:
    awake.wait(asked())
    awake.stop()
    awake.wait(asked())
    assert await looks(timer) == TURNS


async def _come_late(awake: Awake, timer: Timer, times: int) -> None:
    for _ in range(times):
        awake.wait(asked())
        timer.now += MOMENT
        await looks(timer)


async def test_answers_that_come_late_again_and_again_are_not_stayed_awake_for(
    awake: Awake, timer: Timer
) -> None:
    await _come_late(awake, timer, PATIENCE)
    for _ in range(REST):
        awake.wait(asked())
    assert await looks(timer) == 0
    awake.wait(asked())  # they may be quicker by now
    assert await looks(timer) == TURNS


async def test_one_that_comes_in_time_makes_up_for_late_ones(awake: Awake, timer: Timer) -> None:
    await _come_late(awake, timer, PATIENCE - 1)
    awake.wait(answered())
    await looks(timer)
    await _come_late(awake, timer, PATIENCE - 1)
    awake.wait(asked())
    assert await looks(timer) == TURNS
