"""Calls that come one by one share store calls where that pays, and nobody waits for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.api.grpc.crowd import ALONE, Crowd
from penstock.flow.intake import Done, schedule_through
from penstock.model.draft import BinaryDraft, Draft
from penstock.model.outcome import Receipt
from penstock.model.state import State

RECEIPT = Receipt("m", State.SCHEDULED, 0)


class Taken:
    """Stands for the intake: answers when it is told to."""

    def __init__(self) -> None:
        self.held: list[tuple[Draft, Done]] = []

    def submit(self, draft: Draft, done: Done) -> None:
        self.held.append((draft, done))

    def withdraw(self, done: Done) -> None:
        self.held = [entry for entry in self.held if entry[1] is not done]

    def answer(self) -> None:
        held, self.held = self.held, []
        for _, done in held:
            done(RECEIPT)


class Rig:
    """A crowd before a pretended intake, and calls that wait for their answers."""

    def __init__(self) -> None:
        self.taken = Taken()
        self.crowd = Crowd(self.taken)

    def call(self, name: str = "m") -> asyncio.Task[Receipt]:
        return asyncio.create_task(schedule_through(self.crowd, BinaryDraft(id=name, body=b"")))

    async def learn_that_the_store_is_slow(self) -> None:
        for _ in range(3):
            waiting = self.call()
            await self.until(lambda: bool(self.taken.held))
            await asyncio.sleep(0.02)
            self.taken.answer()
            await waiting

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(300):
            while not true():  # noqa: ASYNC110 - a few turns of the loop
                await asyncio.sleep(0.0005)


async def test_a_first_call_goes_at_once() -> None:
    rig = Rig()
    call = rig.call()
    await asyncio.sleep(0)
    assert len(rig.taken.held) == 1
    rig.taken.answer()
    assert await call == RECEIPT


async def test_calls_that_come_one_by_one_go_together_where_the_store_is_slow() -> None:
    rig = Rig()
    await rig.learn_that_the_store_is_slow()
    calls = []
    for _ in range(5):
        calls.append(rig.call())
        await asyncio.sleep(0)  # each in a turn of its own
    assert not rig.taken.held
    await rig.until(lambda: bool(rig.taken.held))
    assert len(rig.taken.held) == 5
    rig.taken.answer()
    assert await asyncio.gather(*calls) == [RECEIPT] * 5


async def test_a_crowd_of_one_size_comes_to_wait_for_nobody_else() -> None:
    rig = Rig()
    await rig.learn_that_the_store_is_slow()
    for _ in range(20):  # it learns by and by how many there are
        calls = [rig.call() for _ in range(3)]
        await rig.until(lambda: len(rig.taken.held) == 3)
        rig.taken.answer()
        await asyncio.gather(*calls)
    calls = [rig.call() for _ in range(3)]
    await asyncio.sleep(0)
    assert len(rig.taken.held) == 3
    rig.taken.answer()
    await asyncio.gather(*calls)


async def test_who_is_alone_waits_for_nobody() -> None:
    rig = Rig()
    await rig.learn_that_the_store_is_slow()
    for _ in range(ALONE):
        call = rig.call()
        await rig.until(lambda: bool(rig.taken.held))
        rig.taken.answer()
        await call
    call = rig.call()
    await asyncio.sleep(0)
    assert len(rig.taken.held) == 1
    rig.taken.answer()
    await call


async def test_a_caller_who_leaves_takes_the_message_back() -> None:
    rig = Rig()
    sent = rig.call("sent")
    await asyncio.sleep(0)
    sent.cancel()
    await asyncio.gather(sent, return_exceptions=True)
    assert not rig.taken.held
    await rig.learn_that_the_store_is_slow()
    gathering, other = rig.call("gathering"), rig.call("other")
    await asyncio.sleep(0)
    gathering.cancel()
    await rig.until(lambda: bool(rig.taken.held))
    assert [draft.id for draft, _ in rig.taken.held] == ["other"]
    rig.taken.answer()
    await other
