"""One suite for every store of policies: the executable form of `penstock.ports.policies`.

    class TestMyPolicies(PolicySuite):
        @pytest.fixture
        def make_harness(self):
            return MyHarness               # penstock.testing.store_harness.StoreHarness

Needs pytest and hypothesis. Every answer is compared with `penstock.stores.memory`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import ClassVar, TypeAlias

from hypothesis import Phase, given, settings

from penstock.model.policy import Policy
from penstock.ports.policies import PolicyStore
from penstock.testing import policy_worlds as worlds
from penstock.testing.policy_walk import (
    Beside,
    Step,
    check_a_clock_set_back_keeps_nothing,
    check_a_late_decision_takes_nothing,
    check_a_refused_retry_keeps_nothing,
    check_a_release_is_of_its_lease,
    check_a_retry_that_may_go_is_its_decisions,
    check_an_id_with_another_key_is_another,
    check_changes_bind_everywhere,
    check_counts_anew_after_a_drop,
    sequences,
)
from penstock.testing.several_keys import Batch, Walk, check_all_or_nothing, traffic
from penstock.testing.store_harness import StoreHarness

MakeHarness: TypeAlias = Callable[[], StoreHarness]


@asynccontextmanager
async def opened(harness: StoreHarness, processes: int = 1) -> AsyncIterator[list[PolicyStore]]:
    """The policies of one place, as opened by each of `processes`."""
    async with AsyncExitStack() as stack:
        stack.push_async_callback(harness.close)
        found = []
        for _ in range(processes):
            store = await harness.open()
            stack.push_async_callback(store.close)
            assert store.policies is not None, "this suite is for a store that keeps policies"
            found.append(store.policies)
        yield found


class PolicySuite:
    """A store author's subclass provides `make_harness`: each call makes an empty place."""

    examples: ClassVar[int] = 50
    """Number of random walks; half as many with several keys per message."""
    phases: ClassVar[Sequence[Phase]] = tuple(Phase)
    """Hypothesis phases: without `Phase.shrink` a failure on a slow server is reported at once."""
    beside: ClassVar[type[Beside]] = Beside

    def test_every_answer_is_that_of_the_reference(self, make_harness: MakeHarness) -> None:
        async def walk(policies: dict[str, Policy], steps: list[Step]) -> None:
            async with opened(make_harness()) as (store,):
                await self.beside(store).walk(policies, steps)

        @settings(max_examples=self.examples, phases=self.phases, deadline=None)
        @given(sequences)
        def check(sequence: tuple[dict[str, Policy], list[Step]]) -> None:
            asyncio.run(walk(*sequence))

        check()

    def test_no_key_of_several_is_ever_over_a_cap(self, make_harness: MakeHarness) -> None:
        async def walk(limit: int, batches: list[Batch]) -> None:
            async with opened(make_harness()) as (store,):
                await Walk(store, limit).run(batches)

        @settings(max_examples=self.examples // 2, phases=self.phases, deadline=None)
        @given(traffic)
        def check(steps: tuple[int, list[Batch]]) -> None:
            asyncio.run(walk(*steps))

        check()

    async def test_all_keys_are_asked_or_none_counts(self, make_harness: MakeHarness) -> None:
        async with opened(make_harness()) as (store,):
            await check_all_or_nothing(store, worlds.START)

    async def test_a_release_leaves_what_the_next_lease_reserved(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness()) as (store,):
            await check_a_release_is_of_its_lease(store)

    async def test_a_late_decision_takes_nothing_from_a_later_one(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness()) as (store,):
            await check_a_late_decision_takes_nothing(store)

    async def test_a_retry_that_is_refused_before_its_due_gives_its_reservations_back(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness()) as (store,):
            await check_a_refused_retry_keeps_nothing(store)

    async def test_a_late_decision_takes_nothing_from_a_retry_that_may_go(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness()) as (store,):
            await check_a_retry_that_may_go_is_its_decisions(store)

    async def test_reservations_made_before_the_clock_was_set_back_are_given_back(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness()) as (store,):
            await check_a_clock_set_back_keeps_nothing(store)

    async def test_an_id_that_comes_again_with_another_key_leaves_what_the_first_holds(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness()) as (store,):
            await check_an_id_with_another_key_is_another(store)

    async def test_a_policy_that_was_dropped_and_put_again_counts_anew(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness()) as (store,):
            await check_counts_anew_after_a_drop(store)


class SharedPolicySuite(PolicySuite):
    """Also tests that processes on one store decide as one: for every store except in memory."""

    async def test_a_change_by_one_process_binds_every_other_at_its_next_decision(
        self, make_harness: MakeHarness
    ) -> None:
        async with opened(make_harness(), processes=2) as (here, there):
            await check_changes_bind_everywhere(here, there)
