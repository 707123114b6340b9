"""The HTTP API without its hot way: every request goes through ASGI, the router and a handler.

`--against FOLDER` names another checkout of this repository; its API is measured in turns with
this one's, on the same machine and the same load, with the packages in its `.venv` if it has one.
On a machine that others use, only the CPU time of a request says something.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from bench.load import get, hammer, load, post
from bench.report import Report
from bench.run_http import BODY, CONNECTIONS, ROOT, process
from bench.sqlite_limits import folder

ROUNDS = 3
ID = "ordinary-1"
NAMED = b'{"id":"%s",%s' % (ID.encode(), BODY[1:])
REQUESTS = {
    "POST /v1/messages": post("/v1/messages", BODY),
    "GET /v1/messages/{id}": get(f"/v1/messages/{ID}"),
    "GET /healthz": get("/healthz"),
}


class Figures(NamedTuple):
    """Of one call: answers a second, and µs of the server's CPU that one of them took."""

    rate: float
    cpu: float


def main(*arguments: str) -> int:
    match arguments:
        case ():
            checkouts = {"this API": ROOT}
        case ("--against", other) if (Path(other) / "src" / "penstock").is_dir():
            checkouts = {"the other API": Path(other).resolve(), "this API": ROOT}
        case _:
            print("usage: python -m bench http --ordinary [--against FOLDER]", file=sys.stderr)
            return 2
    best: dict[tuple[str, str], Figures] = {}
    for turn in range(ROUNDS):
        for name, checkout in checkouts.items():
            with folder() as at, process("ordinary", at, checkout) as (port, pid):
                hammer(port, post("/v1/messages", NAMED), connections=1, seconds=0.1)
                for call, request in REQUESTS.items():
                    best[name, call] = _better(
                        best.get((name, call)), _measured(port, pid, request)
                    )
                    time.sleep(0.2)
        print(f"  round {turn + 1} of {ROUNDS}", flush=True)
    _show(best, with_other=len(checkouts) > 1)
    return 0


def _measured(port: int, pid: int, request: bytes) -> Figures:
    before = psutil.Process(pid).cpu_times()
    done = load(port, request, connections=CONNECTIONS)
    after = psutil.Process(pid).cpu_times()
    spent = after.user + after.system - before.user - before.system
    return Figures(done["rate"], spent / done["ok"] * 1e6)


def _better(one: Figures | None, other: Figures) -> Figures:
    """The best of each: what others do on the machine only ever makes them worse."""
    if one is None:
        return other
    return Figures(max(one.rate, other.rate), min(one.cpu, other.cpu))


def _show(best: dict[tuple[str, str], Figures], *, with_other: bool) -> None:
    report = Report("ordinary", "The API without its hot way, 64 connections, SQLite file, FULL")
    for call in REQUESTS:
        here, there = best["this API", call], best.get(("the other API", call))
        if there is None or not with_other:
            report.add(call, here.rate, "requests/s")
            report.add(call, here.cpu, "µs of CPU")
            continue
        report.add(f"{call}, the other API", there.rate, "requests/s")
        report.add(
            call,
            here.rate,
            "requests/s",
            baseline=there.rate,
            against="the other API",
            aim=">= 2.5 x",
        )
        report.add(f"{call}, the other API", there.cpu, "µs of CPU")
        report.add(
            call, here.cpu, "µs of CPU", baseline=there.cpu, against="the other API", aim="<= 0.4 x"
        )
    report.finish()
