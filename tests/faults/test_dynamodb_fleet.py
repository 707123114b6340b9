"""A fleet on DynamoDB + Redis under fire: nothing acknowledged is lost or early."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.stores.dynamodb import init_store
from tests.faults.campaign import arrivals, assert_promises
from tests.faults.fleet import IN_FLIGHT, clock_off_by, run_fleet
from tests.servers.dynamodb import DynamoServer
from tests.servers.dynamodb_proxy import DynamoProxy
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.slow


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    """Without any persistence: it holds nothing that matters."""
    with RedisServer() as server:
        yield server


async def test_killed_processes_and_a_redis_that_is_emptied_lose_nothing(
    dynamodb: DynamoServer, redis: RedisServer, tmp_path: Path
) -> None:
    """The first worker's clock is five minutes ahead all the while."""
    faults = 3
    store = dynamodb.url("fleet-killed", redis.url, shards=2)
    await init_store(store)
    ahead = clock_off_by("+300")
    async with run_fleet(
        tmp_path, store, apis=2, workers=2, seed=21, lease="3s", worker_env=ahead
    ) as fleet:
        clients = fleet.clients()
        async with clients.running():
            for _ in range(faults):
                await clients.more(20 + fleet.chance.randrange(20))
                await asyncio.to_thread(redis.flush)
                await clients.more(20)
                await fleet.kill_one(fleet.processes)
        verdict = await arrivals(fleet.witness, clients.acknowledged)
    assert_promises(verdict, duplicates=faults * IN_FLIGHT)


async def test_a_redis_that_dies_and_a_dynamodb_that_throttles_and_fails_lose_nothing(
    dynamodb: DynamoServer, redis: RedisServer, tmp_path: Path
) -> None:
    async with DynamoProxy(dynamodb.port, random.Random(22)) as proxy:
        store = dynamodb.url("fleet-throttled", redis.url, proxy.port, shards=2, timeout="2s")
        await init_store(store)
        async with run_fleet(tmp_path, store, workers=2, seed=22, lease="3s") as fleet:
            clients = fleet.clients()
            async with clients.running():
                await clients.more(30)
                proxy.fault("throttle", "fail", "fail after", share=0.2)
                await clients.more(40)
                proxy.fault("away")
                await asyncio.sleep(1)
                proxy.heal()
                await clients.more(20)
                await asyncio.to_thread(redis.kill)
                await clients.more(20)
                await asyncio.to_thread(redis.start)
                await clients.more(20)
            verdict = await arrivals(fleet.witness, clients.acknowledged)
        assert proxy.hurt > 0
    # A lost answer, an outage and a dead Redis: each may repeat what two workers had in flight.
    assert_promises(verdict, duplicates=4 * 2 * IN_FLIGHT)
