"""Recurring rules: how fast they are planted, how late occurrences are, what idle rules cost."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import uvloop

from bench.report import Report
from bench.sqlite_limits import folder
from penstock.flow.recur import Planter
from penstock.model.recurrence import change, rule_from
from penstock.ports.recurring import Swap
from penstock.settings import given
from penstock.wiring import Parts, open_parts, open_worker
from systems.servers.redis import RedisServer

RULES = 20_000
"""Planted at once."""
TOGETHER = 1_000
"""Rules that fire at the same second."""
SECONDS = 10
IDLE = 1_000_000
BATCH = 500


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[Parts]:
    async with open_parts(given(store=url, routes={"default": {"sink": "log://"}})) as parts:
        yield parts


async def _put_rules(parts: Parts, number: int, fields: Mapping[str, object], at: int) -> None:
    rules = parts.store.recurring
    assert rules is not None
    rule = rule_from(fields)
    for start in range(0, number, BATCH):
        rows = [change(None, f"r{n:07}", rule, at) for n in range(start, start + BATCH)]
        assert all(await rules.swap([Swap(row.id, 0, row) for row in rows]))


async def _planting(url: str) -> float:
    """Occurrences a second: rules that are all due are planted by one worker."""
    async with _open(url) as parts:
        rules, plant = parts.store.recurring, parts.plant
        assert rules is not None
        assert plant is not None
        now = parts.store.clock.now()
        fields = {"cron": "0 9 * * mon-fri", "zone": "Europe/Berlin", "payload": {"n": 1}}
        await _put_rules(parts, RULES, fields, now - 7 * 86_400_000)
        planter = Planter(rules, parts.store, plant)
        start = time.perf_counter()
        while await planter._look() is None:  # noqa: SLF001 - one look after the other
            pass
        took = time.perf_counter() - start
        planted = parts.observer.total("planted")
        assert planted == RULES, planted
        return planted / took


async def _lateness(url: str) -> tuple[int, float, float]:
    """(arrived, p50, p99) of rules that fire at the same second, planted a period ahead."""
    async with _open(url) as parts, open_worker(parts) as worker:
        working = asyncio.create_task(worker.run())
        now = parts.store.clock.now()
        await _put_rules(parts, TOGETHER, {"every": "1s", "misfire": "all"}, now)
        await asyncio.sleep(SECONDS)
        worker.stop()
        await working
        late = parts.observer.lateness["default"]
        return late.count, late.quantile(0.5) or 0, late.quantile(0.99) or 0


async def _start(path: Path) -> None:
    """In a process of its own: open, look once, say how long it took and how large it is."""
    start = time.perf_counter()
    async with _open(f"sqlite:///{path}") as parts:
        rules, plant = parts.store.recurring, parts.plant
        assert rules is not None
        assert plant is not None
        await Planter(rules, parts.store, plant)._look()  # noqa: SLF001 - as at start
        took = time.perf_counter() - start
    print(took * 1000, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)


def _started(path: Path) -> tuple[float, float]:
    """(ms until the first look, MB)."""
    command = [sys.executable, "-m", "bench.run_recurring", str(path)]
    found = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(3)
    ]
    return min(float(one[0]) for one in found), min(float(one[1]) for one in found) / 1024


async def _fill(path: Path) -> None:
    async with _open(f"sqlite:///{path}") as parts:
        fields: dict[str, object] = {"cron": "0 9 1 1 *", "payload": {"n": 1}}
        await _put_rules(parts, IDLE, fields, parts.store.clock.now())


def main() -> None:
    report = Report("recurring", "recurring rules: planting, lateness, idle rules")
    with folder() as at:
        planted = uvloop.run(_planting(f"sqlite:///{at}/planting.db"))
        report.add("planting, SQLite", planted, "occurrences/s", aim=">= 10,000")
        count, p50, p99 = uvloop.run(_lateness(f"sqlite:///{at}/late.db"))
        report.add(f"{TOGETHER:,} rules at the same second, SQLite: sent", count, "messages")
        report.add("their lateness p50", p50, "ms")
        report.add("their lateness p99", p99, "ms")
        with RedisServer() as redis:
            planted = uvloop.run(_planting(redis.url))
            report.add("planting, Redis", planted, "occurrences/s", aim=">= 10,000")
            redis.flush()
            count, p50, p99 = uvloop.run(_lateness(redis.url))
            report.add(f"{TOGETHER:,} rules at the same second, Redis: sent", count, "messages")
            report.add("their lateness p50", p50, "ms")
            report.add("their lateness p99", p99, "ms")
        empty_ms, empty_mb = _started(at / "empty.db")
        uvloop.run(_fill(at / "idle.db"))
        ms, mb = _started(at / "idle.db")
        report.add("start with no rules", empty_ms, "ms")
        report.add(
            f"start with {IDLE:,} idle rules",
            ms,
            "ms",
            baseline=empty_ms,
            against="no rules",
            aim="<= 2 x",
        )
        report.add(
            "memory with them", mb, "MB", baseline=empty_mb, against="no rules", aim="<= 1.1 x"
        )
    report.finish()


if __name__ == "__main__":
    uvloop.run(_start(Path(sys.argv[1])))
