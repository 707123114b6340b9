"""`python -m bench pending --large`: 10,000,000 pending messages on SQLite and PostgreSQL.

What a message put, claimed and settled beside them costs, against as many thousand times fewer;
how long an opening takes, what they take on disk, and what it costs to forget what was settled.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import uvloop

import penstock
from bench.report import Report, console
from bench.sqlite_limits import bare, executemany, folder
from bench.workload import HOUR, drafts, messages
from penstock.settings import given
from penstock.wiring import open_store
from systems.servers.postgres import PostgresServer

MANY = 10_000_000
SHARE = 1_000
CHUNK = 50_000
MEASURED = 50_000
ROUNDS = 5
PURGED = 10_000
"""Forgotten in a call."""


@dataclass(frozen=True)
class Large:
    """A store with that many pending."""

    url: str
    file: Path | None = None
    server: PostgresServer | None = None

    def fill(self, number: int) -> None:
        """SQLite: rows as ours are, by executemany; PostgreSQL: through the library."""
        if self.file is not None:
            connection = bare(self.file)
            for first in range(0, number, CHUNK):
                executemany(connection, messages(min(CHUNK, number - first), ahead=24 * HOUR))
            connection.close()
        else:
            uvloop.run(_fill(self.url, number))

    def disk(self) -> float:
        if self.file is not None:
            return float(sum(file.stat().st_size for file in _files(self.file)))
        assert self.server is not None
        return float(self.server.sql("SELECT pg_database_size(current_database())"))


def main(*words: str) -> None:
    asked = ArgumentParser(prog="python -m bench pending", description=__doc__)
    asked.add_argument("--large", action="store_true", required=True)
    asked.add_argument("--number", type=int, default=MANY)
    asked.add_argument("--store", choices=("sqlite", "postgresql"), action="append", default=[])
    choice = asked.parse_args(words)
    report = Report("pending-large", f"{choice.number:,} pending messages")
    for name in choice.store or ("sqlite", "postgresql"):
        _measure(report, name, choice.number)
    report.finish(keep=choice.number == MANY and not choice.store)


def _measure(report: Report, name: str, number: int) -> None:
    costs: dict[int, float] = {}
    for pending in (number // SHARE, number):
        with ExitStack() as stack:
            large = _empty(stack, name)
            before = large.disk()
            start = time.perf_counter()
            large.fill(pending)
            console.print(f"  {name}: {pending:,} put in {time.perf_counter() - start:,.0f} s")
            disk = large.disk() - before
            opening = statistics.median(uvloop.run(_opening(large.url)) for _ in range(ROUNDS))
            costs[pending] = uvloop.run(_cost(large.url))
            forgotten, took = uvloop.run(_purge(large.url))
            what = f"{name}, {pending:,} pending"
            many = pending == number
            report.add(
                f"{what}: a message, the median of {ROUNDS}",
                costs[pending],
                "µs",
                baseline=costs[number // SHARE] if many else None,
                against=f"{number // SHARE:,} pending" if many else "",
                aim="<= 1.3 x" if many else "",
            )
            report.add(f"{what}: opening", opening, "s")
            report.add(f"{what}: disk", disk / pending, "bytes a message")
            if forgotten:
                report.add(f"{what}: forgetting", took / forgotten * 1e6, "µs a settled message")


def _empty(stack: ExitStack, name: str) -> Large:
    if name == "sqlite":
        file = stack.enter_context(folder()) / "large.db"
        file.touch()
        return Large(f"sqlite:///{file}", file)
    server = stack.enter_context(PostgresServer())
    return Large(server.url, server=server)


def _files(file: Path) -> Iterator[Path]:
    return file.parent.glob(f"{file.name}*")


async def _fill(url: str, number: int) -> None:
    async with penstock.open(url) as engine:
        for first in range(0, number, CHUNK):
            await engine.schedule_many(drafts(min(CHUNK, number - first), delay=86_400.0))


async def _opening(url: str) -> float:
    """Seconds until the first message is put."""
    start = time.perf_counter()
    async with penstock.open(url) as engine:
        await engine.schedule(1, delay=86_400.0)
        return time.perf_counter() - start


async def _cost(url: str) -> float:
    """µs a message through put, claim, a handler that does nothing and settlement."""
    took = []
    counting = _Counting()
    async with penstock.open(url, routes={"default": counting.handle}, worker=True) as engine:
        for _ in range(ROUNDS):
            counting.left = MEASURED
            asked = drafts(MEASURED, delay=0)
            start = time.perf_counter()
            await engine.schedule_many(asked)
            await counting.done()
            took.append((time.perf_counter() - start) / MEASURED * 1e6)
    return statistics.median(took)


class _Counting:
    """A handler that tells when so many messages have come."""

    left = 0

    def __init__(self) -> None:
        self._done = asyncio.Event()

    async def handle(self, batch: list[penstock.Message]) -> None:
        self.left -= len(batch)
        if self.left <= 0:
            self._done.set()

    async def done(self) -> None:
        await self._done.wait()
        self._done.clear()


async def _purge(url: str) -> tuple[int, float]:
    """How many settled messages were forgotten when only one is to be known, and the seconds."""
    store = await open_store(given(store=url, limits={"retention_count": 1}))
    try:
        forgotten, start = 0, time.perf_counter()
        while some := await store.messages.purge(store.clock.now(), PURGED):
            forgotten += some
        return forgotten, time.perf_counter() - start
    finally:
        await store.close()
