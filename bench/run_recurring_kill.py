"""kill -9 of a worker every second while 1,000 rules fire each second: no moment may be missed.

Six workers share a store; one after the other is killed and started again at once. A rule's
moment is planted once, whoever planted it: its row counts as many as there were moments, and the
handler sees every one of them. What a killed worker was sending is sent again, as ever.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import uvloop

import penstock
from bench.report import Report
from bench.run_kill import worker_process
from bench.sqlite_limits import folder
from penstock.model.recurrence import occurrence_id
from penstock.model.times import format_moment, parse_moment
from penstock.stores.dynamodb import init_store
from systems.servers.dynamodb import dynamo_server
from systems.servers.redis import RedisServer

RULES = 1_000
SECONDS = 60
WORKERS = 6
LEAD = 30
"""Seconds in which workers start, besides those that putting the rules takes."""
PATIENCE = 1_500.0
"""Seconds after the last moment in which everything must have come: DynamoDB Local writes fewer
items a second than 1,000 occurrences need, so that they come late by its backlog."""
MOST = 100
"""Repeats per kill that are aimed at, as `python -m bench kill` does."""
AT_ONCE = 50
LEASE, LONG_LEASE = 2, 10
"""Seconds. DynamoDB Local takes a second for a call when the machine is busy."""
CONFIG = """
store = "{store}"
[worker]
metrics = "off"
lease = "{lease}s"
[routes.default]
sink = "python:bench.kill_handlers:many"
max_attempts = 1000
"""


def main() -> None:
    report = Report(
        "recurring_kill", f"{RULES:,} rules a second for {SECONDS} s, a worker killed every second"
    )
    with folder() as at, ExitStack() as stack:
        redis = stack.enter_context(RedisServer(aof=True))
        _add(report, "SQLite", f"sqlite:///{at}/rules.db", at / "sqlite")
        _add(report, "Redis", redis.url, at / "redis")
        redis.flush()
        dynamodb = dynamo_server(at / "dynamodb")
        dynamodb.start()
        stack.callback(dynamodb.stop)
        tiered = dynamodb.url("rules", redis.url)
        uvloop.run(init_store(tiered))
        _add(report, "DynamoDB Local", tiered, at / "tiered", LONG_LEASE)
    report.finish()


def _add(report: Report, name: str, store: str, place: Path, lease: int = LEASE) -> None:
    place.mkdir()
    (place / "calls").touch()
    start = uvloop.run(_put(store))
    kills = _campaign(store, place, start, lease)
    planted = uvloop.run(_planted(store))
    expected = {
        occurrence_id(f"r{rule}", start + second * 1_000)
        for rule in range(RULES)
        for second in range(SECONDS)
    }
    first, again = _read(place / "calls")
    report.add(f"{name}: missed", len(expected - set(first)), "moments", aim="0")
    report.add(f"{name}: of no moment", len(set(first) - expected), "messages", aim="0")
    report.add(f"{name}: planted twice", planted - len(expected), "moments", aim="0")
    report.add(f"{name}: sent again", again / max(1, kills), "repeats per kill", aim=f"<= {MOST}")
    if not first:
        return
    late = sorted(at - parse_moment(one.partition("@")[2]) for one, at in first.items())
    report.add(f"{name}: late p50", statistics.median(late), "ms")
    report.add(f"{name}: late p99", late[int(len(late) * 0.99)], "ms")
    last = (max(first.values()) - start) / 1_000 - (SECONDS - 1)
    report.add(f"{name}: all came after the last moment by", last, "s")


async def _put(store: str) -> int:
    """Put the rules, paused at first, to see how long that takes; return their first moment."""
    async with penstock.open(store) as engine:
        began = time.time()
        await _put_all(engine, {"paused": True})
        seconds = int(time.time() + LEAD + 2 * (time.time() - began))
        start, end = seconds * 1_000, (seconds + SECONDS - 1) * 1_000
        await _put_all(engine, {"start": format_moment(start), "end": format_moment(end)})
        if time.time() > seconds:
            raise RuntimeError("the rules were put too slowly: they fire already")
    return start


async def _put_all(engine: penstock.Engine, fields: Mapping[str, Any]) -> None:
    for first in range(0, RULES, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, RULES))
        await asyncio.gather(
            *(
                engine.recurring.put(f"r{number}", every="1s", misfire="all", **fields)
                for number in numbers
            )
        )


def _campaign(store: str, place: Path, start: int, lease: int) -> int:
    """Kill a worker every second from the first moment to the last; how many were killed."""
    config = place / "penstock.toml"
    config.write_text(CONFIG.format(store=store, lease=lease))
    kills = 0
    with _fleet(config, place) as workers:
        while time.time() * 1_000 < start + SECONDS * 1_000:
            time.sleep(1)
            if time.time() * 1_000 < start:
                continue
            number = kills % WORKERS
            workers[number].kill()
            workers[number].wait()
            workers[number] = worker_process(config, place)
            kills += 1
        deadline = time.monotonic() + PATIENCE
        while len(_read(place / "calls")[0]) < RULES * SECONDS and time.monotonic() < deadline:
            time.sleep(1)
    return kills


@contextmanager
def _fleet(config: Path, place: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    workers = [worker_process(config, place) for _ in range(WORKERS)]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.kill()
            worker.wait()


async def _planted(store: str) -> int:
    """What the rows have counted."""
    total, cursor = 0, None
    async with penstock.open(store) as engine:
        while True:
            page, cursor = await engine.recurring.list(cursor=cursor, limit=500)
            total += sum(rule.planted for rule in page)
            if cursor is None:
                return total


def _read(calls: Path) -> tuple[dict[str, int], int]:
    """Message → when it was first handled, in ms; and how many were handled again."""
    lines = [line.split() for line in calls.read_text().splitlines()]
    first: dict[str, int] = {}
    for name, at in lines:
        first.setdefault(name, int(at))
    return first, len(lines) - len(Counter(name for name, _ in lines))
