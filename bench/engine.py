"""The engine on a store that is a server: a drained backlog, lateness, a burst."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import sys
import time

import uvloop

import penstock
from bench.report import Report
from bench.workload import drafts
from penstock.model.times import format_moment

SECONDS = 6


async def drain(url: str, number: int) -> float:
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


async def lateness(report: Report, url: str, rate: int) -> None:
    """So many a second coming due, each put two to three seconds before."""
    lates: list[int] = []

    async def handle(batch: list[penstock.Message]) -> None:
        now = engine.clock.now()
        lates.extend(now - message.due for message in batch)

    chance = random.Random(1)
    async with penstock.open(url, routes={"default": handle}, worker=True) as engine:
        for _ in range(SECONDS):
            await engine.schedule_many(
                {"payload": 1, "delay": 2 + chance.random()} for _ in range(rate)
            )
            await asyncio.sleep(1)
        await asyncio.sleep(3.5)
    _add_lateness(report, f"{rate:,}/s coming due", lates, rate * SECONDS)


def burst(report: Report, url: str, number: int, workers: int) -> None:
    """All due in one instant, for so many worker processes."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.worker", url],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(workers)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    uvloop.run(_put_burst(url, number))
    lates: list[int] = []
    for process in processes:
        lates += json.loads(process.communicate()[0])
    _add_lateness(report, f"burst of {number:,}, {workers} worker(s)", lates, number)
    report.add(f"drained, {workers} worker(s)", number / max(lates) * 1000, "messages/s")


async def _put_burst(url: str, number: int) -> None:
    """Put them all, due together, and wait until they are gone."""
    async with penstock.open(url) as engine:
        at = engine.clock.now() + 8_000
        moment = format_moment(at)
        asked = [penstock.draft(1, at=moment) for _ in range(number)]
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
