"""What a benchmark prints and keeps: a table for people, JSON lines for machines."""

from __future__ import annotations

import datetime as dt
import json
import os
import platform
import re
import sqlite3
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from operator import ge, gt, le, lt
from pathlib import Path

from rich.console import Console
from rich.table import Table

from penstock.version import __version__

MISSED = "✗ missed"
_AIM = re.compile(r"(>=|<=|≥|≤|<|>) *([\d,.]*\d)( [x×])?")
_SIGNS: dict[str, Callable[[float, float], bool]] = {
    **dict.fromkeys((">=", "≥"), ge),
    **dict.fromkeys(("<=", "≤"), le),
    "<": lt,
    ">": gt,
}
RESULTS = Path(__file__).parent / "results"
console = Console()


@dataclass(frozen=True)
class Row:
    """One line: a figure and, where it has one, the baseline of the same run."""

    what: str
    figure: float
    unit: str
    baseline: float | None = None
    against: str = ""
    aim: str = ""

    @property
    def ratio(self) -> float | None:
        return None if not self.baseline else self.figure / self.baseline

    @property
    def missed(self) -> bool:
        return misses(self.aim, self.figure, self.ratio)


@dataclass
class Report:
    """Collects the rows of one benchmark."""

    name: str
    about: str
    rows: list[Row] = field(default_factory=list)
    begun: float = field(default_factory=time.perf_counter)

    def add(
        self,
        what: str,
        figure: float,
        unit: str,
        *,
        baseline: float | None = None,
        against: str = "",
        aim: str = "",
    ) -> None:
        self.rows.append(Row(what, figure, unit, baseline, against, aim))
        console.print(f"  [dim]{what}: {figure:,.4g} {unit}[/dim]")

    def finish(self, *, keep: bool = True) -> None:
        """Print the table, then one JSON line a row, and keep them under bench/results/."""
        table = Table(title=f"{self.name}: {self.about}", title_justify="left")
        for column in ("what", "figure", "unit", "ratio", "against", "aim"):
            table.add_column(column, justify="right" if column in {"figure", "ratio"} else "left")
        for row in self.rows:
            ratio = "" if row.ratio is None else f"{row.ratio:.2f} x"
            aim = f"{row.aim} {MISSED}" if row.missed else row.aim
            table.add_row(row.what, _number(row.figure), row.unit, ratio, row.against, aim)
        console.print(table)
        lines = [{"bench": self.name, "ratio": row.ratio, **asdict(row)} for row in self.rows]
        for line in lines:
            print(json.dumps(line))
        if not keep:
            return
        RESULTS.mkdir(exist_ok=True)
        seconds = round(time.perf_counter() - self.begun)
        kept = {"about": self.about, "machine": facts(), "seconds": seconds, "rows": lines}
        (RESULTS / f"{self.name}.json").write_text(json.dumps(kept, indent=1) + "\n")


def misses(aim: str, figure: float, ratio: float | None) -> bool:
    """Whether a figure is not what was aimed at; an aim that is no number is never missed."""
    if aim == "0":
        return figure != 0
    wanted = _AIM.match(aim)
    if wanted is None:
        return False
    sign, number, of_ratio = wanted.groups()
    value = ratio if of_ratio else figure
    return value is not None and not _SIGNS[sign](value, float(number.replace(",", "")))


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.3g}"


def facts() -> dict[str, object]:
    """Versions and the machine: a figure without them means nothing."""
    packages = ("uvicorn", "uvloop", "msgspec", "aiohttp")
    clients = ("redis", "hiredis", "grpcio", "confluent-kafka")
    return {
        "when": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "python": sys.version.split()[0],
        "sqlite": sqlite3.sqlite_version,
        "system": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "versions": {
            "penstock": __version__,
            **{name: version(name) for name in (*packages, *clients)},
        },
    }


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor()
