"""Recurring rules: how fast they are planted, how late occurrences are, what idle rules cost."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import uvloop

from bench.report import Report
from bench.sqlite_limits import folder
from penstock.flow.recur import Planter
from penstock.model.message import NewMessage
from penstock.model.recurrence import change, rule_from
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
"""Seconds between their moments. Occurrences are planted a second ahead: at a period of one, while
those before them are sent."""
IDLE = 1_000_000
IDLE_TIERED = 50_000
"""DynamoDB Local takes some 2,000 rules a second."""
STARTS = 3
BATCH = 500


@dataclass(frozen=True)
class Lateness:
    """How many were sent, and how late they were claimed, in ms."""

    count: int
    p50: float
    p99: float


@asynccontextmanager
async def _open(url: str) -> AsyncIterator[Parts]:
    async with open_parts(_settings(url)) as parts:
        yield parts


def _settings(url: str) -> Settings:
    return given(store=url, routes={"default": {"sink": "log://"}})


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


async def _lateness(url: str, period: int, *, by_rules: bool) -> Lateness:
    """Of messages due at the same seconds: planted by rules, or put as ordinary ones."""
    async with _open(url) as parts, open_worker(parts) as worker:
        working = asyncio.create_task(worker.run())
        now = parts.store.clock.now()
        if by_rules:
            await _put_rules(parts, TOGETHER, {"every": f"{period}s", "misfire": "all"}, now)
        else:
            first = now - now % (period * 1_000)
            for second in range(period, SECONDS + period, period):
                due = [_ordinary(n, first + second * 1_000) for n in range(TOGETHER)]
                await parts.store.messages.put(due, now)
        await asyncio.sleep(SECONDS)
        worker.stop()
        await working
        late = parts.observer.lateness["default"]
        return Lateness(late.count, late.quantile(0.5) or 0, late.quantile(0.99) or 0)


def _ordinary(number: int, due: int) -> NewMessage:
    name = f"m{number}-{due}"
    return NewMessage(id=name, route="default", key=name, payload=b'{"n":1}', due=due)


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
        fields: dict[str, object] = {"cron": "0 9 1 1 *", "payload": {"n": 1}}
        await _put_rules(parts, number, fields, parts.store.clock.now())


def main() -> None:
    report = Report("recurring", "recurring rules: planting, lateness, idle rules")
    with folder() as at, ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        for name, url in (("SQLite", f"sqlite:///{at}/busy.db"), ("Redis", redis.url)):
            planted = uvloop.run(_planting(url))
            report.add(f"planting, {name}", planted, "occurrences/s", aim=">= 10,000")
            _clear(url, redis)
            for period in PERIODS:
                plain = uvloop.run(_lateness(url, period, by_rules=False))
                _clear(url, redis)
                found = uvloop.run(_lateness(url, period, by_rules=True))
                _clear(url, redis)
                _add_lateness(report, name, period, found, plain)
        postgres, dynamodb = PostgresServer(), dynamo_server(at / "dynamodb")
        for server in (postgres, dynamodb):
            server.start()
            stack.callback(server.stop)
        idle = (
            ("SQLite", f"sqlite:///{at}/idle.db", IDLE),
            ("Redis", redis.url, IDLE),
            ("PostgreSQL", postgres.url, IDLE),
            ("DynamoDB Local", dynamodb.url("rules", redis.url), IDLE_TIERED),
        )
        for name, url, number in idle:
            if name == "DynamoDB Local":
                redis.flush()
            uvloop.run(init_store(_settings(url)))
            _add_idle(report, name, url, number)
    report.finish()


def _add_lateness(report: Report, name: str, period: int, found: Lateness, plain: Lateness) -> None:
    of = f"{TOGETHER:,} rules every {period} s, {name}"
    report.add(f"{of}: sent", found.count, "messages")
    for what, late, usual in (("p50", found.p50, plain.p50), ("p99", found.p99, plain.p99)):
        report.add(f"{of}: late {what}", late, "ms", baseline=usual, against="ordinary messages")


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
