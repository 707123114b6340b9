"""Writes the figures of README.md and docs/benchmarks/ from bench/results/.

What a benchmark printed is what is shown; the plots go into docs/images/.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.__main__ import ORDER  # noqa: E402 - found only from here on
from bench.peers import plots, report  # noqa: E402
from bench.report import MISSED, misses  # noqa: E402

RESULTS = ROOT / "bench" / "results"
LONG = ("recurring_kill", "recurring_peers")
"""Benchmarks that `make bench` leaves out because they take long."""
BENCHMARKS = ROOT / "docs" / "benchmarks"


def figures() -> str:
    """A table a benchmark, with the machine it ran on."""
    found = _results()
    parts = [_table(name, result) for name, result in found.items()]
    machine = next(iter(found.values()))["machine"] if found else {}
    return "\n".join([*parts, _machine(machine)])


def rows() -> list[dict[str, Any]]:
    """Every line of every benchmark."""
    return [row for result in _results().values() for row in result["rows"]]


def _results() -> dict[str, dict[str, Any]]:
    kept = {name: RESULTS / f"{name}.json" for name in (*ORDER, *LONG)}
    return {name: json.loads(path.read_text()) for name, path in kept.items() if path.exists()}


def peers() -> str:
    """Penstock and its peers in one table."""
    kept = RESULTS / "peers.json"
    if not kept.exists():
        return "No results yet: `make bench-peers`.\n"
    found = json.loads(kept.read_text())
    return f"{report.markdown(found)}\n{found['about']}. {_machine(found['machine'])}"


def settings() -> str:
    """What each was given, and in which versions."""
    kept = RESULTS / "peers.json"
    if not kept.exists():
        return "No results yet.\n"
    return report.settings(json.loads(kept.read_text()))


def filled(text: str, mark: str, words: str) -> str:
    """The page with what stands between its marks replaced."""
    between = re.compile(rf"(<!-- {mark} -->\n).*?(<!-- /{mark} -->)", re.DOTALL)
    return between.sub(lambda match: match[1] + words + match[2], text)


HEADLINES = {
    "1,000 messages a second come due while as many are put, SQLite": (
        "lateness",
        "late p50 {} ms, p99 {} ms",
        ("while as many are put: p50", "while as many are put: p99"),
    ),
    "the same rate, Redis with AOF": (
        "redis",
        "late p50 {} ms, p99 {} ms",
        ("1,000/s coming due: p50", "1,000/s coming due: p99"),
    ),
    "one message per request, 64 connections, sent by a bare load generator, SQLite": (
        "http",
        "{} requests a second",
        ("POST /v1/messages",),
    ),
    "a backlog through claim, a sink that does nothing, settle: one worker, Redis with AOF": (
        "redis",
        "{} messages a second",
        ("claim, no-op sink, settle",),
    ),
}
"""What the README shows: the condition → benchmark, words, its rows."""


def speed() -> str:
    """The four numbers of the README."""
    found = _results()
    lines = ["| | |", "|---|---|"]
    for condition, (name, words, wanted) in HEADLINES.items():
        rows_by_name = {row["what"]: f"{row['figure']:,.0f}" for row in found[name]["rows"]}
        shown = (rows_by_name[one] for one in wanted)
        lines.append(f"| {condition} | {words.format(*shown).replace('p50 0', 'p50 below 1')} |")
    return "\n".join([*lines, "", _machine(found["lateness"]["machine"])])


def pages() -> dict[Path, str]:
    """Every page with generated parts, as it should be."""
    parts: dict[Path, dict[str, str]] = {
        ROOT / "README.md": {"speed": speed()},
        BENCHMARKS / "figures.md": {"figures": figures()},
        BENCHMARKS / "peers.md": {"peers": peers(), "plots": drawn(), "settings": settings()},
    }
    found = {}
    for page, marks in parts.items():
        found[page] = page.read_text()
        for mark, words in marks.items():
            found[page] = filled(found[page], mark, words)
    return found


def drawn() -> str:
    """Every plot there is."""
    names = plots.drawings(RESULTS)
    return "".join(f"![{plots.title_of(text)}](../images/{name})\n" for name, text in names.items())


def _table(name: str, result: dict[str, Any]) -> str:
    command, when = name.replace("_peers", "-peers"), result["machine"]["when"][:10]
    lines = [f"**{result['about']}** (`python -m bench {command}`, {when})", ""]
    lines += ["| | | ratio | aim |", "|---|--:|---|---|"]
    for row in result["rows"]:
        figure = row["figure"]
        shown = f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:,.3g}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f} × {row['against']}"
        aim = row["aim"].replace(">=", "≥").replace("<=", "≤").replace(" x", " ×")
        if misses(row["aim"], figure, row["ratio"]):
            aim += f" {MISSED}"
        lines.append(f"| {row['what']} | {shown} {row['unit']} | {ratio} | {aim} |")
    return "\n".join([*lines, ""])


def _machine(facts: dict[str, Any]) -> str:
    if not facts:
        return "No results yet.\n"
    return (
        f"{facts['when'][:10]}, {facts['cpu']}, {facts['cores']} cores, Python {facts['python']}, "
        f"SQLite {facts['sqlite']}; client, server and store share the cores.\n"
    )


def main() -> None:
    for page, text in pages().items():
        page.write_text(text)
    plots.main()


if __name__ == "__main__":
    main()
