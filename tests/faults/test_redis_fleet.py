"""A fleet on Redis under fire: nothing acknowledged is lost or early, repeats only by faults."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.campaign import ENOUGH, arrivals, assert_promises
from tests.faults.fleet import IN_FLIGHT, run_fleet
from tests.servers.redis import RedisCluster, RedisServer

pytestmark = pytest.mark.slow

FAKETIME = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
"""Brought by scripts/install-servers."""


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
    async with run_fleet(tmp_path, redis.url, seed=13, lease="500ms") as fleet:
        clients = fleet.clients()
        async with clients.running():
            await clients.more(60)
            redis.pause()
            await asyncio.sleep(2)
            redis.resume()
            await clients.more(60)
        verdict = await arrivals(fleet.witness, clients.acknowledged)
    assert_promises(verdict, duplicates=2 * 2 * IN_FLIGHT)


@pytest.mark.parametrize("offset", ["-300", "+300"])
async def test_a_worker_whose_clock_is_minutes_wrong_is_neither_early_nor_lost(
    redis: RedisServer, tmp_path: Path, offset: str
) -> None:
    wrong = {
        "LD_PRELOAD": str(FAKETIME),
        "FAKETIME": f"{offset}s",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
    }
    async with run_fleet(tmp_path, redis.url, workers=1, seed=14, worker_env=wrong) as fleet:
        clients = fleet.clients()
        async with clients.running():
            await clients.more(ENOUGH)
        verdict = await arrivals(fleet.witness, clients.acknowledged)
    assert_promises(verdict, duplicates=0)


async def test_a_primary_that_dies_is_replaced_by_its_replica(tmp_path: Path) -> None:
    with RedisCluster() as cluster:
        async with run_fleet(tmp_path, cluster.url, seed=15) as fleet:
            clients = fleet.clients()
            async with clients.running():
                await clients.more(60)
                (victim, *_) = await asyncio.to_thread(cluster.primaries)
                await asyncio.to_thread(victim.kill)
                await clients.more(60)
            verdict = await arrivals(fleet.witness, clients.acknowledged)
    # Replication is asynchronous: what the dead primary had told nobody is what Redis itself
    # was set up to lose. Everything that its replica had is there.
    print(verdict)
    assert verdict.early == ()
    assert len(verdict.lost) <= 5
    assert len(verdict.duplicates) <= 4 * IN_FLIGHT


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
