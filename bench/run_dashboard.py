"""What an open dashboard costs the server, and whether fifty of them slow delivery.

`penstock serve` on a SQLite file with a sink that does nothing, in a process of its own. Turns with
and without pages alternate, since the machine is never quite the same twice.
"""

from __future__ import annotations

import asyncio
import shutil
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
from playwright.async_api import async_playwright

from bench.processes import Running, penstock
from bench.report import Report, console
from bench.sqlite_limits import folder
from systems.servers.ports import free_port

RATE = 5_000
BATCHES = 10
"""A second."""
SECONDS = 3.0
ROUNDS = 2
PAGES = 50
BACKLOG = 150_000
"""Several seconds' worth: a second alone says more of the disk than of the pages."""
CORE = "% of a core"
CONFIG = """
store = "sqlite:///bench.db"
[api]
http = "127.0.0.1:{port}"
grpc = "off"
[worker]
batch_size = 1000
[log]
level = "error"
[routes.default]
sink = "python:idle:take"
"""
SINK = '''"""A sink that does nothing."""
import penstock
async def take(batch: list[penstock.Message]) -> None: ...
'''


class Turn(NamedTuple):
    """What happened in some seconds, a second."""

    accepted: float
    """Less than RATE where the machine left the load too little time: the load's own limit."""
    delivered: float
    cpu: float
    """The server's share of a core."""


