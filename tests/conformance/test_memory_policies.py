"""memory:// decides as the arithmetic says; other stores are compared with it."""

from __future__ import annotations

import pytest

from penstock.stores.memory.policies import MemoryPolicies
from penstock.testing.policy_suite import MakeHarness, PolicySuite
from penstock.testing.policy_walk import check_changes_bind_everywhere
from tests.conformance.memory_harness import MemoryHarness


class TestMemoryPolicies(PolicySuite):
    examples = 50

    @pytest.fixture
    def make_harness(self) -> MakeHarness:
        return MemoryHarness


async def test_a_change_binds_at_the_next_decision() -> None:
    policies = MemoryPolicies()
    await check_changes_bind_everywhere(policies, policies)
