"""PostgreSQL decides as the reference does, in one process and in several."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.policy import Cap, Scope
from penstock.stores.postgres import PostgresStore
from penstock.testing import policy_worlds as worlds
from penstock.testing.policy_suite import MakeHarness, SharedPolicySuite
from penstock.testing.policy_walk import Beside, Drop, Put, Step, sends
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness

DAILY = Cap(scope=(Scope.KEY,), limit=2, window="24h")
LARGE = Cap(scope=(Scope.KEY,), limit=30, window="24h")


class BesidePostgres(Beside):
    """A cap whose window is another counts anew: with a longer one, counters that stand for
    several caps know more of the past than the reference."""

    async def step(self, step: Step) -> None:
        if isinstance(step, Put):
            before = self.reference._rules.book.policies.get(step.id)
            same = getattr(before, "window", None) == getattr(step.policy, "window", None)
            if before is not None and not same:
                await super().step(Drop(step.id))
        await super().step(step)


class TestPostgresPolicies(SharedPolicySuite):
    examples = 10
    beside = BesidePostgres

    @pytest.fixture
    def make_harness(self, postgres: PostgresServer) -> MakeHarness:
        return lambda: PostgresHarness(postgres)


async def opened(harness: PostgresHarness) -> PostgresStore:
    store = (await harness.open()).messages
    assert isinstance(store, PostgresStore)
    return store


async def test_what_one_process_counted_counts_in_every_other(postgres: PostgresServer) -> None:
    harness = PostgresHarness(postgres)
    here, there = await opened(harness), await opened(harness)
    await here.policies.put_policy("daily", DAILY)
    turns = (here, 1), (there, 1), (here, 0), (there, 0)
    for moment, (store, sent) in enumerate(turns, start=worlds.START):
        assert await sends(store.policies, 1, moment) == sent
    await here.close()
    await there.close()
    await harness.close()


async def test_processes_that_count_at_once_never_send_more_than_the_cap(
    postgres: PostgresServer,
) -> None:
    harness = PostgresHarness(postgres)
    stores = [await opened(harness) for _ in range(3)]
    await stores[0].policies.put_policy("large", LARGE)
    moments = enumerate(stores, start=worlds.START)  # and so other ids
    sent = await asyncio.gather(*(sends(store.policies, 20, at) for at, store in moments))
    for store in stores:
        await store.close()
    await harness.close()
    assert sum(sent) == 30