class Server:
    """The running server: what it delivers and what it costs."""

    def __init__(self, process: Running, http: httpx.AsyncClient, port: int) -> None:
        self._process = process
        self._http = http
        self.port = port

    async def put(self, number: int, delay: str) -> None:
        body = b'{"payload":1,"delay":"%b"}\n' % delay.encode() * number
        headers = {"content-type": "application/x-ndjson"}
        answer = await self._http.post("/v1/messages/batch", content=body, headers=headers)
        answer.raise_for_status()

    async def total(self, stage: str) -> int:
        stats = (await self._http.get("/v1/stats")).json()
        return int(stats["totals"].get(stage, 0))

    async def turn(self) -> Turn:
        before = await self._seen()
        start = time.perf_counter()
        await asyncio.sleep(SECONDS)
        after = await self._seen()
        took = time.perf_counter() - start
        return Turn(*((b - a) / took for a, b in zip(before, after, strict=True)))

    async def _seen(self) -> tuple[float, float, float]:
        totals = (await self._http.get("/v1/stats")).json()["totals"]
        return totals.get("accepted", 0), totals.get("delivered", 0), self._process.cpu()

    async def drain(self) -> float:
        """Messages a second out of a backlog, as fast as it goes."""
        await self._http.post("/v1/routes/default/pause")
        await asyncio.sleep(1)
        before = await self.total("delivered")
        for _ in range(BACKLOG // 1000):
            await self.put(1000, "0s")
        start = time.perf_counter()
        await self._http.post("/v1/routes/default/resume")
        while (done := await self.total("delivered") - before) < BACKLOG:
            await asyncio.sleep(0.1)
            if time.perf_counter() - start > 120:
                raise RuntimeError(f"only {done:,} of {BACKLOG:,} were delivered")
        return BACKLOG / (time.perf_counter() - start)

    async def load(self) -> None:
        """RATE messages a second, due a second later, until cancelled."""
        start = time.perf_counter()
        for number in range(1_000_000):
            await asyncio.sleep(max(0.0, start + number / BATCHES - time.perf_counter()))
            await self.put(RATE // BATCHES, "1s")


@asynccontextmanager
async def browser_page(url: str) -> AsyncIterator[None]:
    """The page itself, in a browser."""
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = await chromium.new_page()
        await page.goto(url)
        await page.locator("#link[data-state=live]").wait_for()
        yield
        await chromium.close()


@asynccontextmanager
async def streams(port: int, number: int) -> AsyncIterator[None]:
    """What so many open pages ask for all the time: a stream of events each."""

    async def read() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET /v1/events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        try:
            while await reader.read(1 << 16):
                pass
        finally:
            writer.close()

    reading = [asyncio.create_task(read()) for _ in range(number)]
    await asyncio.sleep(1)
    yield
    for task in reading:
        task.cancel()
    await asyncio.gather(*reading, return_exceptions=True)


class Turns:
    """Turns under one load: without a page, with one, with many, again and again."""

    def __init__(self) -> None:
        self.without: list[Turn] = []
        self.one: list[Turn] = []
        self.many: list[Turn] = []

    async def take(self, server: Server) -> None:
        for number in range(ROUNDS):
            console.print(f"  [dim]round {number + 1} of {ROUNDS}[/dim]")
            self.without.append(await server.turn())
            async with browser_page(f"http://127.0.0.1:{server.port}/"):
                self.one.append(await server.turn())
            async with streams(server.port, PAGES):
                self.many.append(await server.turn())

    def on_top(self, watched: list[Turn]) -> float:
        """Share of a core, beyond what as many messages cost without a page."""
        delivered = sum(turn.delivered for turn in self.without)
        cpu = sum(turn.cpu for turn in self.without)
        a_message = cpu / delivered if delivered else 0.0
        fixed = 0.0 if delivered else cpu / len(self.without)
        return _median([turn.cpu - fixed - a_message * turn.delivered for turn in watched])


async def measure(report: Report, server: Server) -> None:
    idle = Turns()
    await idle.take(server)
    load = asyncio.create_task(server.load())
    await asyncio.sleep(3)
    busy = Turns()
    await busy.take(server)
    load.cancel()
    await asyncio.gather(load, return_exceptions=True)
    for when, turns in (("idle", idle), ("under load", busy)):
        alone = _median([turn.cpu for turn in turns.without])
        report.add(f"server, {when}, no page", alone * 100, CORE)
        report.add(f"one page, {when}: on top", turns.on_top(turns.one) * 100, CORE, aim="<= 5")
        report.add(f"{PAGES} pages, {when}: on top", turns.on_top(turns.many) * 100, CORE)
    _steady(report, busy)
    await _drains(report, server)


def _steady(report: Report, busy: Turns) -> None:
    """What came out, beside what the load got in: the one is to be judged by the other."""
    calm = _median([turn.delivered for turn in busy.without])
    for pages, turns in ((0, busy.without), (1, busy.one), (PAGES, busy.many)):
        got_in = _median([turn.accepted for turn in turns])
        report.add(f"accepted, {pages} pages (wanted: {RATE:,})", got_in, "messages/s")
        report.add(
            f"delivered, {pages} pages",
            _median([turn.delivered for turn in turns]),
            "messages/s",
            baseline=calm if pages else None,
            against="no page" if pages else "",
            aim=">= 0.95 x" if pages else "",
        )


def _median(values: list[float]) -> float:
    return statistics.median(values)


async def _drains(report: Report, server: Server) -> None:
    alone: list[float] = []
    watched: list[float] = []
    for _ in range(ROUNDS):
        alone.append(await server.drain())
        async with streams(server.port, PAGES):
            watched.append(await server.drain())
    report.add("a backlog as fast as it goes, no page", _median(alone), "messages/s")
    report.add(
        f"a backlog as fast as it goes, {PAGES} pages",
        _median(watched),
        "messages/s",
        baseline=_median(alone),
        against="no page",
        aim=">= 0.9 x",
    )


async def _run(at: Path) -> None:
    report = Report(
        "dashboard", f"open dashboards, up to {RATE:,} messages/s put, SQLite file, FULL"
    )
    port = free_port()
    (at / "penstock.toml").write_text(CONFIG.format(port=port))
    (at / "idle.py").write_text(SINK)
    async with AsyncExitStack() as stack:
        process = stack.enter_context(penstock(at, "serve", "serve"))
        process.wait_for("dashboard")
        client = httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60)
        http = await stack.enter_async_context(client)
        await measure(report, Server(process, http, port))
    report.finish()


def main() -> None:
    with folder() as at:
        asyncio.run(_run(at))
