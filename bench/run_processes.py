"""Intake over HTTP by one process of the API and by two on one port, on Redis and on SQLite.

Generator, Redis and API share the cores, so a rate alone says little of how the API scales: what a
message costs its processes does. `of cores of its own` is the rate of so many cores that do nothing
but the API, so that the share of the generator and of Redis is not part of it. SQLite has one
writer at a time, whatever the API has.
"""

from __future__ import annotations

import os
from collections import defaultdict

from bench.load import load, post
from bench.processes import penstock
from bench.report import Report
from bench.run_http import BODY, CONNECTIONS
from bench.sqlite_limits import folder
from systems.servers.ports import free_port
from systems.servers.redis import RedisServer

SECONDS = float(os.environ.get("BENCH_SECONDS", "3"))
ROUNDS = int(os.environ.get("BENCH_ROUNDS", "3"))
NUMBERS = (1, 2)


def main() -> None:
    report = Report("processes", f"POST /v1/messages, {CONNECTIONS} connections, api --processes N")
    rates: dict[tuple[str, int], float] = defaultdict(float)
    costs: dict[tuple[str, int], float] = defaultdict(lambda: float("inf"))
    with RedisServer(aof=True) as redis:
        for turn in range(ROUNDS):
            for store in ("Redis", "SQLite"):
                for number in NUMBERS:
                    redis.flush()
                    rate, cost = measured(redis.url if store == "Redis" else None, number)
                    rates[store, number] = max(rates[store, number], rate)
                    costs[store, number] = min(costs[store, number], cost)
            print(f"  round {turn + 1} of {ROUNDS}", flush=True)
    for store in ("Redis", "SQLite"):
        for number in NUMBERS:
            one = None if number == 1 else rates[store, 1]
            words = f"{store}, {number} process{'es' if number > 1 else ''}"
            report.add(words, rates[store, number], "requests/s", baseline=one, against="one")
            cost = costs[store, number]
            own = None if number == 1 else 1e6 / costs[store, 1]
            report.add(f"{words}: the API", cost, "µs of CPU a message")
            if store == "SQLite":
                continue
            report.add(
                f"{words}, of cores of its own",
                number * 1e6 / cost,
                "requests/s",
                baseline=own,
                against="one",
                aim="" if number == 1 else ">= 1.6 x",
            )
    report.finish()


def measured(store: str | None, number: int) -> tuple[float, float]:
    """Requests a second, and what one costs the processes of the API, in µs."""
    port = free_port()
    with folder() as at:
        store = store or f"sqlite:///{at}/bench.db"
        words = ("--port", str(port), "--store", store, "--processes", str(number))
        with penstock(at, "api", "api", *words) as api:
            api.wait_for("no worker here" if number == 1 else f"processes  {number}")
            before = api.cpu()
            done = load(port, post("/v1/messages", BODY), connections=CONNECTIONS, seconds=SECONDS)
            return done["rate"], (api.cpu() - before) / done["ok"] * 1e6


if __name__ == "__main__":
    main()
