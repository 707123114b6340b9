"""Schedule and ScheduleStream, against a bare grpc.aio that answers the same messages."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.grpc_load import CALLS, hammer
from bench.report import Report
from bench.sqlite_limits import folder

ROUNDS = 3


@contextmanager
def server(kind: str, at: Path) -> Iterator[int]:
    """One of bench.grpc_servers in a process of its own; its port."""
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.grpc_servers", kind, str(at)],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


def main() -> None:
    report = Report("grpc", f"gRPC, {CALLS} calls under way or two streams, ids of the caller")
    best: dict[tuple[str, str], float] = {}
    for turn in range(ROUNDS):
        for kind in ("bare", "memory", "penstock"):
            for how in ("unary", "stream"):
                with folder() as at, server(kind, at) as port:
                    rate = hammer(port, how)
                best[kind, how] = max(best.get((kind, how), 0.0), rate)
                time.sleep(0.2)
        print(f"  round {turn + 1} of {ROUNDS}", flush=True)
    for how, verb, aim in (("unary", "Schedule", ">= 0.6 x"), ("stream", "ScheduleStream", "")):
        bare = best["bare", how]
        report.add(f"bare grpc.aio, {how}, stores nothing", bare, "messages/s")
        for kind, where in (("memory", "memory"), ("penstock", "SQLite file, FULL")):
            report.add(
                f"{verb}, {where}",
                best[kind, how],
                "messages/s",
                baseline=bare,
                against="bare grpc.aio",
                aim=aim or ">= 20,000/s",
            )
    report.finish()


if __name__ == "__main__":
    main()
