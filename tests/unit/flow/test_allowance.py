"""How often the paces of a route are asked for room."""

from __future__ import annotations

from typing import cast

import pytest

from penstock.flow.policies import CACHE_IF_ABOVE, CACHED_MS, Policies
from penstock.model.decision import PaceAllowance
from penstock.model.policy import Pace, RuleBook
from penstock.ports.policies import PolicyStore
from penstock.testing.clock import ManualClock

WANTED = 100


class Paced:
    """A store with one pace, that says how much room there is and counts who asks."""

    def __init__(self) -> None:
        self.left = 0
        self.asked = 0

    async def book(self) -> RuleBook:
        return RuleBook(policies={"slow": Pace(rate="1/s")})

    async def allowance(self, route: str, now: int) -> PaceAllowance | None:
        del route
        self.asked += 1
        return PaceAllowance(self.left, None if self.left else now + 1)


@pytest.fixture
def store() -> Paced:
    return Paced()


@pytest.fixture
async def policies(store: Paced) -> Policies:
    policies = Policies(cast("PolicyStore", store), ManualClock())
    await policies.refresh()
    return policies


async def test_where_there_is_little_room_every_claim_asks(
    store: Paced, policies: Policies
) -> None:
    store.left = CACHE_IF_ABOVE * WANTED - 1
    for asked in (1, 2, 3):
        assert await policies.allowance("r", WANTED, 1_000) == PaceAllowance(WANTED)
        assert store.asked == asked


async def test_where_there_is_plenty_the_next_claims_do_not(
    store: Paced, policies: Policies
) -> None:
    store.left = (CACHE_IF_ABOVE + 2) * WANTED
    for _ in range(3):
        assert await policies.allowance("r", WANTED, 1_000) == PaceAllowance(WANTED)
    assert store.asked == 1
    store.left = 7
    assert await policies.allowance("r", WANTED, 1_000) == PaceAllowance(7)


async def test_plenty_is_soon_too_long_ago(store: Paced, policies: Policies) -> None:
    store.left = 100 * WANTED
    await policies.allowance("r", WANTED, 1_000)
    await policies.allowance("r", WANTED, 1_000 + CACHED_MS - 1)
    assert store.asked == 1
    await policies.allowance("r", WANTED, 1_000 + CACHED_MS)
    assert store.asked == 2
    await policies.allowance("r", WANTED, 900)  # by a clock that was set back
    assert store.asked == 3


async def test_other_rules_make_everybody_ask_again(store: Paced, policies: Policies) -> None:
    store.left = 100 * WANTED
    await policies.allowance("r", WANTED, 1_000)
    await policies.refresh()
    store.left = 0
    assert await policies.allowance("r", WANTED, 1_000) == PaceAllowance(0, 1_001)


async def test_plenty_on_one_route_says_nothing_of_another(
    store: Paced, policies: Policies
) -> None:
    store.left = 100 * WANTED
    await policies.allowance("r", WANTED, 1_000)
    store.left = 1
    assert await policies.allowance("other", WANTED, 1_000) == PaceAllowance(1)
