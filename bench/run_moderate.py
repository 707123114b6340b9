"""What a message costs at moderate rates: `python -m bench moderate [--quick] [--only NAME …]`.

Messages are put ahead of time by another process, one due after another at a steady rate; while
they come due, the CPU of the workers and of the store's server is counted, and how late each
message was when its handler was called. Rate 0 is a share of a core with nothing to do.
The handler takes batches and writes a line for each message, as the handlers of the peers do.
"""

from __future__ import annotations

import tempfile
import time
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path

from bench.peers import records, servers
from bench.peers.drive import Failed, Running, running
from bench.peers.environments import NotMade, environment
from bench.peers.table import PEERS, Peer, behind_settings
from bench.report import Report, console

RATES = (0, 10, 100, 1_000, 3_000, 5_000, 10_000)
PEERS_RATE = 1_000
STORES = ("sqlite", "redis", "postgres")
ROLES = ("serve", "worker")
BESIDE = ("beanstalkd", "bullmq")
LEAD = 1.5
"""Seconds between the last put and the first message that is due."""
PUTS = 10_000
"""Puts a second that every peer manages: a lead for the time that putting takes."""
SERVER_AIMS = {"redis": {1_000: "<= 60"}}
WORKER_AIMS = {0: "<= 0.5", 100: "<= 500", 1_000: "<= 140"}
LATE_AIMS = {1_000: {"p50": "<= 3", "p99": "<= 10"}, 5_000: {"p99": "<= 10"}}


@dataclass(frozen=True)
class Cost:
    """Of one rate: µs a message, or at rate 0 the share of a core in percent."""

    workers: float
    server: float
    p50: float = 0.0
    p99: float = 0.0
    early: int = 0
    missing: int = 0


def measure(run: Running, rate: int, seconds: float) -> Cost:
    """Let messages come due at that rate for so long, and count what they cost."""
    number = round(rate * seconds)
    base = records.count(run.out)
    first = 0
    if number:
        lead = LEAD + number / PUTS
        first, due, took = run.enqueue("bulk", number, lead, apart=round(1e6 / rate))
        if took > lead - 0.5:
            raise Failed(f"{number:,} messages took {took:.1f} s to put: too slow")
        time.sleep(max(0.0, due / 1000 - time.time() - 0.1))
    before, start = run.cpu(), time.perf_counter()
    time.sleep(seconds + 0.2)
    if number:
        records.wait_while_any(run.out, base + number, 3.0, 60.0)
    used = [now - then for now, then in zip(run.cpu(), before, strict=True)]
    if not number:
        elapsed = time.perf_counter() - start
        return Cost(used[0] / elapsed * 100, used[1] / elapsed * 100)
    came = records.read(run.out, first, number)
    if not came:
        raise Failed("nothing came")
    late = records.lateness(came)
    return Cost(
        used[0] / number * 1e6,
        used[1] / number * 1e6,
        float(str(late["p50"])),
        float(str(late["p99"])),
        int(str(late["early"])),
        records.repeats(came, number)[0],
    )


def _seconds(rate: int, seconds: float) -> float:
    """So long that a clock of 10 ms steps says something, and no longer."""
    return seconds * 2 if rate <= 100 else seconds


def _add(report: Report, name: str, store: str, rate: int, cost: Cost, *, ours: bool) -> None:
    what = f"{name} at {rate:,}/s"
    unit = "µs a message" if rate else "% of a core"
    aim = WORKER_AIMS.get(rate, "") if ours else ""
    report.add(f"{what}: CPU of the worker", cost.workers, unit, aim=aim)
    if store != "sqlite":
        aim = SERVER_AIMS.get(store, {}).get(rate, "") if ours else ""
        report.add(f"{what}: CPU of the server", cost.server, unit, aim=aim)
    if rate:
        aims = LATE_AIMS.get(rate, {}) if ours else {}
        for quantile, late in (("p50", cost.p50), ("p99", cost.p99)):
            report.add(f"{what}: late, {quantile}", late, "ms", aim=aims.get(quantile, ""))
        if ours:
            report.add(f"{what}: early", cost.early, "messages", aim="0")
            report.add(f"{what}: missing", cost.missing, "messages", aim="0")


def _run(report: Report, peer: Peer, rates: tuple[int, ...], seconds: float) -> None:
    console.print(f"[bold]{peer.title}[/bold] ({peer.settings})")
    if (missing := servers.absent(peer.server)) is not None:
        console.print(f"  not at hand: {missing} is not on this machine")
        return
    with tempfile.TemporaryDirectory(prefix="penstock-moderate-") as folder:
        try:
            place = environment(peer.place)
            with running(peer, place, Path(folder) / "run") as run:
                run.start_workers()
                run.enqueue("bulk", 500, LEAD, apart=1_000)
                records.wait_while_any(run.out, 500, 20.0, 60.0)
                time.sleep(2.0)
                for rate in rates:
                    cost = measure(run, rate, _seconds(rate, seconds))
                    _add(report, peer.title, peer.server, rate, cost, ours=peer.is_ours)
        except (Failed, NotMade, OSError, RuntimeError) as exc:
            console.print(f"  failed: {exc}")


def main(*words: str) -> int:
    asked = ArgumentParser(prog="python -m bench moderate", description=__doc__)
    add = asked.add_argument
    add("--seconds", type=float, default=6.0, help="of each rate")
    add("--quick", action="store_true", help="two seconds of each rate; nothing is kept")
    add("--only", action="append", default=[], metavar="NAME", help="serve-redis, bullmq, …")
    add("--rate", action="append", default=[], type=int, help="this rate alone")
    add("--gather", default="", help="[worker] gather of Penstock's workers")
    given = asked.parse_args(words)
    seconds = 2.0 if given.quick else given.seconds
    chosen = [behind_settings(role, store, given.gather) for role in ROLES for store in STORES]
    chosen += [peer for peer in PEERS if peer.name in BESIDE]
    report = Report("moderate", f"messages coming due one after another, {seconds:.0f} s a rate")
    for peer in chosen:
        if given.only and peer.name not in given.only:
            continue
        rates = tuple(given.rate) or (RATES if peer.is_ours else (0, PEERS_RATE))
        _run(report, peer, rates, seconds)
    partial = bool(given.quick or given.only or given.rate or given.gather)
    report.finish(keep=not partial)
    return 0
