"""The comparison as people and machines read it: a table, JSON lines, and the file that is kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.peers.table import Peer

Result = Mapping[str, Any]
"""What is kept of a peer: name, title, settings, versions, lacks and its figures."""

COLUMNS = (
    "",
    "bulk/s",
    "single/s",
    "64 callers/s",
    "burst drained/s",
    "burst p50 · p99 ms",
    "steady p50 · p99 ms",
    "bytes a message: server + worker",
    "early",
    "kill -9: lost · twice",
)
NONE = "–"
WIDTH = 170


def result(peer: Peer, versions: Mapping[str, str], figures: Result) -> dict[str, object]:
    return {
        "name": peer.name,
        "title": peer.title,
        "ours": peer.is_ours,
        "server": peer.server,
        "settings": peer.settings,
        "versions": dict(versions),
        "lacks": peer.lacks,
        **figures,
    }


def with_more(one: Result, again: Result) -> dict[str, Any]:
    """What was measured of a peer, with enqueues that were measured again."""
    samples = {
        name: [*rates, *again["samples"].get(name, [])] for name, rates in one["samples"].items()
    }
    medians = {name: round(median(rates)) for name, rates in samples.items()}
    return {**one, "samples": samples, **medians}


def with_part(one: Result, again: Result, part: str) -> dict[str, Any]:
    """What was measured of a peer, with one part that was measured again."""
    failed = {name: why for name, why in one.get("failed", {}).items() if name != part}
    failed |= again.get("failed", {})
    both = {**one, **again, "failed": failed}
    return both if failed else {name: value for name, value in both.items() if name != "failed"}


def cells(one: Result) -> list[str]:
    """A line of the table; what is not there is a dash, and `reasons` says why."""
    burst, steady, kill = (one.get(name) or {} for name in ("burst", "steady", "kill"))
    early = [part["early"] for part in (burst, steady) if part]
    return [
        str(one["title"]),
        *(_number(one.get(name)) for name in ("bulk", "single", "at_once")),
        _number(burst.get("drained")),
        _pair(burst.get("p50"), burst.get("p99")),
        _pair(steady.get("p50"), steady.get("p99")),
        _bytes(one),
        f"{sum(early):,}" if early else NONE,
        f"{kill['lost']:,} · {kill['twice']:,}" if kill else NONE,
    ]


def _bytes(one: Result) -> str:
    if (one.get("bytes") or 0) <= 0:  # it grew by less than its process breathes
        return NONE
    extra = one.get("worker_bytes") or 0
    on_disk = " on disk" if one["server"] in ("sqlite", "postgres") else ""
    return f"{_number(one['bytes'])}{on_disk}" + (f" + {_number(extra)}" if extra >= 50 else "")


def _pair(low: float | None, high: float | None) -> str:
    return NONE if low is None else f"{_number(low)} · {_number(high)}"


def _number(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:,.1f}"


def reasons(results: Sequence[Result]) -> list[str]:
    """Why a cell is a dash, one sentence each."""
    found = []
    for one in results:
        found += [f"{one['title']}: {what}: {why}" for what, why in one["lacks"].items()]
        for what, why in one.get("failed", {}).items():
            first = str(why).strip().splitlines()
            found.append(f"{one['title']}: {what} failed: {first[-1] if first else 'no word'}")
        for what in ("burst", "steady"):
            if (one.get(what) or {}).get("missing"):
                found.append(f"{one['title']}: {what}: {one[what]['missing']:,} did not come")
    return found


def print_table(console: Console, results: Sequence[Result]) -> None:
    shown = Table(title="Penstock and its peers, one run", title_justify="left")
    for number, column in enumerate(COLUMNS):
        shown.add_column(column, justify="right" if number else "left")
    for one in results:
        shown.add_row(*cells(one))
    Console(width=max(console.width, WIDTH)).print(shown)
    for reason in reasons(results):
        console.print(f"[dim]{reason}[/dim]", highlight=False)


def lines(results: Sequence[Result]) -> list[str]:
    """A JSON line a peer, without the steps of its distributions."""
    return [json.dumps(_without_steps(one)) for one in results]


def _without_steps(one: Result) -> dict[str, object]:
    return {
        name: {k: v for k, v in value.items() if k != "steps"} if isinstance(value, dict) else value
        for name, value in one.items()
    }


def keep(path: Path, about: str, machine: Mapping[str, object], results: Sequence[Result]) -> None:
    path.parent.mkdir(exist_ok=True)
    kept = {"about": about, "machine": machine, "peers": results}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def behind(results: Sequence[Result]) -> list[str]:
    """What of ours is behind whom, figure by figure."""
    found = []
    for column, value, more_is_better in COMPARED:
        known = [(one, number) for one in results if (number := value(one)) is not None]
        for one, ours in known:
            better = [
                (number, str(peer["title"]))
                for peer, number in known
                if not peer["ours"] and (number > ours if more_is_better else number < ours)
            ]
            if one["ours"] and better:
                names = "; ".join(name for _, name in sorted(better, reverse=more_is_better))
                found.append(f"{column}: {one['title']} ({_number(ours)}) is behind {names}")
    return found


def _of(part: str, name: str) -> Callable[[Result], float | None]:
    return lambda one: (one.get(part) or {}).get(name)


def _pending_bytes(one: Result) -> float | None:
    bytes_ = one.get("bytes") or 0
    return bytes_ + (one.get("worker_bytes") or 0) if bytes_ > 0 else None


COMPARED: tuple[tuple[str, Callable[[Result], float | None], bool], ...] = (
    ("bulk/s", lambda one: one.get("bulk"), True),
    ("single/s", lambda one: one.get("single"), True),
    ("64 callers/s", lambda one: one.get("at_once"), True),
    ("burst drained/s", _of("burst", "drained"), True),
    ("steady p99 ms", _of("steady", "p99"), False),
    ("bytes, server and worker", _pending_bytes, False),
    ("twice after kill -9", _of("kill", "twice"), False),
)
"""Column, its figure, and whether more of it is better."""


def markdown(kept: Mapping[str, Any]) -> str:
    """The README's table: every peer, every figure, and what the figures depend on."""
    results = kept["peers"]
    head = ["| " + " | ".join(COLUMNS) + " |", "|---|" + "--:|" * (len(COLUMNS) - 1)]
    rows = ["| " + " | ".join(_bold(one, cells(one))) + " |" for one in results]
    notes = [f"- {reason}" for reason in reasons(results)]
    losses = [f"- {loss}" for loss in behind(results)]
    said = [*notes, *([""] if notes else [])]
    if losses:
        said += ["**Where Penstock is behind in this run:**", "", *losses, ""]
    return "\n".join([*head, *rows, "", *said])


def _bold(one: Result, words: list[str]) -> list[str]:
    return [f"**{words[0]}**", *words[1:]] if one["ours"] else words


def settings(kept: Mapping[str, Any]) -> str:
    """What each was given, with the versions that were installed."""
    lines = ["| | settings | versions |", "|---|---|---|"]
    for one in kept["peers"]:
        versions = ", ".join(f"{name} {number}" for name, number in one["versions"].items())
        lines.append(f"| {one['title']} | {one['settings']} | {versions} |")
    servers = ", ".join(f"{name} {number}" for name, number in kept["machine"]["servers"].items())
    return "\n".join([*lines, "", f"Servers: {servers}.", ""])
