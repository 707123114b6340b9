"""The clients over HTTP: one caller after another, and 64 at once, against bare ones.

What bare clients and servers of the same libraries reach (aiohttp or http.client, uvicorn's
protocol answering a constant) is measured in the same run.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import defaultdict

from bench.report import Report
from bench.run_http import server
from bench.sqlite_limits import folder
from systems.servers.redis import RedisServer

CALLERS = 64
SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "2"))
STORES = {"penstock": "SQLite", "redis": "Redis"}
CLIENTS = {"async": "AsyncClient", "threads": "Client"}
ONE_BY_ONE = {"penstock": ">= 2,000", "redis": ">= 3,000"}


def rate(kind: str, port: int, callers: int) -> float:
    """Messages a second that callers of this kind get answers to."""
    words = [kind, f"http://127.0.0.1:{port}", str(callers), str(SECONDS)]
    done = subprocess.run(
        [sys.executable, "-m", "bench.client_load", *words],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(done.stdout)


def main() -> None:
    report = Report("clients", "schedule() over HTTP, SQLite FULL and Redis AOF everysec")
    best: dict[tuple[str, str, int], float] = defaultdict(float)
    with RedisServer(aof=True) as redis:
        os.environ["BENCH_REDIS"] = redis.url
        for turn in range(ROUNDS):
            for on in ("bare", *STORES):
                redis.flush()
                with folder() as at, server(on, at) as port:
                    for client in CLIENTS:
                        kinds = (f"bare-{client}",) if on == "bare" else (client, f"{client}-apart")
                        for kind in kinds:
                            for callers in (1, CALLERS):
                                seen = rate(kind, port, callers)
                                best[on, kind, callers] = max(best[on, kind, callers], seen)
            print(f"  round {turn + 1} of {ROUNDS}", flush=True)
    for client, name in CLIENTS.items():
        for callers in (1, CALLERS):
            what = "one after another" if callers == 1 else f"{callers} callers"
            bare = best["bare", f"bare-{client}", callers]
            report.add(f"bare client and server of {name}'s libraries, {what}", bare, "requests/s")
            for on, store in STORES.items():
                apart = best[on, f"{client}-apart", callers]
                if callers > 1:
                    report.add(f"{name}(gather=False), {store}, {what}", apart, "messages/s")
                report.add(
                    f"{name}, {store}, {what}",
                    best[on, client, callers],
                    "messages/s",
                    baseline=bare,
                    against="bare client and server",
                    aim=ONE_BY_ONE[on] if callers == 1 else ">= 20,000",
                )
    report.finish()


if __name__ == "__main__":
    main()
