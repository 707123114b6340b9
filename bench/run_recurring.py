"""Recurring rules: how fast they are planted, how late occurrences are, what idle rules cost.

`python -m bench recurring --only lateness --on SQLite` measures that part on that store, and keeps
nothing.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import msgspec
import psutil
import uvloop

from bench.report import Report
from bench.sqlite_limits import folder
from penstock.cli.process import spare_the_collector
from penstock.flow.recur import Planter
from penstock.model.lateness import Lateness
from penstock.model.recurrence import SECOND, Rule, RuleRow, change, occurrence, rule_from
from penstock.ports.recurring import Swap
from penstock.settings import Settings, given
from penstock.wiring import Parts, init_store, open_parts, open_worker
from systems.servers.dynamodb import dynamo_server
from systems.servers.postgres import PostgresServer
from systems.servers.redis import RedisServer

RULES = 20_000
"""Planted at once."""
TOGETHER = 1_000
"""Rules that fire at the same second."""
SECONDS = 10
PERIODS = (2, 1)
"""Seconds between their moments. At a period of one, there is always something to plant."""
AFTER_MS = 200
"""A measurement begins and ends so long after a moment: the first one is a period away."""
IDLE = {"SQLite": 1_000_000, "Redis": 1_000_000, "PostgreSQL": 1_000_000, "DynamoDB Local": 50_000}
"""Rules that sleep, by store. DynamoDB Local takes some 2,000 rules a second."""
PARTS = ("planting", "lateness", "idle")
STARTS = 3
BATCH = 500


class Lates(Lateness):
    """Every value, where the buckets of the histogram are several milliseconds wide."""

    values: list[int] = msgspec.field(default_factory=list)

    def put(self, late: int, number: int) -> None:
        Lateness.put(self, late, number)
        self.values += [late] * number

    def at(self, share: float) -> int:
        """The value that this share of all does not exceed."""
        return sorted(self.values)[int(share * (self.count - 1))]


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[Parts]:
    async with open_parts(_settings(url)) as parts:
        yield parts


def _settings(url: str) -> Settings:
    return given(store=url, routes={"default": {"sink": "log://"}})


def _rows(first: int, end: int, rule: Rule, at: int) -> list[RuleRow]:
    return [change(None, f"r{n:07}", rule, at) for n in range(first, end)]


async def _put_rules(parts: Parts, rows: Sequence[RuleRow]) -> None:
    rules = parts.store.recurring
    assert rules is not None
    for start in range(0, len(rows), BATCH):
        batch = rows[start : start + BATCH]
        assert all(await rules.swap([Swap(row.id, 0, row) for row in batch]))


async def _planting(url: str) -> float:
    """Occurrences a second: rules that are all due are planted by one worker."""
    async with _open(url) as parts:
        rules, plant = parts.store.recurring, parts.plant
        assert rules is not None
        assert plant is not None
        now = parts.store.clock.now()
        fields = {"cron": "0 9 * * mon-fri", "zone": "Europe/Berlin", "payload": {"n": 1}}
        await _put_rules(parts, _rows(0, RULES, rule_from(fields), now - 7 * 86_400_000))
        planter = Planter(rules, parts.store, plant)
        start = time.perf_counter()
        while await planter._look() is None:  # noqa: SLF001 - one look after the other
            pass
        took = time.perf_counter() - start
        planted = parts.observer.total("planted")
        assert planted == RULES, planted
        return planted / took


async def _lateness(url: str, period: int, *, by_rules: bool) -> Lates:
    """Of the same messages, due at the same seconds: planted by rules, or put beforehand."""
    rule = rule_from({"every": f"{period}s", "payload": {"n": 1}, "misfire": "all"})
    async with _open(url) as parts, open_worker(parts) as worker:
        lates = parts.observer.lateness["default"] = Lates()
        spare_the_collector()  # as every worker's process does
        working = asyncio.create_task(worker.run())
        clock, step = parts.store.clock, period * SECOND
        begin = (clock.now() // step + 1) * step
        await clock.sleep_until(begin + AFTER_MS)
        rows = _rows(0, TOGETHER, rule, clock.now())
        if by_rules:
            await _put_rules(parts, rows)
        else:
            for moment in range(begin + step, begin + SECONDS * SECOND + 1, step):
                due = [occurrence(row, moment) for row in rows]
                await parts.store.messages.put(due, clock.now())
        await clock.sleep_until(begin + SECONDS * SECOND + AFTER_MS)
        worker.stop()
        await working
        return lates


async def _start(url: str) -> None:
    """In a process of its own: open, look once, say how long it took and how large it is."""
    start = time.perf_counter()
    async with _open(url) as parts:
        rules, plant = parts.store.recurring, parts.plant
        assert rules is not None
        assert plant is not None
        await Planter(rules, parts.store, plant)._look()  # noqa: SLF001 - as at start
        took = time.perf_counter() - start
        print(took * 1000, psutil.Process().memory_info().rss)


def _started(url: str) -> tuple[float, float]:
    """(ms until the first look, MB)."""
    command = [sys.executable, "-m", "bench.run_recurring", url]
    found = [
        subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        for _ in range(STARTS)
    ]
    return min(float(one[0]) for one in found), min(float(one[1]) for one in found) / 1e6


async def _fill(url: str, number: int) -> None:
    async with _open(url) as parts:
        rule, now = rule_from({"cron": "0 9 1 1 *", "payload": {"n": 1}}), parts.store.clock.now()
        for first in range(0, number, BATCH):
            await _put_rules(parts, _rows(first, first + BATCH, rule, now))


def main(*words: str) -> None:
    asked = ArgumentParser(prog="python -m bench recurring", description=__doc__)
    asked.add_argument("--only", action="append", choices=PARTS, help="a part; nothing is kept")
    asked.add_argument("--on", action="append", choices=IDLE, help="a store; nothing is kept")
    chosen = asked.parse_args(words)
    parts, stores = chosen.only or PARTS, chosen.on or IDLE
    report = Report("recurring", "recurring rules: planting, lateness, idle rules")
    with folder() as at, ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        for name, url in (("SQLite", f"sqlite:///{at}/busy.db"), ("Redis", redis.url)):
            if "planting" in parts and name in stores:
                planted = uvloop.run(_planting(url))
                report.add(f"planting, {name}", planted, "occurrences/s", aim=">= 10,000")
                _clear(url, redis)
            for period in PERIODS if "lateness" in parts and name in stores else ():
                plain = uvloop.run(_lateness(url, period, by_rules=False))
                _clear(url, redis)
                found = uvloop.run(_lateness(url, period, by_rules=True))
                _clear(url, redis)
                _add_lateness(report, name, period, found, plain)
        for name, number in IDLE.items():
            if "idle" in parts and name in stores:
                redis.flush()
                url = _idle_store(name, at, redis, stack)
                uvloop.run(init_store(_settings(url)))
                _add_idle(report, name, url, number)
    report.finish(keep=not words)


def _idle_store(name: str, at: Path, redis: RedisServer, stack: ExitStack) -> str:
    """The URL of an empty store, whose server is stopped with the stack."""
    if name == "SQLite":
        return f"sqlite:///{at}/idle.db"
    if name == "Redis":
        return redis.url
    if name == "PostgreSQL":
        postgres = PostgresServer()
        postgres.start()
        stack.callback(postgres.stop)
        return postgres.url
    dynamodb = dynamo_server(at / "dynamodb")
    dynamodb.start()
    stack.callback(dynamodb.stop)
    return dynamodb.url("rules", redis.url)


def _add_lateness(report: Report, name: str, period: int, found: Lates, plain: Lates) -> None:
    of = f"{TOGETHER:,} rules every {period} s, {name}"
    report.add(
        f"{of}: sent", found.count, "messages", baseline=plain.count, against="the same, put before"
    )
    for what, share in (("p50", 0.5), ("p99", 0.99)):
        late, usual = found.at(share), plain.at(share)
        report.add(f"{of}: late {what}", late, "ms", baseline=usual, against="the same, put before")


def _add_idle(report: Report, name: str, url: str, number: int) -> None:
    empty_ms, empty_mb = _started(url)
    uvloop.run(_fill(url, number))
    ms, mb = _started(url)
    of = f"{number:,} idle rules, {name}"
    report.add(f"start with {of}", ms, "ms", baseline=empty_ms, against="no rules", aim="<= 2 x")
    report.add(f"memory with {of}", mb, "MB", baseline=empty_mb, against="no rules", aim="<= 1.1 x")


def _clear(url: str, redis: RedisServer) -> None:
    redis.flush()
    for file in Path(url.removeprefix("sqlite:///")).parent.glob("busy.db*"):
        file.unlink()


if __name__ == "__main__":
    uvloop.run(_start(sys.argv[1]))
