"""Library batch put on a file against a bare executemany of the same rows."""

from __future__ import annotations

import time
from pathlib import Path

import uvloop

import penstock
from bench.report import Report
from bench.sqlite_limits import bare, executemany, folder
from bench.workload import HOUR, drafts, messages

NUMBER = 100_000
ROUNDS = 3


async def _library(path: Path) -> float:
    async with penstock.open(f"sqlite:///{path}") as engine:
        asked = drafts(NUMBER)
        start = time.perf_counter()
        outcomes = await engine.schedule_many(asked)
        rate = NUMBER / (time.perf_counter() - start)
        assert all(isinstance(outcome, penstock.Receipt) for outcome in outcomes)
        return rate


def main() -> None:
    report = Report("put", "batch put of 100-byte messages an hour ahead, SQLite file, FULL")
    bares, ours = [], []
    with folder() as at:
        for turn in range(ROUNDS):  # in turns, so that a slow moment of the machine hits both
            connection = bare(at / f"bare{turn}.db")
            bares.append(executemany(connection, messages(NUMBER)))
            connection.close()
            ours.append(uvloop.run(_library(at / f"ours{turn}.db")))
        scattered = bare(at / "scattered.db")
        random_due = executemany(scattered, messages(NUMBER, spread=HOUR))
        scattered.close()
    base = max(bares)
    report.add("bare executemany", base, "messages/s")
    report.add("bare executemany, due times scattered over an hour", random_due, "messages/s")
    report.add(
        "library schedule_many",
        max(ours),
        "messages/s",
        baseline=base,
        against="bare executemany",
        aim=">= 0.5 x",
    )
    report.finish()
