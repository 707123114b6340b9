"""The engine on PostgreSQL (synchronous_commit=on) against bare statements with the same rows."""

from __future__ import annotations

import asyncio
import time

import psycopg
import uvloop

import penstock
from bench.engine import burst, drain, lateness
from bench.postgres_limits import KEEP, Bare
from bench.report import Report
from bench.workload import HOUR, PAYLOAD, drafts, messages
from systems.servers.postgres import PostgresServer

NUMBER = 50_000
ROUNDS = 3
CALLERS = 64
SINGLES = 20_000
BURST = 10_000
RATE = 1_000
SCALES = (10_000, 1_000_000)
MEASURED = 20_000
STEP = 20_000
SNAPSHOT = 1_000_000
"""Messages that are put, claimed and settled beside a transaction that stays open."""
SERVER = ("shared_buffers=256MB", "max_wal_size=4GB")


def main() -> None:
    report = Report("postgres", "the engine on PostgreSQL 15, synchronous_commit=on, same cores")
    with PostgresServer(None, *SERVER) as server:
        uvloop.run(_make(server.url))
        bare = Bare(server.url)
        _throughput(report, server.url, bare)
        _size(report, bare)
        uvloop.run(lateness(report, server.url, RATE))
        bare.empty()
        burst(report, server.url, BURST, 1)
        bare.empty()
        _scale(report, server.url, bare)
        bare.empty()
        _snapshot(report, server.url)
        bare.connection.close()
    report.finish()


async def _make(url: str) -> None:
    async with penstock.open(url):
        pass


def _throughput(report: Report, url: str, bare: Bare) -> None:
    """In turns, so that a slow moment of the machine hits both; of each the best counts."""
    copies, unnests, puts, takes, claims, keeps, drains, singles = ([0.0] for _ in range(8))
    for _ in range(ROUNDS):
        copies.append(bare.copy(messages(NUMBER)))
        bare.empty()
        unnests.append(bare.unnest(messages(NUMBER, ahead=-HOUR)))
        takes.append(bare.take())
        bare.empty()
        bare.unnest(messages(NUMBER, ahead=-HOUR))
        claims.append(bare.drain())
        bare.empty()
        bare.unnest(messages(NUMBER, ahead=-HOUR))
        keeps.append(bare.drain(KEEP))
        bare.empty()
        puts.append(uvloop.run(_put(url)))
        bare.empty()
        drains.append(uvloop.run(drain(url, NUMBER)))
        bare.empty()
        singles.append(uvloop.run(_callers(url)))
        bare.empty()
    report.add("bare COPY", max(copies), "messages/s")
    report.add("bare INSERT of arrays", max(unnests), "messages/s")
    report.add(
        "library schedule_many",
        max(puts),
        "messages/s",
        baseline=max(unnests),
        against="bare INSERT of arrays",
        aim=">= 0.5 x",
    )
    # A queue commits its claim before it sends: a crash then repeats a message and loses none.
    # What deletes in the claiming transaction writes each row once less, and is not that job.
    report.add("bare delete of what is due, one commit, may lose", max(takes), "messages/s")
    report.add("bare claim, commit, delete, commit", max(claims), "messages/s")
    report.add("the same with a row of history", max(keeps), "messages/s")
    report.add(
        "claim, no-op sink, settle",
        max(drains),
        "messages/s",
        baseline=max(claims),
        against="bare claim, commit, delete, commit",
        aim=">= 0.5 x",
    )
    report.add(f"schedule(), {CALLERS} callers", max(singles), "messages/s")


async def _put(url: str) -> float:
    async with penstock.open(url) as engine:
        asked = drafts(NUMBER)
        start = time.perf_counter()
        await engine.schedule_many(asked)
        return NUMBER / (time.perf_counter() - start)


async def _callers(url: str) -> float:
    async with penstock.open(url) as engine:
        left = iter(range(SINGLES))

        async def caller() -> None:
            for _ in left:
                await engine.schedule(PAYLOAD, delay=3600)

        start = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(CALLERS)))
        return SINGLES / (time.perf_counter() - start)


def _size(report: Report, bare: Bare) -> None:
    empty = bare.bytes()
    bare.unnest(messages(NUMBER))
    report.add("a pending message, with indexes", (bare.bytes() - empty) / NUMBER, "bytes")
    bare.empty()


def _scale(report: Report, url: str, bare: Bare) -> None:
    """Cost of a message claimed and settled while so many others are pending."""
    pending = 0
    base: float | None = None
    for scale in SCALES:
        while pending < scale:
            number = min(50_000, scale - pending)
            bare.copy(messages(number, ahead=24 * HOUR))
            pending += number
        bare.connection.autocommit = True
        bare.connection.execute("VACUUM ANALYZE penstock.messages")
        bare.connection.autocommit = False
        cost = 1e6 / max(uvloop.run(drain(url, MEASURED)) for _ in range(3))
        report.add(
            f"a message with {scale:,} pending",
            cost,
            "µs",
            baseline=base,
            against="" if base is None else f"{SCALES[0]:,} pending",
            aim="" if base is None else "<= 1.3 x",
        )
        base = cost if base is None else base


def _snapshot(report: Report, url: str) -> None:
    """Put, claim and settle beside a transaction that began before and stays open."""
    with psycopg.connect(url) as other:
        other.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        other.execute("SELECT 1")
        rates = uvloop.run(_rounds(url))
        other.rollback()
    tenth = max(1, len(rates) // 10)
    start, end = (sorted(part)[tenth // 2] for part in (rates[:tenth], rates[-tenth:]))
    report.add("beside an open transaction, at the start", start, "messages/s")
    report.add(
        f"beside an open transaction, after {SNAPSHOT:,} messages",
        end,
        "messages/s",
        baseline=start,
        against="the start",
        aim=">= 0.7 x",
    )


async def _rounds(url: str) -> list[float]:
    """Messages a second through put, claim, no-op sink and settle, step after step."""
    done = 0
    finished = asyncio.Event()

    async def nothing(batch: list[penstock.Message]) -> None:
        nonlocal done
        done += len(batch)
        if done >= STEP:
            finished.set()

    rates = []
    async with penstock.open(url, routes={"default": nothing}, worker=True) as engine:
        for _ in range(SNAPSHOT // STEP):
            done = 0
            finished.clear()
            asked = drafts(STEP, delay=0)
            start = time.perf_counter()
            await engine.schedule_many(asked)
            await finished.wait()
            rates.append(STEP / (time.perf_counter() - start))
    return rates
