"""1,000,000 pending against 10,000: cost of a message, memory of the server, time to start."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from pathlib import Path

import psutil
import uvloop

import penstock
from bench import pending_large
from bench.report import Report
from bench.run_http import ready
from bench.sqlite_limits import bare, executemany, folder
from bench.workload import HOUR, drafts, messages

FEW = 10_000
MANY = 1_000_000
MEASURED = 50_000


async def _cost(url: str) -> float:
    """Microseconds a message through put, claim, no-op sink and settle, with others pending."""
    done = 0
    finished = asyncio.Event()

    async def nothing(batch: list[penstock.Message]) -> None:
        nonlocal done
        done += len(batch)
        if done >= MEASURED:
            finished.set()

    async with penstock.open(url, routes={"default": nothing}, worker=True) as engine:
        asked = drafts(MEASURED, delay=0)
        start = time.perf_counter()
        await engine.schedule_many(asked)
        await finished.wait()
        return (time.perf_counter() - start) / MEASURED * 1e6


def _start(at: Path) -> tuple[float, int]:
    """Seconds until the server answers, and its resident memory then and after some puts."""
    begun = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.servers", "worker", str(at)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        asyncio.run(ready(port))
        took = time.perf_counter() - begun
        time.sleep(3)
        return took, psutil.Process(process.pid).memory_info().rss
    finally:
        process.terminate()
        process.wait()


def main(*words: str) -> None:
    if words:
        pending_large.main(*words)
        return
    report = Report("pending", "1,000,000 pending messages against 10,000, SQLite file, FULL")
    costs: dict[int, float] = {}
    starts: dict[int, tuple[float, int]] = {}
    with folder() as at:
        for number in (0, FEW, MANY):
            here = at / str(number)
            here.mkdir()
            connection = bare(here / "bench.db")
            if number:
                executemany(connection, messages(number, ahead=24 * HOUR))
            connection.close()
            starts[number] = min(_start(here) for _ in range(3))
            costs[number] = min(uvloop.run(_cost(f"sqlite:///{here}/bench.db")) for _ in range(2))
            print(f"  {number:,} pending measured", flush=True)
    report.add("a message with 10,000 pending", costs[FEW], "µs")
    report.add(
        "a message with 1,000,000 pending",
        costs[MANY],
        "µs",
        baseline=costs[FEW],
        against="10,000 pending",
        aim="<= 1.3 x",
    )
    report.add("start, empty", starts[0][0], "s")
    report.add(
        "start with 1,000,000 pending",
        starts[MANY][0],
        "s",
        baseline=starts[0][0],
        against="empty",
        aim="<= 2 x",
    )
    report.add("server RSS, empty", starts[0][1] / 1e6, "MB")
    report.add("server RSS with 1,000,000 pending", starts[MANY][1] / 1e6, "MB", aim="<= 200")
    report.finish()
