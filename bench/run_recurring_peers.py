"""Recurring rules beside other schedulers: `python -m bench recurring-peers [NAME …] [--rules N]`.

Each has the same rules, all of them due at every whole minute, and three minutes to live through:
one process at work; a second one beside it; and none when the minute begins, because a deploy has
stopped both 5 s before and starts one 5 s after. A rule's moment must be handled once: not at all
is `missed`, again is `again`. How late the first minute's were is told as p50 and p99.

One after the other takes 3 minutes for each. `--together` runs all at once, to see that they work:
its times mean nothing and are not kept.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from argparse import ArgumentParser
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.peers.drive import ROOT, Failed, Process
from bench.peers.environments import ADAPTERS, NotMade, environment
from bench.report import Report, console
from systems.servers.redis import RedisServer

RULES = 1_000
MINUTE = 60.0
LEAD = 20.0
"""Seconds before the first minute in which a process must have started."""
SETTLED = 15.0
"""Seconds after a minute has begun at which the next process is started."""
DEPLOY = 5.0
"""Seconds before and after the third minute in which nothing runs."""
CAUGHT_UP = 30.0
"""Seconds after the third minute at which all is counted."""
PUT_SECONDS = 300


@dataclass(frozen=True)
class Scheduler:
    """A scheduler and what it keeps its rules in."""

    name: str
    title: str
    place: str
    adapter: str
    on: str


SCHEDULERS = (
    Scheduler("penstock-sqlite", "Penstock, SQLite", "penstock", "penstock_recurring.py", "sqlite"),
    Scheduler("penstock-redis", "Penstock, Redis", "penstock", "penstock_recurring.py", "redis"),
    Scheduler(
        "apscheduler3",
        "APScheduler 3, SQLite",
        "apscheduler3",
        "apscheduler3_recurring.py",
        "sqlite",
    ),
    Scheduler(
        "apscheduler4",
        "APScheduler 4, SQLite",
        "apscheduler4",
        "apscheduler4_recurring.py",
        "sqlite",
    ),
    Scheduler("celery", "Celery beat, Redis", "celery", "celery_recurring.py", "redis"),
    Scheduler("bullmq", "BullMQ, Redis", "bullmq", "bullmq_recurring.mjs", "redis"),
)


@dataclass(frozen=True)
class Minute:
    """What became of every rule's moment at one whole minute."""

    missed: int
    again: int
    late: tuple[float, ...]
    """Milliseconds, of the first time that each was handled."""


def main(*words: str) -> int:
    asked = ArgumentParser(prog="python -m bench recurring-peers", description=__doc__)
    asked.add_argument("names", nargs="*", metavar="NAME", help="these alone")
    asked.add_argument("--rules", type=int, default=RULES)
    asked.add_argument("--together", action="store_true")
    given = asked.parse_args(words)
    wanted = [one for one in SCHEDULERS if not given.names or one.name in given.names]
    if len(wanted) < len(given.names):
        print(f"there are: {', '.join(one.name for one in SCHEDULERS)}", file=sys.stderr)
        return 2
    report = Report("recurring_peers", f"{given.rules:,} rules at the same minute, side by side")
    with ThreadPoolExecutor(len(wanted) if given.together else 1) as pool:
        for one, found in zip(
            wanted, pool.map(lambda one: _run(one, given.rules), wanted), strict=True
        ):
            if isinstance(found, str):
                console.print(f"[bold]{one.title}[/bold]: {found}")
                continue
            _add(report, one, found)
    report.finish(keep=not given.together and not given.names)
    return 0


def _add(report: Report, one: Scheduler, found: Sequence[Minute]) -> None:
    aim = "0" if one.place == "penstock" else ""
    for minute, what in zip(found, ("one process", "two processes", "a deploy"), strict=True):
        report.add(f"{one.title}: {what}, missed", minute.missed, "moments", aim=aim)
        report.add(f"{one.title}: {what}, again", minute.again, "moments", aim=aim)
    late = sorted(found[0].late)
    if late:
        report.add(f"{one.title}: late p50", statistics.median(late), "ms")
        report.add(f"{one.title}: late p99", late[int(len(late) * 0.99)], "ms")


def _run(one: Scheduler, rules: int) -> list[Minute] | str:
    """The three minutes, or why there are none."""
    try:
        with (
            tempfile.TemporaryDirectory(prefix="penstock-recurring-") as name,
            ExitStack() as stack,
        ):
            folder = Path(name)
            url = f"sqlite:///{folder}/rules.db"
            if one.on == "redis":
                url = stack.enter_context(RedisServer(aof=True)).url
            return _live(one, folder, url, rules)
    except (Failed, NotMade) as exc:
        return f"failed: {exc}"


def _live(one: Scheduler, folder: Path, url: str, rules: int) -> list[Minute]:
    _put(one, folder, url, rules)
    first = time.time() + LEAD
    first += MINUTE - first % MINUTE
    second, third = first + MINUTE, first + 2 * MINUTE
    with _process(one, folder, url, rules, "one"):
        _sleep_until(first + SETTLED)
        with _process(one, folder, url, rules, "two"):
            _sleep_until(third - DEPLOY)
    _sleep_until(third + DEPLOY)
    with _process(one, folder, url, rules, "one"):
        _sleep_until(third + CAUGHT_UP)
    handled = _read(folder / "came")
    return [_minute(handled, round(at * 1000), rules) for at in (first, second, third)]


def _put(one: Scheduler, folder: Path, url: str, rules: int) -> None:
    process = _start(one, folder, url, rules, "put")
    deadline = time.monotonic() + PUT_SECONDS
    while process.is_up:
        if time.monotonic() > deadline:
            process.end()
            raise Failed(f"its rules are not put: {process.last_words()}")
        time.sleep(0.05)
    if process.status:
        raise Failed(f"its rules are not put: {process.last_words()}")


@contextmanager
def _process(one: Scheduler, folder: Path, url: str, rules: int, which: str) -> Iterator[Process]:
    process = _start(one, folder, url, rules, which)
    try:
        yield process
        if not process.is_up:
            raise Failed(f"it ended: {process.last_words()}")
    finally:
        process.end()


def _start(one: Scheduler, folder: Path, url: str, rules: int, which: str) -> Process:
    place = environment(one.place)
    node = one.adapter.endswith(".mjs")
    program = [place.program("node"), str(place.folder / one.adapter)]
    if not node:
        program = [place.program("python"), str(ADAPTERS / one.adapter)]
    env = {
        **os.environ,
        "PYTHONPATH": str(ROOT / "src"),
        "PEERS_URL": url,
        "PEERS_OUT": str(folder / "came"),
        "PEERS_RULES": str(rules),
        "PEERS_PLACE": which,
    }
    word = "put" if which == "put" else "run"
    return Process([*program, word], folder, env, folder / f"{which}.log")


def _read(came: Path) -> dict[tuple[str, int], list[float]]:
    """Rule and moment → when it was handled, in ms."""
    found: dict[tuple[str, int], list[float]] = defaultdict(list)
    for line in came.read_text().splitlines() if came.exists() else ():
        rule, moment, at = line.split()
        found[rule, int(moment)].append(int(at) / 1000)
    return found


def _minute(handled: dict[tuple[str, int], list[float]], moment: int, rules: int) -> Minute:
    times = [handled.get((str(rule), moment), []) for rule in range(rules)]
    return Minute(
        missed=sum(not one for one in times),
        again=sum(max(0, len(one) - 1) for one in times),
        late=tuple(min(one) - moment for one in times if one),
    )


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.time()))
