"""Settlements in batches, some of them under way at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import cast

import pytest

from penstock.flow.observe import Observer
from penstock.flow.settle import AT_ONCE, MANY, Settler
from penstock.model.message import Message
from penstock.model.outcome import Settlement
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.testing.clock import ManualClock


class Store:
    """Settles when it is let."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.let = asyncio.Semaphore(0)
        self.calls: list[int] = []

    async def settle(self, settlements: Sequence[Settlement], now: int) -> list[State | None]:
        del now
        self.calls.append(len(settlements))
        await self.let.acquire()
        return [settlement.state for settlement in settlements]


class Rig:
    def __init__(self) -> None:
        self.store = Store()
        self.settler = Settler(cast("MessageStore", self.store), Observer())
        self.settled = 0

    async def add(self, number: int) -> None:
        message = Message(id="m", route="r", key="m", payload=b"1", due=0)
        done = Settlement(message=message, token=1, state=State.DELIVERED, event="delivered")
        self.settler.add([done] * number, self._settled)
        await self.turns()

    async def turns(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    def _settled(self, settlements: Sequence[Settlement], _: Sequence[State | None]) -> None:
        self.settled += len(settlements)


@pytest.fixture
async def rig() -> AsyncIterator[Rig]:
    rig = Rig()
    running = asyncio.ensure_future(rig.settler.run())
    yield rig
    running.cancel()
    await asyncio.wait([running])


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
