"""The engine on Redis (AOF on, everysec) against bare Lua scripts writing the same bytes."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time

import psutil
import uvloop
from redis.asyncio import Redis

import penstock
from bench.redis_limits import Bare
from bench.report import Report
from bench.workload import drafts, messages
from penstock.model.times import format_moment
from systems.servers.redis import RedisServer

NUMBER = 100_000
MEMORY_SAMPLE = 100_000
SCALES = (10_000, 1_000_000, 3_000_000)
MEASURED = 20_000
BURST = 100_000
ROUNDS = 2
"""Of which the better one counts, of the limits and of ours."""
SECONDS = 6


def main() -> None:
    report = Report("redis", "the engine on Redis 7.0, AOF everysec, 8 partitions")
    with RedisServer(aof=True) as server:
        uvloop.run(_throughput(report, server))
    with RedisServer() as server:
        uvloop.run(_memory(report, server))
    with RedisServer() as server:
        uvloop.run(_scale(report, server))
    with RedisServer(aof=True) as server:
        for rate in (1_000, 5_000):
            uvloop.run(_lateness(report, server, rate))
        for workers in (1, 2):
            _burst(report, server, workers)
    report.finish()


async def _throughput(report: Report, server: RedisServer) -> None:
    bare_put = bare_drain = put = drain = piped = 0.0
    for _ in range(ROUNDS):
        server.flush()
        async with Redis(port=server.port) as client:
            bare = Bare(client)
            await bare.load()
            piped = max(piped, await bare.pipeline(messages(NUMBER // 5)))
            bare_put = max(bare_put, await bare.put(messages(NUMBER, ahead=0)))
            bare_drain = max(bare_drain, await bare.drain())
        server.flush()
        async with penstock.open(server.url) as engine:
            asked = drafts(NUMBER)
            start = time.perf_counter()
            await engine.schedule_many(asked)
            put = max(put, NUMBER / (time.perf_counter() - start))
        server.flush()
        drain = max(drain, await _drain(server.url, NUMBER))
    report.add("bare pipeline of HSET and ZADD", piped, "messages/s")
    report.add("bare put script", bare_put, "messages/s")
    report.add(
        "library schedule_many, an hour ahead",
        put,
        "messages/s",
        baseline=bare_put,
        against="bare put script",
        aim=">= 0.6 x",
    )
    report.add("bare claim and settle scripts", bare_drain, "messages/s")
    report.add(
        "claim, no-op sink, settle",
        drain,
        "messages/s",
        baseline=bare_drain,
        against="bare scripts",
        aim=">= 0.5 x",
    )


async def _drain(url: str, number: int) -> float:
    """A due backlog through claim, no-op sink and settle; messages a second."""
    done = 0
    finished = asyncio.Event()

    async def nothing(batch: list[penstock.Message]) -> None:
        nonlocal done
        done += len(batch)
        if done >= number:
            finished.set()

    async with penstock.open(url) as engine:
        await engine.schedule_many(drafts(number, delay=0))
    start = time.perf_counter()
    async with penstock.open(url, routes={"default": nothing}, worker=True):
        await finished.wait()
    return number / (time.perf_counter() - start)


async def _memory(report: Report, server: RedisServer) -> None:
    """Bytes of Redis' memory a pending message with a 100-byte payload takes."""
    for name, delay, aim in (("far ahead", 86_400 * 3.0, "<= 280"), ("near", 30.0, "<= 370")):
        server.flush()
        async with Redis(port=server.port) as client, penstock.open(server.url) as engine:
            before = int((await client.info("memory"))["used_memory"])
            await engine.schedule_many(drafts(MEMORY_SAMPLE, delay=delay))
            after = int((await client.info("memory"))["used_memory"])
        report.add(f"memory a message, {name}", (after - before) / MEMORY_SAMPLE, "bytes", aim=aim)


async def _scale(report: Report, server: RedisServer) -> None:
    """Cost of a message claimed and settled while so many others are pending."""
    server.flush()
    pending = 0
    base: float | None = None
    for scale in SCALES:
        async with penstock.open(server.url, routes={"default": "log://"}) as engine:
            while pending < scale:
                await engine.schedule_many(drafts(min(50_000, scale - pending), delay=86_400.0))
                pending += min(50_000, scale - pending)
        cost = 1e6 / max([await _drain(server.url, MEASURED) for _ in range(5)])
        report.add(
            f"a message with {scale:,} pending",
            cost,
            "µs",
            baseline=base,
            against="" if base is None else f"{SCALES[0]:,} pending",
            aim="" if base is None else "<= 1.3 x",
        )
        base = cost if base is None else base
    rss = psutil.Process().memory_info().rss
    report.add("RSS of this process in the end", rss / 1e6, "MB", aim="flat")


async def _lateness(report: Report, server: RedisServer, rate: int) -> None:
    server.flush()
    lates: list[int] = []

    async def handle(batch: list[penstock.Message]) -> None:
        now = engine.clock.now()
        lates.extend(now - message.due for message in batch)

    chance = random.Random(1)
    async with penstock.open(server.url, routes={"default": handle}, worker=True) as engine:
        for _ in range(SECONDS):
            await engine.schedule_many(
                {"payload": 1, "delay": 2 + chance.random()} for _ in range(rate)
            )
            await asyncio.sleep(1)
        await asyncio.sleep(3.5)
    _add_lateness(report, f"{rate:,}/s coming due", lates, rate * SECONDS)


def _burst(report: Report, server: RedisServer, workers: int) -> None:
    """All due in one instant, for so many worker processes."""
    server.flush()
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.worker", server.url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(workers)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    uvloop.run(_put_burst(server.url))
    lates: list[int] = []
    for process in processes:
        lates += json.loads(process.communicate()[0])
    _add_lateness(report, f"burst of {BURST:,}, {workers} worker(s)", lates, BURST)
    report.add(f"drained, {workers} worker(s)", BURST / max(lates) * 1000, "messages/s")


async def _put_burst(url: str) -> None:
    """Put them all, due together, and wait until they are gone."""
    async with penstock.open(url) as engine:
        at = engine.clock.now() + 8_000
        moment = format_moment(at)
        asked = [penstock.draft(1, at=moment) for _ in range(BURST)]
        await engine.schedule_many(asked)
        if engine.clock.now() >= at:
            raise RuntimeError("this machine is too slow to put the burst in time")
        while True:
            await asyncio.sleep(1)
            stats = await engine.stats()
            if not any(route.scheduled or route.leased for route in stats.routes.values()):
                return


def _add_lateness(report: Report, what: str, lates: list[int], number: int) -> None:
    if len(lates) < number:
        raise RuntimeError(f"{len(lates)} of {number} messages came")
    lates.sort()
    for name, share in (("p50", 0.5), ("p99", 0.99), ("max", 1.0)):
        late = lates[int(share * (len(lates) - 1))]
        report.add(f"{what}: {name}", late, "ms")
    report.add(f"{what}: early", sum(late < 0 for late in lates), "messages", aim="0")
