"""Claim → no-op sink → settle of a due backlog against a bare claim + delete of the same rows."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import uvloop

import penstock
from bench.report import Report
from bench.sqlite_limits import bare, claim_and_delete, executemany, folder, reopen
from bench.workload import drafts, messages

NUMBER = 100_000
ROUNDS = 3


async def _ours(path: Path) -> float:
    done = 0
    finished = asyncio.Event()

    async def nothing(batch: list[penstock.Message]) -> None:
        nonlocal done
        done += len(batch)
        if done >= NUMBER:
            finished.set()

    url = f"sqlite:///{path}"
    async with penstock.open(url) as engine:
        await engine.schedule_many(drafts(NUMBER, delay=0))
    start = time.perf_counter()
    async with penstock.open(url, routes={"default": nothing}, worker=True):
        await finished.wait()
    # Leaving the block settles the last batch: it counts.
    return NUMBER / (time.perf_counter() - start)


def main() -> None:
    report = Report(
        "release", "due backlog through claim, no-op sink and settle, SQLite file, FULL"
    )
    bares, ours = [], []
    with folder() as at:
        for turn in range(ROUNDS):
            connection = bare(at / f"bare{turn}.db")
            executemany(connection, messages(NUMBER, ahead=0))
            connection.close()
            connection = reopen(at / f"bare{turn}.db")  # ours too begins with a store just opened
            bares.append(claim_and_delete(connection, "default"))
            connection.close()
            ours.append(uvloop.run(_ours(at / f"ours{turn}.db")))
    report.add("bare claim + delete", max(bares), "messages/s")
    report.add(
        "claim, no-op sink, settle",
        max(ours),
        "messages/s",
        baseline=max(bares),
        against="bare claim + delete",
        aim=">= 0.4 x",
    )
    report.finish()
