"""A fleet on DynamoDB + Redis under fire: nothing acknowledged is lost or early."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.stores.dynamodb import init_store
from penstock.testing.proxy import Proxy
from systems.servers.dynamodb import DynamoServer
from systems.servers.redis import RedisCluster, RedisServer
from tests.faults.campaign import arrivals, assert_promises
from tests.faults.fleet import IN_FLIGHT, clock_off_by, run_fleet
from tests.servers.dynamodb_proxy import DynamoProxy

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


async def test_hangs_longer_than_a_lease_and_connections_cut_in_the_middle_of_calls_lose_nothing(
    dynamodb: DynamoServer, redis: RedisServer, tmp_path: Path
) -> None:
    """What the worker held is another's by the time it wakes, and its own word counts no more."""
    cuts = 8
    async with (
        Proxy("127.0.0.1", dynamodb.port) as truth,
        Proxy("127.0.0.1", redis.port) as near,
    ):
        near_url = f"redis://127.0.0.1:{near.port}/0"
        store = dynamodb.url("fleet-cut", near_url, truth.port, shards=2)
        await init_store(store)
        async with run_fleet(tmp_path, store, workers=2, seed=23, lease="3s") as fleet:
            clients = fleet.clients()
            async with clients.running():
                for number in range(cuts):
                    await clients.more(4 + fleet.chance.randrange(8))
                    way = (truth, near)[number % 2]
                    # Done, but nobody hears it; or everything is gone at once.
                    way.lose_answers(1 + fleet.chance.randrange(4))
                    if fleet.chance.random() < 0.5:
                        await clients.more(1)
                        way.cut()
                truth.lose_answers(0)
                near.lose_answers(0)
                for hanging in (fleet.workers[0], redis):
                    await clients.more(15)
                    hanging.pause()
                    await asyncio.sleep(4)
                    hanging.resume()
                await clients.more(15)
            verdict = await arrivals(fleet.witness, clients.acknowledged)
    # One worker's hang, both workers' hang, and a lease that ended while its call was repeated.
    assert_promises(verdict, duplicates=(1 + 2 + 2) * IN_FLIGHT)


async def test_a_primary_of_the_near_futures_cluster_that_dies_loses_nothing(
    dynamodb: DynamoServer, tmp_path: Path
) -> None:
    """Its replica takes over without the last writes, and it comes back empty: no matter."""
    with RedisCluster() as cluster:
        store = dynamodb.url("fleet-cluster", cluster.url, shards=2)
        await init_store(store)
        async with run_fleet(tmp_path, store, workers=2, seed=25, lease="3s") as fleet:
            clients = fleet.clients()
            async with clients.running():
                await clients.more(50)
                (victim, *_) = await asyncio.to_thread(cluster.primaries)
                await asyncio.to_thread(victim.kill)
                await clients.more(20)  # what DynamoDB has is accepted
                await asyncio.to_thread(cluster.wait_primaries)
                await asyncio.to_thread(victim.start)  # the new primary's replica
                await clients.more(40)
            verdict = await arrivals(fleet.witness, clients.acknowledged)
    assert_promises(verdict, duplicates=2 * IN_FLIGHT)
