"""Settlements in batches, some of them under way at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from penstock.flow.observe import Contact, Observer
from penstock.flow.settle import AT_ONCE, MANY, Settler
from penstock.model.errors import PartlyUnavailable, StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import Settlement
from penstock.model.state import State
from penstock.ports.store import MessageStore, Store
from penstock.testing.clock import ManualClock


class FakeStore:
    """Settles when it is let."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.let = asyncio.Semaphore(0)
        self.calls: list[int] = []
        self.away: set[str] = set()
        """Routes whose part of it does not answer."""

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        del now
        self.calls.append(len(settlements))
        await self.let.acquire()
        answers = {
            place: one.state
            for place, one in enumerate(settlements)
            if one.message.route not in self.away
        }
        if len(answers) < len(settlements):
            raise PartlyUnavailable("away", answers) if answers else StoreUnavailable("away")
        return list(answers.values())


class Rig:
    def __init__(self) -> None:
        self.store = FakeStore()
        store = cast("MessageStore", self.store)
        self.settler = Settler(Store(messages=store), Observer(), Contact(store, lease=30_000))
        self.settled = 0
        self.settling: list[asyncio.Future[None]] = []

    async def add(self, number: int, route: str = "r") -> None:
        message = Message(id="m", route=route, key="m", payload=b"1", due=0)
        done = Settlement(message=message, token=1, state=State.DELIVERED, event="delivered")
        self.settling.append(asyncio.ensure_future(self._settle([done] * number)))
        await self.turns()

    async def turns(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _settle(self, settlements: Sequence[Settlement]) -> None:
        states = await self.settler.settle(settlements)
        self.settled += len(states)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    yield rig
    for one in rig.settling:
        one.cancel()
    await asyncio.wait(rig.settling)


async def test_few_that_come_while_a_batch_is_under_way_are_the_next(rig: Rig) -> None:
    for _ in range(5):
        await rig.add(1)
    assert rig.store.calls == [1]
    rig.store.let.release()
    await rig.turns()
    assert rig.store.calls == [1, 4]


async def test_many_do_not_wait_for_the_batch_before(rig: Rig) -> None:
    for _ in range(AT_ONCE + 1):
        await rig.add(MANY)
    assert rig.store.calls == [MANY] * AT_ONCE
    rig.store.let.release()
    await rig.turns()
    assert rig.store.calls == [MANY] * (AT_ONCE + 1)
    assert rig.settled == MANY


async def test_a_drain_waits_for_all_that_is_under_way(rig: Rig) -> None:
    for _ in range(AT_ONCE + 1):
        await rig.add(MANY)
    draining = asyncio.ensure_future(rig.settler.drain(rig.store.clock.now() + 1_000))
    for _ in range(AT_ONCE + 1):
        assert not draining.done()
        rig.store.let.release()
        await rig.turns()
    await draining
    assert rig.settled == (AT_ONCE + 1) * MANY


async def test_what_a_part_of_the_store_cannot_take_holds_up_nothing_else(rig: Rig) -> None:
    rig.store.away = {"b"}
    rig.store.let = asyncio.Semaphore(100)
    await rig.add(3, "a")
    await rig.add(2, "b")
    await rig.add(4, "a")
    assert rig.settled == 7
    rig.store.away = set()
    await rig.store.clock.advance(2_000)
    assert rig.settled == 9


async def test_what_is_answered_in_part_is_asked_for_again_without_it(rig: Rig) -> None:
    rig.store.away = {"b"}
    await rig.add(1, "a")
    await rig.add(3, "a")  # these two are the next batch
    await rig.add(2, "b")
    for _ in range(3):
        rig.store.let.release()
    await rig.turns()
    assert rig.settled == 4
    await rig.store.clock.advance(100)
    assert rig.store.calls == [1, 5, 2]
