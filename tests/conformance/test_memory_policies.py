"""memory:// decides as the arithmetic says; other stores are compared with it."""

from __future__ import annotations

from hypothesis import given, settings

from penstock.model.policy import Policy
from penstock.stores.memory.policies import MemoryPolicies
from tests.conformance.policy_agreement import (
    Beside,
    Step,
    check_changes_bind_everywhere,
    check_counts_anew_after_a_drop,
    sequences,
)
from tests.conformance.several_keys import Batch, Walk, check_all_or_nothing, traffic
from tests.unit.limits import worlds


@settings(max_examples=20)
@given(sequences)
async def test_two_stores_in_memory_give_the_same_answers(
    sequence: tuple[dict[str, Policy], list[Step]],
) -> None:
    await Beside(MemoryPolicies()).walk(*sequence)


async def test_a_change_binds_at_the_next_decision() -> None:
    policies = MemoryPolicies()
    await check_changes_bind_everywhere(policies, policies)


async def test_a_policy_that_was_dropped_and_put_again_counts_anew() -> None:
    await check_counts_anew_after_a_drop(MemoryPolicies())


@settings(max_examples=25)
@given(traffic)
async def test_no_key_of_several_is_ever_over_a_cap(steps: tuple[int, list[Batch]]) -> None:
    await Walk(MemoryPolicies(), steps[0]).run(steps[1])


async def test_all_keys_are_asked_or_none_counts() -> None:
    await check_all_or_nothing(MemoryPolicies(), worlds.START)
