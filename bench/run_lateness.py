"""Lateness with 1,000 messages a second coming due: released - due, by the store's clock."""

from __future__ import annotations

import asyncio
import random

import uvloop

import penstock
from bench.report import Report
from bench.sqlite_limits import folder

RATE = 1_000
SECONDS = 20


async def _measure(url: str) -> list[int]:
    """Milliseconds each message was late when its handler was called."""
    lates: list[int] = []

    async def handle(batch: list[penstock.Message]) -> None:
        now = engine.clock.now()
        lates.extend(now - message.due for message in batch)

    chance = random.Random(1)
    async with penstock.open(url, routes={"default": handle}, worker=True) as engine:
        for second in range(SECONDS):
            # Put a second's worth, due 2 to 3 s from now, each at a moment of its own.
            await engine.schedule_many(
                {"payload": {"n": second}, "delay": 2 + chance.random()} for _ in range(RATE)
            )
            await asyncio.sleep(1)
        await asyncio.sleep(3.5)
    return lates


def main() -> None:
    report = Report("lateness", f"{RATE:,} messages a second coming due, SQLite file, FULL")
    with folder() as at:
        lates = sorted(uvloop.run(_measure(f"sqlite:///{at}/bench.db")))
    if len(lates) != RATE * SECONDS:
        raise RuntimeError(f"{len(lates)} of {RATE * SECONDS} messages came")
    report.add("early", sum(late < 0 for late in lates), "messages", aim="0")
    for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)):
        aim = "<= 5" if name == "p99" else ""
        report.add(name, lates[int(share * (len(lates) - 1))], "ms", aim=aim)
    report.add("max", lates[-1], "ms")
    report.finish()
