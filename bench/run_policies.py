"""Decisions by three caps, quiet hours and a pace, and what they cost the whole path."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
from limits.storage import MemoryStorage, RedisStorage
from redis.asyncio import Redis

import penstock
from bench.policy_limits import bare_redis, bare_sqlite, one_by_one
from bench.report import Report
from bench.sqlite_limits import folder
from penstock.model.decision import Conclusion, End, Question
from penstock.model.draft import Draft
from penstock.model.message import Labels
from penstock.model.policy import Policy, policy_from
from penstock.model.verdict import Verdict
from penstock.ports.policies import PolicyStore
from penstock.sdk.asked import draft
from penstock.settings import given
from penstock.wiring import open_store
from systems.servers.redis import RedisServer

PEOPLE = 20_000
DECISIONS = {1: 1_500, 100: 20_000, 500: 40_000}
"""Batch → decisions measured."""
ONE_BY_ONE = 2_000
DRAINED = 60_000
"""Messages of a backlog, each to somebody else."""
HELD = 7_000
"""Messages that a pace holds back meanwhile: far more than it lets go."""
ROUNDS = 2
BESIDE = 240_000
"""A backlog for some seconds, during which a paced route beside it …"""
SLICE = 0.25
SLICES = (True, False, False, True) * 6
"""… is paused and goes on, in turn and for so many seconds each."""
PAIRS = 5
"""Drains that are compared, each with the one beside it: a machine that others share is faster and
slower by the second, so the pair in the middle says more than the best of either."""
CAPPED = 40_000
"""Messages of one key that a cap lets through one by one."""
OTHERS = 2_000
OTHERS_SECONDS = 12.0
"""Messages to others on the same route meanwhile, over several places of the cap."""
HOLD = 630_000
LABELS = Labels(channel="push", campaign="spring", class_="promotional")


def policies() -> dict[str, Policy]:
    """None of them refuses: every decision reserves everywhere."""
    later = datetime.now(UTC) + timedelta(hours=6)
    quiet = {"from": f"{later:%H}:00", "to": f"{later:%H}:30", "zone": "UTC"}
    written: dict[str, dict[str, object]] = {
        "daily": {"kind": "cap", "scope": ["key"], "limit": 100, "window": "24h"},
        "hourly": {"kind": "cap", "scope": ["key", "channel"], "limit": 50, "window": "1h"},
        "campaign": {"kind": "cap", "scope": ["campaign"], "limit": 10**9, "window": "24h"},
        "nights": {"kind": "quiet", **quiet},
        "provider": {"kind": "pace", "rate": "100000/s", "burst": 1_000_000},
    }
    return {name: policy_from(policy) for name, policy in written.items()}


def main() -> None:
    report = Report(
        "policies", "3 caps, quiet hours and a pace: SQLite file FULL, Redis AOF everysec"
    )
    with folder() as at, RedisServer(aof=True) as server:
        stores = {"SQLite": f"sqlite:///{at}/p.db", "Redis": server.url}
        _alone(report, server)
        for name, url in stores.items():
            for batch in DECISIONS:
                bare = max(_bare(at, server, name, batch) for _ in range(ROUNDS))
                ours = max(uvloop.run(_decisions(url, batch)) for _ in range(ROUNDS))
                report.add(f"bare reads and writes, {name}, batch {batch}", bare, "decisions/s")
                report.add(
                    f"decide, {name}, batch {batch}",
                    ours,
                    "decisions/s",
                    baseline=bare,
                    against="bare reads and writes",
                    aim=">= 40,000/s" if batch == 500 else "",
                )
        for name, url in stores.items():
            _path(report, name, url, server)
            _beside(report, name, url, server)
            _behind(report, name, url, server)
    report.finish()


def _alone(report: Report, server: RedisServer) -> None:
    keys = [f"user{n}" for n in range(ONE_BY_ONE)]
    report.add("PyPI limits in memory, one by one", one_by_one(MemoryStorage(), keys), "messages/s")
    on_redis = one_by_one(RedisStorage(server.url), keys)
    report.add("PyPI limits on Redis, one by one", on_redis, "messages/s")


def _bare(at: Path, server: RedisServer, name: str, batch: int) -> float:
    keys = [f"user{n % PEOPLE}" for n in range(DECISIONS[batch])]
    batches = [keys[i : i + batch] for i in range(0, len(keys), batch)]
    if name == "Redis":
        return uvloop.run(_bare_redis(server, batches))
    uvloop.run(_make(f"sqlite:///{at}/bare.db"))
    connection = sqlite3.connect(at / "bare.db", isolation_level=None)
    try:
        return bare_sqlite(connection, batches)
    finally:
        connection.close()


async def _bare_redis(server: RedisServer, batches: Sequence[Sequence[str]]) -> float:
    async with Redis(port=server.port) as client:
        return await bare_redis(client, batches)


async def _make(url: str) -> None:
    async with penstock.open(url):
        pass


async def _decisions(url: str, batch: int) -> float:
    """Only deciding is timed; what was allowed is counted before the next one."""
    store = await open_store(given(store=url))
    kept = store.policies
    assert kept is not None
    for name, policy in policies().items():
        await kept.put_policy(name, policy)
    number, took = DECISIONS[batch], 0.0
    for first in range(0, number, batch):
        now = store.clock.now()
        asked = [
            Question(id=f"{now}-{n}", key=f"user{n % PEOPLE}", due=now, labels=LABELS)
            for n in range(first, first + batch)
        ]
        took += await _timed(kept, asked, now)
    await store.close()
    return number / took


async def _timed(kept: PolicyStore, asked: list[Question], now: int) -> float:
    start = time.perf_counter()
    decisions = await kept.decide(asked, now, HOLD)
    took = time.perf_counter() - start
    assert all(decision.verdict is Verdict.ALLOW for decision in decisions)
    await kept.conclude([Conclusion(question, End.COMMIT) for question in asked], now)
    return took


def _path(report: Report, name: str, url: str, server: RedisServer) -> None:
    """A due backlog through claim, decide, no-op sink and settle; with policies and without."""
    pairs = []
    for turn in range(PAIRS):
        off = uvloop.run(_drain(_fresh(url, server, f"off{turn}"), {}, DRAINED))
        on = uvloop.run(_drain(_fresh(url, server, f"on{turn}"), policies(), DRAINED))
        pairs.append((off, on))
    off, on = _middle(pairs)
    report.add(f"whole path without policies, {name}", off, "messages/s")
    report.add(
        f"whole path with policies, {name}",
        on,
        "messages/s",
        baseline=off,
        against="without policies",
        aim=">= 0.5 x",
    )


def _beside(report: Report, name: str, url: str, server: RedisServer) -> None:
    """An unpaced route, alone and beside one with a backlog that a pace holds back."""
    alone, beside = uvloop.run(_in_turn(_fresh(url, server, "beside")))
    report.add(f"unpaced route alone, {name}", alone, "messages/s")
    report.add(
        f"unpaced route beside a paced one, {name}",
        beside,
        "messages/s",
        baseline=alone,
        against="alone",
        aim=">= 0.9 x",
    )


def _behind(report: Report, name: str, url: str, server: RedisServer) -> None:
    """Other recipients of a route, alone and beside one with a backlog behind a cap."""
    alone = uvloop.run(_lateness(_fresh(url, server, "alone"), 0))
    beside = uvloop.run(_lateness(_fresh(url, server, "behind"), CAPPED))
    for share, without, late in zip(("p50", "p99"), alone, beside, strict=True):
        report.add(f"other recipients late, {share}, {name}", without, "ms")
        report.add(
            f"the same beside {CAPPED:,} of one key behind 1 per 3 s, {share}, {name}",
            late,
            "ms",
            baseline=without,
            against="without them",
            aim="<= 10 ms more" if share == "p99" else "",
        )


async def _lateness(url: str, capped: int) -> tuple[float, float]:
    """p50 and p99 in ms of messages to different recipients, so many of one key being held."""
    lates: list[float] = []
    finished = asyncio.Event()

    async def note(batch: list[penstock.Message]) -> None:
        now = time.time() * 1000
        lates.extend(now - message.due for message in batch if message.key != "capped")
        if len(lates) >= OTHERS:
            finished.set()

    cap = {"kind": "cap", "scope": ["key"], "limit": 1, "window": "3s"}
    async with penstock.open(url, routes={"default": note}, worker=True) as engine:
        await engine.put_policy("slow", policy_from(cap))
        held = [draft({"n": n}, key="capped", delay=0) for n in range(capped)]
        await engine.schedule_many(held)
        overdue = capped
        while overdue:  # until each has been decided about once
            await asyncio.sleep(SLICE)
            overdue = (await engine.stats()).routes["default"].overdue
        for n in range(OTHERS):
            await engine.schedule({"n": n}, key=f"user{n}", delay=0.1)
            await asyncio.sleep(OTHERS_SECONDS / OTHERS)
        await finished.wait()
    lates.sort()
    return lates[len(lates) // 2], lates[len(lates) * 99 // 100]


async def _in_turn(url: str) -> tuple[float, float]:
    """Messages a second of one worker while the paced route is paused, and while it is not."""
    done = 0
    begun = asyncio.Event()

    async def nothing(batch: list[penstock.Message]) -> None:
        nonlocal done
        done += len(batch)
        begun.set()

    async def slowly(batch: list[penstock.Message]) -> None:
        """What a pace lets through."""

    routes = {"default": nothing, "slow": slowly}
    async with penstock.open(url, routes=routes) as engine:
        await engine.put_policy("slow", policy_from(_SLOW))
        await engine.schedule_many(_drafts(HELD, "slow"))
        for _ in range(BESIDE // DRAINED):
            await engine.schedule_many(_drafts(DRAINED, "default"))
    came, took = {True: 0, False: 0}, {True: 0.0, False: 0.0}
    async with penstock.open(url, routes=routes, worker=True) as engine:
        await begun.wait()
        for paused in SLICES:
            await (engine.pause if paused else engine.resume)("slow")
            before, start = done, time.perf_counter()
            await asyncio.sleep(SLICE)
            if done >= BESIDE:  # there was nothing left to do for some of it
                break
            came[paused] += done - before
            took[paused] += time.perf_counter() - start
    return came[True] / took[True], came[False] / took[False]


def _middle(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    """The pair whose ratio is the median."""
    return sorted(pairs, key=lambda pair: pair[1] / pair[0])[len(pairs) // 2]


_SLOW: dict[str, object] = {
    "kind": "pace",
    "rate": "50/s",
    "burst": 10,
    "applies_to": {"route": ["slow"]},
}


def _fresh(url: str, server: RedisServer, name: str) -> str:
    if urlsplit(url).scheme == "redis":
        server.flush()
        return url
    return url.replace("p.db", f"{name}.db")


def _drafts(number: int, route: str) -> list[Draft]:
    labels = {"channel": "push", "campaign": "spring", "class": "promotional"}
    return [
        draft({"n": n}, key=f"user{n}", delay=0, route=route, labels=labels) for n in range(number)
    ]


async def _drain(url: str, rules: dict[str, Policy], number: int) -> float:
    """Messages a second, of so many; from the first batch on, because starting is not what it
    is about."""
    done = first = 0
    start = 0.0
    finished = asyncio.Event()

    async def nothing(batch: list[penstock.Message]) -> None:
        nonlocal done, first, start
        done += len(batch)
        if not first:
            first, start = done, time.perf_counter()
        if done >= number:
            finished.set()

    routes = {"default": nothing}
    async with penstock.open(url, routes=routes) as engine:
        for name, policy in rules.items():
            await engine.put_policy(name, policy)
        await engine.schedule_many(_drafts(number, "default"))
    async with penstock.open(url, routes=routes, worker=True):
        await finished.wait()
        took = time.perf_counter() - start
    return (number - first) / took
