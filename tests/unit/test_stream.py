"""Batches of a stream: two on their way at most, in order, and the same id never at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import cast

import pytest

from penstock.flow.intake import Intake, Outcome
from penstock.model.draft import Draft
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.outcome import Receipt
from penstock.model.state import State
from penstock.sdk.asked import MessageLike
from penstock.sdk.stream import BATCHES, schedule_batches


class Slow:
    """Keeps what it is given when it is told to."""

    def __init__(self) -> None:
        self.begun: list[list[str | None]] = []
        self.most = 0
        self.kept: list[str | None] = []
        self.failing: set[int] = set()
        self._under_way = 0

    async def schedule(self, drafts: Sequence[Draft]) -> list[Outcome]:
        number = len(self.begun)
        self.begun.append([draft.id for draft in drafts])
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        for _ in range(10):
            await asyncio.sleep(0)
        self._under_way -= 1
        if number in self.failing:
            raise StoreUnavailable("away")
        self.kept += [draft.id for draft in drafts]
        return [Receipt(draft.id or "", State.SCHEDULED, 0) for draft in drafts]


async def _all(slow: Slow, ids: Sequence[str], size: int) -> list[str]:
    batches = schedule_batches(cast("Intake", slow), [{"id": one} for one in ids], size)
    return [
        outcome.message if isinstance(outcome, PenstockError) else outcome.id
        async for batch in batches
        for outcome in batch
    ]


async def test_two_batches_are_on_their_way_at_once_and_answers_keep_their_order() -> None:
    slow = Slow()
    ids = [str(number) for number in range(10)]
    assert await _all(slow, ids, 2) == ids
    assert slow.most == BATCHES == 2


async def test_the_same_id_again_waits_for_the_first() -> None:
    slow = Slow()
    await _all(slow, ["a", "b", "c", "a"], 2)
    assert slow.most == 1


async def test_bad_messages_keep_their_places() -> None:
    slow = Slow()
    wanted: list[MessageLike] = [{"id": "a"}, {"nonsense": 1}, {"id": "b"}]
    (batch,) = [batch async for batch in schedule_batches(cast("Intake", slow), wanted, 10)]
    assert [isinstance(outcome, PenstockError) for outcome in batch] == [False, True, False]


async def test_a_batch_that_fails_is_told_and_what_had_begun_ends_first() -> None:
    slow = Slow()
    slow.failing = {0}
    with pytest.raises(StoreUnavailable):
        await _all(slow, ["a", "b", "c", "d", "e"], 2)
    assert slow.begun == [["a", "b"], ["c", "d"]]
    assert slow.kept == ["c", "d"]


async def test_whoever_stops_reading_leaves_nothing_half_done() -> None:
    slow = Slow()
    stream = schedule_batches(cast("Intake", slow), [{"id": str(n)} for n in range(9)], 2)
    async for _ in stream:
        break
    await stream.aclose()  # type: ignore[attr-defined] # it is a generator
    assert slow.kept == [one for batch in slow.begun for one in batch]
