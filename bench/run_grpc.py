"""Schedule and ScheduleStream, against a bare grpc.aio that answers the same messages.

Which client loads what:

unary     grpc.aio's; its figure is compared with the same client's at the bare server
stream    grpc.aio's, which costs as much as the server: the figure is of both, and has no aim
flood     one that gathers its messages into larger writes, as those of C++, Go and Java do
          (bench.grpc_flood): the figure is the server's, and the aim is for this one
one core  the same client, and a server whose threads are kept on one core (`taskset`, a cpuset)
batch     grpc.aio's, 500 messages a call: what to use from Python

The CPU of both sides says which of them is the limit.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

from bench.grpc_load import BATCH, CALLS, hammer
from bench.processes import cpu
from bench.report import Report
from bench.sqlite_limits import folder

ROUNDS = 2
ONE_CORE = "one core"
WHERE = {"bare": "stores nothing", "memory": "memory", "penstock": "SQLite file, FULL"}
HOW = {
    "unary": ("Schedule", "unary", ">= 0.6 x"),
    "stream": ("ScheduleStream, grpc.aio client", "stream, grpc.aio client", ""),
    "flood": ("ScheduleStream, gathered writes", "stream, gathered writes", ">= 20,000/s"),
    ONE_CORE: (
        "ScheduleStream, gathered writes, server on one core",
        "stream, gathered writes, on one core",
        ">= 20,000/s",
    ),
    "batch": (f"ScheduleBatch of {BATCH}, grpc.aio client", "", ""),
}


@dataclass(frozen=True)
class Figures:
    rate: float
    server: float
    """Microseconds of the server's CPU for a message."""
    client: float


@contextmanager
def server(kind: str, at: Path, *core: str) -> Iterator[tuple[int, psutil.Process]]:
    """One of bench.grpc_servers in a process of its own, and its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.grpc_servers", kind, str(at), *core],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), psutil.Process(process.pid)
    finally:
        process.terminate()
        process.wait()


def measure(kind: str, how: str) -> Figures:
    core = [str(max(os.sched_getaffinity(0)))] if how == ONE_CORE else []
    with folder() as at, server(kind, at, *core) as (port, process):
        before = cpu(process)
        came = hammer(port, "flood" if how == ONE_CORE else how)
        spent = cpu(process) - before
    return Figures(came.rate, spent / came.sent * 1e6, came.cpu / came.sent * 1e6)


def show(report: Report, how: str, best: dict[tuple[str, str], Figures]) -> None:
    verb, bare, aim = HOW[how]
    base = best.get(("bare", how))
    if base is not None:
        report.add(f"bare grpc.aio, {bare}, stores nothing", base.rate, "messages/s")
    for kind in ("memory", "penstock"):
        report.add(
            f"{verb}, {WHERE[kind]}",
            best[kind, how].rate,
            "messages/s",
            baseline=None if base is None else base.rate,
            against="" if base is None else "bare grpc.aio",
            aim=aim,
        )
    if how in ("stream", "flood", ONE_CORE):
        for kind in ("bare", "memory", "penstock"):
            name = f"{verb}, {WHERE[kind]}: CPU of the"
            report.add(f"{name} server", best[kind, how].server, "us a message")
            report.add(f"{name} client", best[kind, how].client, "us a message")


def main() -> None:
    about = (
        f"gRPC, {CALLS} calls under way, or two streams or batches, ids of the caller; "
        "gathered writes: a client that writes as those of Go, C++ and Java do"
    )
    report = Report("grpc", about)
    best: dict[tuple[str, str], Figures] = {}
    runs = [(kind, how) for kind in WHERE for how in HOW if (kind, how) != ("bare", "batch")]
    for turn in range(ROUNDS):
        for kind, how in runs:
            figures = measure(kind, how)
            held = best.setdefault((kind, how), figures)
            if figures.rate > held.rate:
                best[kind, how] = figures
            time.sleep(0.2)
        print(f"  round {turn + 1} of {ROUNDS}", flush=True)
    for how in HOW:
        show(report, how, best)
    report.finish()


if __name__ == "__main__":
    main()
