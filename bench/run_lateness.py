"""Lateness with 1,000 messages a second coming due: released - due, by the store's clock."""

from __future__ import annotations

import asyncio
import random

import uvloop

import penstock
from bench.report import Report
from bench.sqlite_limits import folder

RATE = 1_000
SECONDS = 12


async def _measure(url: str, *, putting: bool) -> list[int]:
    """Milliseconds each message was late when its handler was called.

    All are put before the first is due; or, `putting`, ten at a time while others come due.
    """
    lates: list[int] = []

    async def handle(batch: list[penstock.Message]) -> None:
        now = engine.clock.now()
        lates.extend(now - message.due for message in batch)

    async with penstock.open(url, routes={"default": handle}, worker=True) as engine:
        if putting:
            await _put_steadily(engine)
        else:
            await _put_ahead(engine)
        while len(lates) < RATE * SECONDS:  # noqa: ASYNC110 - the handlers count
            await asyncio.sleep(0.2)
    return lates


async def _put_ahead(engine: penstock.Engine) -> None:
    chance = random.Random(1)
    await engine.schedule_many(
        {"payload": 1, "delay": 4 + chance.random() * SECONDS} for _ in range(RATE * SECONDS)
    )


async def _put_steadily(engine: penstock.Engine) -> None:
    chance = random.Random(1)
    start = engine.clock.now()
    for group in range(RATE * SECONDS // 10):
        await engine.clock.sleep_until(start + group * 10_000 // RATE)
        await engine.schedule_many({"payload": 1, "delay": 2 + chance.random()} for _ in range(10))


def main() -> None:
    report = Report("lateness", f"{RATE:,} messages a second coming due, SQLite file, FULL")
    for putting, what in ((False, "put before"), (True, "while as many are put")):
        with folder() as at:
            url = f"sqlite:///{at}/bench.db"
            lates = sorted(uvloop.run(_measure(url, putting=putting)))
        report.add(f"{what}: early", sum(late < 0 for late in lates), "messages", aim="0")
        for name, share in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999), ("max", 1.0)):
            aim = "<= 5" if name == "p99" else ""
            report.add(f"{what}: {name}", lates[int(share * (len(lates) - 1))], "ms", aim=aim)
    report.finish()
