"""A fleet on Redis under fire: nothing acknowledged is lost or early, repeats only by faults."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.proxy import Proxy
from systems.servers.redis import RedisCluster, RedisServer
from tests.faults.campaign import ENOUGH, arrivals, assert_promises
from tests.faults.fleet import IN_FLIGHT, clock_off_by, run_fleet

pytestmark = pytest.mark.slow


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer("--appendfsync", "always", aof=True) as server:
        yield server


async def test_killed_processes_lose_nothing(redis: RedisServer, tmp_path: Path) -> None:
    kills = 6
    async with run_fleet(tmp_path, redis.url, apis=2, workers=2, seed=11) as fleet:
        clients = fleet.clients()
        async with clients.running():
            for _ in range(kills):
                await clients.more(20 + fleet.chance.randrange(40))
                await fleet.kill_one(fleet.processes)
        verdict = await arrivals(fleet.witness, clients.acknowledged)
    assert_promises(verdict, duplicates=kills * IN_FLIGHT)


async def test_a_redis_that_is_killed_and_comes_back_loses_nothing(
    redis: RedisServer, tmp_path: Path
) -> None:
    faults = 2
    async with run_fleet(tmp_path, redis.url, seed=12) as fleet:
        clients = fleet.clients()
        async with clients.running():
            for _ in range(faults):
                await clients.more(50)
                await asyncio.to_thread(redis.kill)
                await asyncio.sleep(1)
                await asyncio.to_thread(redis.start)
            await clients.more(50)
        verdict = await arrivals(fleet.witness, clients.acknowledged)
    assert_promises(verdict, duplicates=faults * 2 * IN_FLIGHT)


async def test_a_redis_that_hangs_longer_than_a_lease_loses_nothing(
    redis: RedisServer, tmp_path: Path
) -> None:
    async with run_fleet(tmp_path, redis.url, seed=13, lease="3s") as fleet:
        clients = fleet.clients()
        async with clients.running():
            await clients.more(60)
            redis.pause()
            await asyncio.sleep(4)
            redis.resume()
            await clients.more(60)
        verdict = await arrivals(fleet.witness, clients.acknowledged)
    assert_promises(verdict, duplicates=2 * 2 * IN_FLIGHT)


@pytest.mark.parametrize("offset", ["-300", "+300"])
async def test_a_worker_whose_clock_is_minutes_wrong_is_neither_early_nor_lost(
    redis: RedisServer, tmp_path: Path, offset: str
) -> None:
    wrong = clock_off_by(offset)
    async with run_fleet(tmp_path, redis.url, workers=1, seed=14, worker_env=wrong) as fleet:
        clients = fleet.clients()
        async with clients.running():
            await clients.more(ENOUGH)
        verdict = await arrivals(fleet.witness, clients.acknowledged)
    assert_promises(verdict, duplicates=0)


async def test_connections_cut_in_the_middle_of_calls_lose_nothing(
    redis: RedisServer, tmp_path: Path
) -> None:
    cuts = 12
    async with Proxy("127.0.0.1", redis.port) as proxy:
        store = f"redis://127.0.0.1:{proxy.port}/0"
        async with run_fleet(tmp_path, store, apis=2, seed=17) as fleet:
            clients = fleet.clients()
            async with clients.running():
                for _ in range(cuts):
                    await clients.more(5 + fleet.chance.randrange(10))
                    # Done, but nobody hears it; or everything is gone at once.
                    proxy.lose_answers(1 + fleet.chance.randrange(4))
                    if fleet.chance.random() < 0.5:
                        await clients.more(1)
                        proxy.cut()
            proxy.lose_answers(0)
            verdict = await arrivals(fleet.witness, clients.acknowledged)
    # Store calls are repeated until they are answered: only a lease that ended meanwhile may
    # have sent twice.
    assert_promises(verdict, duplicates=2 * IN_FLIGHT)


async def test_a_primary_that_dies_is_replaced_by_its_replica_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    with RedisCluster() as cluster:
        # Replication is asynchronous: what is acknowledged shall be on a replica already.
        store = f"{cluster.url}?wait_replicas=1&wait_ms=1000"
        async with run_fleet(tmp_path, store, seed=15) as fleet:
            clients = fleet.clients()
            async with clients.running():
                await clients.more(60)
                (victim, *_) = await asyncio.to_thread(cluster.primaries)
                await asyncio.to_thread(victim.kill)
                await asyncio.to_thread(cluster.wait_primaries)
                await asyncio.to_thread(victim.start)  # the new primary's replica
                await clients.more(60)
            verdict = await arrivals(fleet.witness, clients.acknowledged)
    assert_promises(verdict, duplicates=4 * IN_FLIGHT)


async def test_every_process_stops_in_order_when_asked(redis: RedisServer, tmp_path: Path) -> None:
    async with run_fleet(tmp_path, redis.url, workers=1, seed=16) as fleet:
        clients = fleet.clients()
        async with clients.running():
            await clients.more(ENOUGH)
        await arrivals(fleet.witness, clients.acknowledged)
        codes = [await process.stop() for process in fleet.processes]
        logs = "".join(process.log.read_text() for process in fleet.processes)
    assert codes == [0, 0]
    assert "Traceback" not in logs
