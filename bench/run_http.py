"""POST /v1/messages one by one over 64 connections, against what the same server does bare."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from bench.load import hammer, post
from bench.peers.environments import NotMade, environment
from bench.report import Report
from bench.sqlite_limits import folder
from systems.servers.ports import free_port

BODY = b'{"payload":{"user":"user-000042","text":"%s"},"delay":3600}' % (b"x" * 72)
CONNECTIONS = 64
ROUNDS = 2
ROOT = Path(__file__).parents[1]
GRANIAN = {"granian-asgi": "ASGI handler", "granian-rsgi": "RSGI handler"}


@contextmanager
def server(kind: str, at: Path) -> Iterator[int]:
    """One of bench.servers in a process of its own; its port."""
    with process(kind, at) as (port, _):
        yield port


@contextmanager
def process(kind: str, at: Path, checkout: Path | None = None) -> Iterator[tuple[int, int]]:
    """The same, of another checkout if one is named; its port and process id.

    Another checkout runs with what it depends on itself if it has an environment of its own.
    """
    elsewhere = {} if checkout is None else {"PYTHONPATH": str(checkout / "src")}
    own = None if checkout in (None, ROOT) else checkout / ".venv/bin/python"
    python = str(own) if own is not None and own.exists() else sys.executable
    started = subprocess.Popen(
        [python, "-m", "bench.servers", kind, str(at)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **elsewhere},
    )
    try:
        assert started.stdout is not None
        port = int(started.stdout.readline())
        asyncio.run(ready(port))
        yield port, started.pid
    finally:
        started.terminate()
        started.wait()


@contextmanager
def granian(interface: str) -> Iterator[int]:
    """A bare handler on Granian, from an environment of its own; its port."""
    port = free_port()
    command = [environment("granian").program("granian"), "--interface", interface, "--no-ws"]
    command += ["--host", "127.0.0.1", "--port", str(port), "--log-level", "error"]
    process = subprocess.Popen([*command, f"bench.granian_limit:{interface}"])
    try:
        asyncio.run(ready(port))
        yield port
    finally:
        process.terminate()
        process.wait()


async def ready(port: int) -> None:
    async with httpx.AsyncClient() as client:
        for _ in range(200):
            try:
                await client.get(f"http://127.0.0.1:{port}/healthz")
            except httpx.TransportError:
                await asyncio.sleep(0.05)
            else:
                return
    raise RuntimeError("the server did not start")


def main() -> None:
    report = Report("http", "POST /v1/messages one by one, 64 connections, SQLite file, FULL")
    best: dict[str, float] = {}
    request = post("/v1/messages", BODY)
    try:
        for kind in GRANIAN:
            with granian(kind.removeprefix("granian-")) as port:
                best[kind] = hammer(port, request, connections=CONNECTIONS)
    except NotMade as exc:
        print(f"  without Granian: {exc}", flush=True)
    for turn in range(ROUNDS):
        for kind in ("bare", "asgi", "ordinary", "penstock"):
            with folder() as at, server(kind, at) as port:
                rate = hammer(port, request, connections=CONNECTIONS)
            best[kind] = max(best.get(kind, 0.0), rate)
            time.sleep(0.2)
        print(f"  round {turn + 1} of {ROUNDS}", flush=True)
    report.add("bare protocol on the same server, stores nothing", best["bare"], "requests/s")
    report.add("bare ASGI handler on uvicorn, stores nothing", best["asgi"], "requests/s")
    for kind, words in GRANIAN.items():
        if kind in best:
            report.add(f"bare {words} on Granian, stores nothing", best[kind], "requests/s")
    report.add("POST /v1/messages without the hot way", best["ordinary"], "requests/s")
    report.add(
        "POST /v1/messages",
        best["penstock"],
        "requests/s",
        baseline=best["bare"],
        against="bare protocol",
        aim=">= 0.5 x",
    )
    report.add(
        "POST /v1/messages",
        best["penstock"],
        "requests/s",
        baseline=best["asgi"],
        against="bare ASGI handler",
    )
    report.add(
        "POST /v1/messages",
        best["penstock"],
        "requests/s",
        baseline=best["ordinary"],
        against="without the hot way",
    )
    report.finish()
