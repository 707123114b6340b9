"""Processes that are kept running, on a clock that stands still."""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.contrib.sms.keeper import LONG_MS, PATIENCE_MS, STARTS, WAITS, Keeper
from penstock.testing.clock import ManualClock


class Process:
    """Lives until a test or a signal ends it."""

    def __init__(self, *, deaf: bool = False) -> None:
        self.returncode: int | None = None
        self.signals: list[int] = []
        self._deaf = deaf
        self._ended = asyncio.Event()

    def end(self, code: int) -> None:
        self.returncode = code
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, signal: int) -> None:
        self.signals.append(signal)
        if not self._deaf:
            self.end(0)

    def kill(self) -> None:
        self.end(-signal.SIGKILL)


class World:
    """A keeper of two, and all that it has started."""

    def __init__(self, *, may_end: bool = False, deaf: bool = False) -> None:
        self.clock = ManualClock()
        self.started: list[tuple[str, Process]] = []
        self.stopping = asyncio.Event()
        self.failed: list[str] | None = None
        self.dies_at_once = False
        self._deaf = deaf
        self._keeper = Keeper(self._start, self.clock, random.Random(1), may_end=may_end)

    async def _start(self, name: str) -> Process:
        process = Process(deaf=self._deaf)
        self.started.append((name, process))
        if self.dies_at_once:
            process.end(1)
        return process

    async def run(self) -> None:
        self.failed = await self._keeper.run(["one", "two"], self.stopping)

    @property
    def names(self) -> list[str]:
        return [name for name, _ in self.started]


@asynccontextmanager
async def running(world: World) -> AsyncIterator[None]:
    task = asyncio.ensure_future(world.run())
    await world.clock.settle()
    try:
        yield
    finally:
        world.stopping.set()
        await world.clock.advance(PATIENCE_MS)
        await task


async def test_one_that_is_killed_is_told_of_at_once_and_started_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    async with running(world):
        await world.clock.advance(LONG_MS)
        world.started[0][1].end(-signal.SIGKILL)
        await world.clock.advance(1_000)
        assert "one was killed by SIGKILL" in caplog.text
        assert world.names == ["one", "two", "one"]
    assert world.failed == []


async def test_one_that_ends_by_itself_without_leave_is_started_again() -> None:
    world = World()
    async with running(world):
        await world.clock.advance(LONG_MS)
        world.started[1][1].end(0)
        await world.clock.advance(1_000)
        assert world.names == ["one", "two", "two"]


async def test_one_that_may_end_has_done_its_work() -> None:
    world = World(may_end=True)
    async with running(world):
        for _, process in world.started:
            process.end(0)
        await world.clock.advance(60_000)
        assert (world.names, world.failed) == (["one", "two"], [])


async def test_what_dies_at_its_start_is_started_less_and_less_often() -> None:
    world = World()
    async with running(world):
        await world.clock.advance(LONG_MS)
        world.started[1][1].end(1)  # it has run: what happens now is not a mistake of the caller
        world.dies_at_once = True
        await world.clock.advance(600_000)
        starts = len(world.started)
        assert 600_000 / WAITS.high < starts < 600_000 / WAITS.high * 2 + 10
        world.dies_at_once = False
        await world.clock.advance(WAITS.high * 2)
        assert world.started[-1][1].returncode is None
    assert world.failed == []


async def test_where_nothing_ever_ran_it_is_given_up_and_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.dies_at_once = True
    async with running(world):
        await world.clock.advance(60_000)
        assert world.failed == ["one", "two"]
        assert len(world.started) == 2 * STARTS
    assert "given up" in caplog.text


async def test_stopping_asks_everybody_and_waits_for_them() -> None:
    world = World()
    async with running(world):
        world.stopping.set()
        await world.clock.settle()
        assert [process.signals for _, process in world.started] == [[signal.SIGTERM]] * 2
        assert world.failed == []


async def test_one_that_does_not_listen_is_killed_in_the_end() -> None:
    world = World(deaf=True)
    async with running(world):
        world.stopping.set()
        await world.clock.advance(PATIENCE_MS - 1)
        assert world.failed is None
        await world.clock.advance(1)
        assert world.failed == ["one", "two"]


async def test_an_end_that_comes_with_the_end_of_all_is_no_fault(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    async with running(world):
        for _, process in world.started:
            process.end(-signal.SIGINT)
        await world.clock.advance(10)
        world.stopping.set()
        await world.clock.settle()
        assert world.failed == []
    assert caplog.text == ""


async def test_while_it_waits_to_start_again_it_can_be_stopped() -> None:
    world = World()
    async with running(world):
        for _, process in world.started:
            process.end(1)
        await world.clock.advance(250)
        world.stopping.set()
        await world.clock.settle()
        assert (world.failed, len(world.started)) == ([], 2)
