"""The engine on Redis (AOF on, everysec) against bare Lua scripts writing the same bytes."""

from __future__ import annotations

import statistics
import time

import psutil
import uvloop
from redis.asyncio import Redis

import penstock
from bench.engine import burst, drain, lateness
from bench.redis_limits import Bare
from bench.report import Report
from bench.workload import drafts, messages
from systems.servers.redis import RedisServer

NUMBER = 100_000
MEMORY_SAMPLE = 100_000
SCALES = (10_000, 1_000_000, 3_000_000)
MEASURED = 20_000
SCALE_ROUNDS = 5
BURST = 100_000
ROUNDS = 2
"""Of which the better one counts, of the limits and of ours."""


def main() -> None:
    report = Report("redis", "the engine on Redis 7.0, AOF everysec, 8 partitions")
    with RedisServer(aof=True) as server:
        uvloop.run(_throughput(report, server))
    with RedisServer() as server:
        uvloop.run(_memory(report, server))
    with RedisServer("--enable-debug-command", "local") as server:
        uvloop.run(_scale(report, server))
    with RedisServer(aof=True) as server:
        for rate in (1_000, 5_000):
            server.flush()
            uvloop.run(lateness(report, server.url, rate))
        for workers in (1, 2):
            server.flush()
            burst(report, server.url, BURST, workers)
    report.finish()


async def _throughput(report: Report, server: RedisServer) -> None:
    bare_put = bare_drain = put = drained = piped = 0.0
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
        drained = max(drained, await drain(server.url, NUMBER))
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
        drained,
        "messages/s",
        baseline=bare_drain,
        against="bare scripts",
        aim=">= 0.5 x",
    )


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
        costs, cpu = await _costs_beside(server)
        cost = statistics.median(costs)
        report.add(
            f"a message with {scale:,} pending, the median of {SCALE_ROUNDS}",
            cost,
            "µs",
            baseline=base,
            against="" if base is None else f"{SCALES[0]:,} pending",
            aim="" if base is None else "<= 1.3 x",
        )
        base = cost if base is None else base
        report.add(f"the slowest of them, {scale:,} pending", max(costs), "µs")
        report.add(f"CPU of Redis a message, {scale:,} pending", statistics.median(cpu), "µs")
    rss = psutil.Process().memory_info().rss
    report.add("RSS of this process in the end", rss / 1e6, "MB", aim="flat")


async def _costs_beside(server: RedisServer) -> tuple[list[float], list[float]]:
    """µs a message, elapsed and of Redis's CPU, once its hashes have grown.

    Redis moves a hash that doubles a few entries with every command; the partitions of a store are
    equally large, so theirs double together, and meanwhile a message costs up to twice as much.
    """
    process = psutil.Process(server.pid)
    while await _hashes_grow(server):
        await drain(server.url, MEASURED)
    elapsed, cpu = [], []
    for _ in range(SCALE_ROUNDS):
        before = sum(process.cpu_times()[:2])
        elapsed.append(1e6 / await drain(server.url, MEASURED))
        cpu.append((sum(process.cpu_times()[:2]) - before) / MEASURED * 1e6)
    return elapsed, cpu


async def _hashes_grow(server: RedisServer) -> bool:
    """Whether a hash of records has two tables: it is being moved from one to the other."""
    async with Redis(port=server.port) as client:
        tables = [
            await client.execute_command("DEBUG", "HTSTATS-KEY", key)  # type: ignore[no-untyped-call]
            async for key in client.scan_iter("*:m", count=1_000)
        ]
    return any(b"Hash table 1 stats" in bytes(text) for text in tables)
