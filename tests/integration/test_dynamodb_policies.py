"""Policies on the tiered store: kept in DynamoDB, decided in Redis, brought back when lost."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest
import pytest_asyncio

from penstock.model.message import Message
from penstock.model.policy import Suppression, policy_from
from penstock.model.verdict import Verdict
from penstock.ports.policies import PolicyStore
from penstock.stores.dynamodb import TieredStore, init_store, open_store
from penstock.testing.policy_walk import (
    check_a_clock_set_back_keeps_nothing,
    check_a_late_decision_takes_nothing,
    check_a_refused_retry_keeps_nothing,
    check_a_release_is_of_its_lease,
    check_a_retry_that_may_go_is_its_decisions,
)
from penstock.testing.several_keys import check_all_or_nothing
from systems.servers.dynamodb import DynamoServer
from systems.servers.redis import RedisServer

pytestmark = pytest.mark.slow

CAP = policy_from(
    {"kind": "cap", "scope": ["key"], "limit": 1, "window": "24h", "on_exceed": "BLOCK"}
)
HOLD = 1_000


@pytest_asyncio.fixture
async def store(dynamodb: DynamoServer, redis: RedisServer) -> AsyncIterator[TieredStore]:
    url = dynamodb.url("policies", redis.url, shards=2)
    await init_store(url)
    dynamodb.empty("policies")
    opened = (
        await open_store(url, total_partitions=2, retention=1_000, retention_count=10)
    ).messages
    assert isinstance(opened, TieredStore)
    yield opened
    await opened.close()


async def verdicts(policies: PolicyStore, store: TieredStore, *keys: str) -> list[Verdict]:
    now = store.clock.now()
    subjects = [
        Message(id=f"{key[:9]}-{place}", route="r", key=key, payload=b"", due=now)
        for place, key in enumerate(keys)
    ]
    return [one.verdict for one in await policies.decide(subjects, now, HOLD)]


async def test_rules_outlive_a_redis_that_was_emptied(
    store: TieredStore, redis: RedisServer
) -> None:
    policies = store.policies
    await policies.put_policy("once", CAP)
    await policies.put_policy("gone", CAP)
    await policies.put_suppression("optout", Suppression(keys=("a", "b"), legal=True))
    await policies.suppress("optout", add=["c" * 512], remove=["b"])
    assert await policies.drop_policy("gone")
    before = await verdicts(policies, store, "a", "b", "b", "c" * 512)
    assert before == [Verdict.BLOCK, Verdict.ALLOW, Verdict.BLOCK, Verdict.BLOCK]
    redis.flush()
    assert await verdicts(policies, store, "a", "z", "c" * 512) == [
        Verdict.BLOCK,
        Verdict.ALLOW,
        Verdict.BLOCK,
    ]
    book = await policies.book()
    assert (set(book.policies), set(book.suppressions)) == ({"once"}, {"optout"})
    kept = await policies.suppression("optout")
    assert kept is not None
    assert set(kept.keys) == {"a", "c" * 512}


async def test_a_change_binds_every_process_at_once(
    store: TieredStore, dynamodb: DynamoServer, redis: RedisServer
) -> None:
    url = dynamodb.url("policies", redis.url)
    other = (
        await open_store(url, total_partitions=2, retention=1_000, retention_count=10)
    ).messages
    assert isinstance(other, TieredStore)
    try:
        assert await verdicts(other.policies, other, "k", "k") == [Verdict.ALLOW] * 2
        await store.policies.put_suppression("stop", Suppression(keys=("k",)))
        assert await verdicts(other.policies, other, "k") == [Verdict.BLOCK]
        assert await store.policies.drop_suppression("stop")
        assert await verdicts(other.policies, other, "k") == [Verdict.ALLOW]
    finally:
        await other.close()


@pytest.mark.parametrize(
    "check",
    [
        check_a_release_is_of_its_lease,
        check_a_late_decision_takes_nothing,
        check_a_refused_retry_keeps_nothing,
        check_a_retry_that_may_go_is_its_decisions,
        check_a_clock_set_back_keeps_nothing,
    ],
)
async def test_a_reservation_is_its_latest_decisions(
    store: TieredStore, redis: RedisServer, check: Callable[[PolicyStore], Awaitable[None]]
) -> None:
    redis.flush()
    await check(store.policies)


async def test_all_keys_of_a_message_are_asked_or_none_is_counted(store: TieredStore) -> None:
    await check_all_or_nothing(store.policies, store.clock.now())
