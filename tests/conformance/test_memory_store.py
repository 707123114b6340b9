"""memory:// keeps every promise of the store port but the one to outlive its process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from hypothesis import settings

import penstock
from penstock.model.errors import ConfigError
from penstock.stores.memory import DRIVER
from penstock.testing.clock import ManualClock
from penstock.testing.store_cases.fleet import FleetCases
from penstock.testing.store_cases.keyed import KeyedCases
from penstock.testing.store_machine import StoreMachine
from penstock.testing.store_suite import StoreSuite
from tests.conformance.memory_harness import MemoryHarness


class TestMemoryStore(StoreSuite, FleetCases):
    @pytest_asyncio.fixture
    async def harness(self) -> AsyncIterator[MemoryHarness]:
        yield MemoryHarness()


class TestKeyed(KeyedCases):
    @pytest_asyncio.fixture
    async def harness(self) -> AsyncIterator[MemoryHarness]:
        yield MemoryHarness()


class MemoryMachine(StoreMachine):
    durable = False

    def make_harness(self) -> MemoryHarness:
        return MemoryHarness()


TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=20, stateful_step_count=40)


async def test_a_program_waits_two_hours_in_no_time() -> None:
    clock, sent = ManualClock(), list[str]()

    async def handle(message: penstock.Message) -> None:
        sent.append(message.key)

    routes = {"default": handle}
    async with penstock.open("memory://", routes=routes, worker=True, clock=clock) as engine:
        await engine.schedule({"tea": 1}, key="ann", delay="2h")
        await clock.advance(2 * 3_600_000 - 1)
        assert sent == []
        await clock.advance(1)
        assert sent == ["ann"]


async def test_it_says_at_start_that_nothing_is_kept() -> None:
    (warning,) = (await MemoryHarness().open()).warnings
    assert "lost when the process ends" in warning


async def test_a_clock_can_be_given_only_to_a_store_in_memory() -> None:
    with pytest.raises(ConfigError, match="only a store in memory"):
        async with penstock.open("sqlite:///never.db", clock=ManualClock()):
            """Not reached."""


@pytest.mark.parametrize("url", ["memory://name", "memory:///path", "memory://?size=1"])
async def test_an_address_with_more_than_the_scheme_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="neither a name nor options"):
        DRIVER.nothing_to_read(url)
