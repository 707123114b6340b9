"""The figures that `penstock size` and docs/run/sizing.md reckon with: CPU and bytes a message.

`python -m bench size` measures them and writes src/penstock/cli/size/figures.json and the page's
tables. The medians of a few rounds; a cluster's CPU is what `python -m bench cluster` found last.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime as dt
import json
import sqlite3
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import msgspec
import psutil
import uvloop

import penstock
from bench import size_page
from bench.load import load, post
from bench.processes import cpu
from bench.report import RESULTS, Report, facts
from bench.run_cluster import PARTS, SIZES
from bench.run_http import BODY, process
from bench.sqlite_limits import folder
from penstock.cli.size.plan import (
    Bytes,
    Cpu,
    Figures,
    HttpFigures,
    PriceFigures,
    StoreFigures,
)
from penstock.model.draft import Draft
from penstock.sdk.asked import draft
from systems.servers.postgres import PostgresServer
from systems.servers.redis import RedisServer

FIGURES = Path(__file__).parents[1] / "src/penstock/cli/size/figures.json"
NUMBER = 50_000
"""Messages whose CPU is measured …"""
SAMPLE = 20_000
"""… and whose bytes are counted."""
ROUNDS = 3
PAYLOAD, LARGE = 100, 1_100
FAR = 3 * 86_400.0
PRICES = PriceFigures(
    date="September 2026",
    source="AWS's list price, us-east-1, on demand, standard table class"
    " (https://aws.amazon.com/dynamodb/pricing/on-demand/)",
    write=0.625,
    read=0.125,
    storage=0.25,
)
CLUSTER = f"a cluster of {SIZES[-1]}"


@dataclass
class Place:
    """A store, how to empty it, and what of it can be counted."""

    name: str
    url: str
    flush: Callable[[], None]
    data: Callable[[], float]
    """Bytes of what it has now."""
    log: Callable[[], float]
    """Bytes appended to its log since it was flushed."""
    server: psutil.Process | None = None
    costs: list[Cpu] = field(default_factory=list)

    def cpu(self) -> float:
        return 0.0 if self.server is None else cpu(self.server)


def main() -> None:
    report = Report("size", "CPU and bytes a message, the figures of `penstock size`")
    stores: dict[str, StoreFigures] = {}
    with folder() as at, _redis() as redis, _postgres() as postgres:
        places = [_sqlite(at), redis, postgres]
        for turn in range(ROUNDS + 1):  # the first warms up
            for place in places:
                place.flush()
                cost = uvloop.run(_cpu(place))
                if turn:
                    place.costs.append(cost)
        for place in places:
            sizes = uvloop.run(_bytes(place))
            clustered = _clustered() if place.name == "redis" else None
            stores[place.name] = StoreFigures(_middle(place.costs), sizes, clustered)
            _tell(report, place.name, stores[place.name])
        http = _http(at)
    report.add("http: one message a request, on SQLite", http.single, "µs of CPU")
    report.add("http: a message of a batch, on SQLite", http.batch, "µs of CPU")
    report.finish(keep=False)
    machine = facts()
    known = Figures(
        when=dt.datetime.now(dt.UTC).date().isoformat(),
        machine=f"{machine['cpu']}, {machine['cores']} cores, Python {machine['python']}",
        payload=PAYLOAD,
        http=http,
        stores=stores,
        prices=PRICES,
    )
    FIGURES.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")
    size_page.write()


def _tell(report: Report, name: str, found: StoreFigures) -> None:
    report.add(f"{name}: put, the process", found.cpu.put, "µs of CPU")
    report.add(f"{name}: release, the worker", found.cpu.release, "µs of CPU")
    if found.cpu.server:
        report.add(f"{name}: put, the server", found.cpu.server_put, "µs of CPU")
        report.add(f"{name}: release, the server", found.cpu.server_release, "µs of CPU")
    report.add(f"{name}: pending, {PAYLOAD} bytes of payload", found.bytes.pending, "bytes")
    report.add(f"{name}: settled", found.bytes.settled, "bytes")
    report.add(f"{name}: log, put to settlement", found.bytes.log, "bytes")
    if found.bytes.wire:
        report.add(f"{name}: network, put to settlement", found.bytes.wire, "bytes")


# --- the stores


def _sqlite(at: Path) -> Place:
    path = at / "size.db"

    def flush() -> None:
        for file in at.glob("size.db*"):
            file.unlink()

    def data() -> float:
        """Of the pages that are in use."""
        connection = sqlite3.connect(path)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            names = ("page_count", "freelist_count", "page_size")
            pages, free, size = (connection.execute(f"PRAGMA {n}").fetchone()[0] for n in names)
        finally:
            connection.close()
        return float((pages - free) * size)

    def log() -> float:
        """All that this process has written: nothing else does while the store is measured."""
        return float(psutil.Process().io_counters().write_bytes)

    return Place("sqlite", f"sqlite:///{path}", flush, data, log)


@contextmanager
def _redis() -> Iterator[Place]:
    with RedisServer(aof=True) as server, server.client as client:

        def memory() -> float:
            return float(client.info("memory")["used_memory"])

        def log() -> float:
            return float(client.info("persistence")["aof_current_size"])

        yield Place("redis", server.url, server.flush, memory, log, psutil.Process(server.pid))


@contextmanager
def _postgres() -> Iterator[Place]:
    with PostgresServer() as server:

        def flush() -> None:
            server.sql("DROP SCHEMA IF EXISTS penstock CASCADE")

        def data() -> float:
            server.sql("VACUUM FULL")
            text = (
                "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0) FROM pg_class c"
                " JOIN pg_namespace n ON n.oid = relnamespace"
                " WHERE nspname = 'penstock' AND relkind = 'r'"
            )
            return float(server.sql(text))

        def log() -> float:
            return float(server.sql("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))

        yield Place("postgresql", server.url, flush, data, log, _postmaster(server))


def _postmaster(server: PostgresServer) -> psutil.Process:
    pid = int((server.folder / "data" / "postmaster.pid").read_text().split()[0])
    return psutil.Process(pid)


# --- CPU


async def _cpu(place: Place) -> Cpu:
    """Put a due backlog, and release it to a function that does nothing."""
    async with penstock.open(place.url) as engine:
        await engine.schedule_many(_drafts(100, PAYLOAD, FAR))
        asked = _drafts(NUMBER, PAYLOAD, 0)
        server, own = place.cpu(), time.process_time()
        await engine.schedule_many(asked)
        put, server_put = time.process_time() - own, place.cpu() - server
    server, own = place.cpu(), time.process_time()
    await _released(place.url, NUMBER)
    release, server_release = time.process_time() - own, place.cpu() - server
    found = (put, release, server_put, max(server_release, 0.0))
    return Cpu(*(round(used / NUMBER * 1e6, 2) for used in found))


async def _released(url: str, number: int) -> None:
    done = 0
    finished = asyncio.Event()

    async def nothing(batch: list[penstock.Message]) -> None:
        nonlocal done
        done += len(batch)
        if done >= number:
            finished.set()

    async with penstock.open(url, routes={"default": nothing}, worker=True):
        await finished.wait()


def _middle(costs: list[Cpu]) -> Cpu:
    columns = zip(*(msgspec.structs.astuple(cost) for cost in costs), strict=True)
    return Cpu(*(round(statistics.median(column), 2) for column in columns))


def _clustered() -> Cpu | None:
    """What `python -m bench cluster` found last."""
    file = RESULTS / "cluster.json"
    if not file.exists():
        return None
    rows = {row["what"]: row["figure"] for row in json.loads(file.read_text())["rows"]}
    return Cpu(*(round(rows[f"{CLUSTER}: {part}"], 2) for part in PARTS))


# --- bytes


async def _bytes(place: Place) -> Bytes:
    small = await _pending(place, PAYLOAD)
    large = await _pending(place, LARGE)
    place.flush()
    async with penstock.open(place.url) as engine:
        await engine.schedule_many(_drafts(1, PAYLOAD, FAR))
    empty, log = place.data(), place.log()
    async with _counted(place.url) as (url, meter):
        async with penstock.open(url) as engine:
            await engine.schedule_many(_drafts(SAMPLE, PAYLOAD, 0))
        await _released(url, SAMPLE)
    settled, written = place.data() - empty, place.log() - log
    return Bytes(
        pending=round(small),
        settled=round(settled / SAMPLE),
        wire=round(meter.number / SAMPLE),
        log=round(written / SAMPLE),
        per_payload=round((large - small) / (LARGE - PAYLOAD), 2),
    )


async def _pending(place: Place, payload: int) -> float:
    """Bytes of one that is due in some days."""
    place.flush()
    async with penstock.open(place.url) as engine:
        await engine.schedule_many(_drafts(100, payload, FAR))
    before = place.data()
    async with penstock.open(place.url) as engine:
        await engine.schedule_many(_drafts(SAMPLE, payload, FAR))
    return (place.data() - before) / SAMPLE


class _Meter:
    number = 0

    async def pump(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(1 << 16):
            self.number += len(data)
            target.write(data)
            await target.drain()
        target.close()


@asynccontextmanager
async def _counted(url: str) -> AsyncIterator[tuple[str, _Meter]]:
    """The same store through something that counts every byte, both ways."""
    meter = _Meter()
    parts = urlsplit(url)
    if parts.port is None:
        yield url, meter
        return
    host, port = parts.hostname or "127.0.0.1", parts.port

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, asks = await asyncio.open_connection(host, port)
        with contextlib.suppress(ConnectionError):
            await asyncio.gather(meter.pump(reader, asks), meter.pump(answers, writer))

    server = await asyncio.start_server(connected, "127.0.0.1", 0)
    between = server.sockets[0].getsockname()[1]
    try:
        yield url.replace(f":{port}", f":{between}", 1), meter
    finally:
        server.close()


def _drafts(number: int, payload: int, delay: float) -> list[Draft]:
    body = {"text": "x" * (payload - len('{"text":""}'))}
    return [draft(body, delay=delay) for _ in range(number)]


# --- HTTP


def _http(at: Path) -> HttpFigures:
    single, batch = [], []
    for _ in range(ROUNDS):
        here = Path(tempfile.mkdtemp(dir=at))
        with process("penstock", here) as (port, pid):
            server = psutil.Process(pid)
            before = cpu(server)
            answered = load(port, post("/v1/messages", BODY), connections=64, seconds=3.0)
            single.append((cpu(server) - before) / answered["ok"] * 1e6)
            before = cpu(server)
            _batches(port)
            batch.append((cpu(server) - before) / NUMBER * 1e6)
    return HttpFigures(round(statistics.median(single), 2), round(statistics.median(batch), 2))


def _batches(port: int) -> None:
    body = (BODY + b"\n") * 1_000
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
        for _ in range(NUMBER // 1_000):
            headers = {"content-type": "application/x-ndjson"}
            answer = client.post("/v1/messages/batch", content=body, headers=headers)
            answer.raise_for_status()
