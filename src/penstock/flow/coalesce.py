"""COALESCE: requests that arrive at about the same moment share one call.

Used wherever many callers each need a little of the same work: single puts of intake and gRPC,
visitors of a room, settlements. A Linger decides how long the first of a group waits for others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from itertools import accumulate, takewhile
from typing import Generic, Protocol, TypeAlias, TypeVar

from penstock.model.errors import StoreUnavailable

Item = TypeVar("Item")
Answer = TypeVar("Answer")
Done: TypeAlias = Callable[[Answer | Exception], None]

INTERRUPTED = "interrupted before the answer came"


class Linger(Protocol):
    """How long a group waits for more items before its call begins."""

    @property
    def full(self) -> int:
        """Items after which nothing more is waited for."""
        ...

    def wait(self, size: int, over: Callable[[], None]) -> asyncio.Handle | None:
        """Let a group of that size wait, calling `over` at the end; None: it waits no longer.

        Called when the first item arrives, each time a wait is over, and when the group is full.
        """
        ...

    def began(self) -> float:
        """Note that a call begins; the returned …"""
        ...

    def ended(self, began: float) -> None:
        """… when that call has ended."""
        ...


class Turns:
    """Wait while each turn of the event loop, some microseconds, brings more, at most so many.

    Callers just answered are about to ask again. Without this they fall into parties that take
    turns, each call a third as full as it could be.
    """

    def __init__(self, most: int, full: int) -> None:
        self._most = most
        self.full = full
        self._seen = 0
        """Size of the group one turn of the loop ago."""
        self._turns = 0

    def wait(self, size: int, over: Callable[[], None]) -> asyncio.Handle | None:
        if self._seen < size < self.full and self._turns < self._most:
            self._seen = size
            self._turns += 1
            return asyncio.get_running_loop().call_soon(over)
        self._seen = self._turns = 0
        return None

    def began(self) -> float:
        return 0.0

    def ended(self, began: float) -> None:
        pass


class Coalescer(Generic[Item, Answer]):
    """Calls `work` with what has gathered: an answer or an exception per item, in order.

    What comes while as many calls are under way as may be is part of the next one.
    """

    def __init__(
        self,
        work: Callable[[Sequence[Item]], Awaitable[Sequence[Answer | Exception]]],
        *,
        max_items: int,
        max_calls: int = 1,
        beside: int = 1,
        linger: Linger | None = None,
        weigh: Callable[[Item], int] | None = None,
        when_idle: Callable[[], object] | None = None,
    ) -> None:
        """`max_calls` at once, a further one only while `beside` items wait. `weigh`: how many an
        item counts for. `when_idle` is called when nothing waits or is under way any more."""
        self._work = work
        self._max_items = max_items
        self._max_calls = max_calls
        self._beside = beside
        self._linger = Turns(1, max_items) if linger is None else linger
        self._weigh = weigh
        self._when_idle = when_idle
        self._waiting: list[tuple[Item, Done[Answer]]] = []
        self._gathering: asyncio.Handle | None = None
        """The end of the wait for more."""
        self._calls = 0
        """Calls in flight."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._alone = True
        """The last call was of one item: the next is probably alone too."""
        self._drained = asyncio.Event()

    async def ask(self, item: Item) -> Answer:
        """The answer to one item. A caller that leaves takes it back if its call has not begun."""
        future, done = self._future()
        self.submit(item, done)
        return await self._answered(future, done)

    async def ask_alone(self, item: Item) -> Answer:
        """`ask` without a task or hand-over while no other caller is waiting. A caller that leaves
        then interrupts its call.
        """
        if not self._alone or self._waiting or self._calls:
            return await self.ask(item)
        self._calls += 1
        try:
            (answer,) = await self._work([item])
        finally:
            self._ended()
        return _raised_or_not(answer)

    def _future(self) -> tuple[asyncio.Future[Answer | Exception], Done[Answer]]:
        """Make the future that a caller awaits, and the callback that sets it."""
        future: asyncio.Future[Answer | Exception] = asyncio.get_running_loop().create_future()

        def done(answer: Answer | Exception) -> None:
            if not future.done():  # the caller may have gone
                future.set_result(answer)

        return future, done

    async def _answered(
        self, future: asyncio.Future[Answer | Exception], done: Done[Answer]
    ) -> Answer:
        try:
            return _raised_or_not(await future)
        except asyncio.CancelledError:
            self.withdraw(done)
            raise

    def submit(self, item: Item, done: Done[Answer]) -> None:
        """The same with a call back, without task or future for each."""
        self._waiting.append((item, done))
        if self._gathering is None:
            self._gather_if_free()
        elif len(self._waiting) >= self._linger.full:
            self._gathering.cancel()
            self._gather()

    def withdraw(self, done: Done[Answer]) -> None:
        """Drop the item of that callback: its caller has stopped waiting for the answer."""
        self._waiting = [entry for entry in self._waiting if entry[1] is not done]

    async def drain(self) -> None:
        """Wait until every item has its answer."""
        while self._waiting or self._calls:
            self._drained.clear()
            await self._drained.wait()

    def _gather_if_free(self) -> None:
        if not self._calls or (self._calls < self._max_calls and self._weight() >= self._beside):
            self._gather()

    def _gather(self) -> None:
        """Wait for more, or begin the call."""
        self._gathering = self._linger.wait(len(self._waiting), self._gather)
        if self._gathering is None:
            self._begin()

    def _begin(self) -> None:
        taken, self._waiting = self._first()
        if not taken:
            return  # all were withdrawn
        self._alone = len(taken) == 1
        self._calls += 1
        task = asyncio.get_running_loop().create_task(self._call(taken))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self._waiting:
            self._gather_if_free()

    async def _call(self, taken: list[tuple[Item, Done[Answer]]]) -> None:
        began = self._linger.began()
        answers: Sequence[Answer | Exception]
        try:
            answers = await self._work([item for item, _ in taken])
        except Exception as exc:  # noqa: BLE001 - it is the answer to every item
            answers = [exc] * len(taken)
        except BaseException:
            for _, done in taken:
                done(StoreUnavailable(INTERRUPTED))
            raise
        finally:
            self._linger.ended(began)
            self._ended()
        for (_, done), answer in zip(taken, answers, strict=True):
            done(answer)

    def _ended(self) -> None:
        self._calls -= 1
        if self._waiting:
            if self._gathering is None:
                self._gather_if_free()
        elif not self._calls:
            self._drained.set()
            if self._when_idle is not None:
                self._when_idle()

    def _weight(self) -> int:
        weigh = self._weigh
        if weigh is None:
            return len(self._waiting)
        return sum(weigh(item) for item, _ in self._waiting)

    def _first(
        self,
    ) -> tuple[list[tuple[Item, Done[Answer]]], list[tuple[Item, Done[Answer]]]]:
        """Split the gathered items into those of the next call and the rest."""
        waiting, weigh = self._waiting, self._weigh
        number = self._max_items
        if weigh is not None:
            weights = accumulate(weigh(item) for item, _ in waiting)
            number = 1 + sum(1 for _ in takewhile(self._max_items.__gt__, weights))
        return waiting[:number], waiting[number:]


def _raised_or_not(answer: Answer | Exception) -> Answer:
    if isinstance(answer, Exception):
        raise answer
    return answer
