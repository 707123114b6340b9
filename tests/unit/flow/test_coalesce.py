"""Calls that come one by one share store calls where that pays, and nobody waits for nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.api.grpc.linger import CallTime
from penstock.flow.coalesce import Coalescer

RECEIPT = "stored"


class Store:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.held: list[str] = []
        self._answered = asyncio.Event()

    async def put(self, names: Sequence[str]) -> list[str]:
        self.held += names
        self._answered.clear()
        await self._answered.wait()
        return [RECEIPT for _ in names]

    def answer(self) -> None:
        self.held = []
        self._answered.set()


class Rig:
    """A coalescer before a store, and calls that wait for their answers."""

    def __init__(self) -> None:
        self.taken = Store()
        self.single: Coalescer[str, str] = Coalescer(
            self.taken.put, max_items=500, max_calls=4, linger=CallTime(500)
        )

    def call(self, name: str = "m") -> asyncio.Task[str]:
        return asyncio.create_task(self.single.ask(name))

    async def learn_that_the_store_is_slow(self) -> None:
        for _ in range(3):
            waiting = [self.call(), self.call()]
            await self.until(lambda: len(self.taken.held) == 2)
            await asyncio.sleep(0.02)
            self.taken.answer()
            await asyncio.gather(*waiting)

    async def turns(self) -> None:
        for _ in range(3):
            await asyncio.sleep(0)

    async def until(self, true: Callable[[], bool]) -> None:
        async with asyncio.timeout(300):
            while not true():  # noqa: ASYNC110 - a few turns of the loop
                await asyncio.sleep(0.0005)


async def test_a_first_call_goes_at_once() -> None:
    rig = Rig()
    call = rig.call()
    await rig.turns()
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
    await rig.turns()
    assert len(rig.taken.held) == 3
    rig.taken.answer()
    await asyncio.gather(*calls)


async def test_who_is_alone_waits_for_nobody() -> None:
    rig = Rig()
    await rig.learn_that_the_store_is_slow()
    for _ in range(CallTime.ALONE):
        call = rig.call()
        await rig.until(lambda: bool(rig.taken.held))
        rig.taken.answer()
        await call
    call = rig.call()
    await rig.turns()
    assert len(rig.taken.held) == 1
    rig.taken.answer()
    await call


async def test_a_caller_who_leaves_takes_the_message_back() -> None:
    rig = Rig()
    sent = rig.call("sent")
    sent.cancel()
    await asyncio.gather(sent, return_exceptions=True)
    assert not rig.taken.held
    await rig.learn_that_the_store_is_slow()
    gathering, other = rig.call("gathering"), rig.call("other")
    await asyncio.sleep(0)
    gathering.cancel()
    await rig.until(lambda: bool(rig.taken.held))
    assert rig.taken.held == ["other"]
    rig.taken.answer()
    await other


async def test_who_is_alone_needs_no_task_and_who_comes_beside_follows() -> None:
    calls: list[list[str]] = []

    async def work(names: Sequence[str]) -> list[str]:
        calls.append(list(names))
        await asyncio.sleep(0)
        return list(names)

    single: Coalescer[str, str] = Coalescer(work, max_items=10)
    tasks = len(asyncio.all_tasks())
    assert await single.ask_alone("a") == "a"
    assert len(asyncio.all_tasks()) == tasks
    assert await asyncio.gather(*map(single.ask_alone, "bcd")) == ["b", "c", "d"]
    assert calls == [["a"], ["b"], ["c", "d"]]
    await single.drain()


async def test_a_failed_call_is_the_answer_to_all_and_the_next_one_goes_on() -> None:
    fails = True

    async def work(names: Sequence[str]) -> list[str]:
        if fails:
            raise ValueError("no")
        return list(names)

    single: Coalescer[str, str] = Coalescer(work, max_items=10)
    told = await asyncio.gather(single.ask("a"), single.ask("b"), return_exceptions=True)
    assert [type(one) for one in told] == [ValueError, ValueError]
    fails = False
    assert await single.ask("c") == "c"


async def test_a_call_takes_what_it_may_and_a_second_begins_beside_it_for_many_only() -> None:
    sizes: list[int] = []
    let = asyncio.Semaphore(0)

    async def work(names: Sequence[str]) -> list[str]:
        sizes.append(sum(map(len, names)))
        await let.acquire()
        return list(names)

    heavy: Coalescer[str, str] = Coalescer(work, max_items=10, max_calls=2, beside=6, weigh=len)
    first = asyncio.ensure_future(heavy.ask("x" * 4))
    await asyncio.sleep(0.001)
    few = asyncio.ensure_future(heavy.ask("x" * 5))
    await asyncio.sleep(0.001)
    assert sizes == [4]
    more = [asyncio.ensure_future(heavy.ask("x" * 5)) for _ in range(2)]
    await asyncio.sleep(0.001)
    assert sizes == [4, 10]
    for _ in range(3):
        let.release()
    await asyncio.gather(first, few, *more)
    assert sizes == [4, 10, 5]
