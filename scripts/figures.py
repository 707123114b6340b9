"""Writes the README's figures from bench/results/: what a benchmark printed is what is shown."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.__main__ import ORDER  # noqa: E402 - found only from here on

RESULTS = ROOT / "bench" / "results"
_MARKED = re.compile(r"(<!-- figures -->\n).*?(<!-- /figures -->)", re.DOTALL)


def figures() -> str:
    """A table a benchmark, with the machine it ran on."""
    kept = {name: RESULTS / f"{name}.json" for name in ORDER}
    found = {name: json.loads(path.read_text()) for name, path in kept.items() if path.exists()}
    parts = [_table(name, result) for name, result in found.items()]
    machine = next(iter(found.values()))["machine"] if found else {}
    return "\n".join([*parts, _machine(machine)])


def _table(name: str, result: dict[str, Any]) -> str:
    lines = [f"**{result['about']}** (`python -m bench {name}`)", ""]
    lines += ["| | | ratio | aim |", "|---|--:|---|---|"]
    for row in result["rows"]:
        figure = row["figure"]
        shown = f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:,.3g}"
        ratio = "" if row["ratio"] is None else f"{row['ratio']:.2f} × {row['against']}"
        aim = row["aim"].replace(">=", "≥").replace("<=", "≤").replace(" x", " ×")
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
    readme = ROOT / "README.md"
    text = readme.read_text()
    readme.write_text(_MARKED.sub(lambda match: match[1] + figures() + match[2], text))


if __name__ == "__main__":
    main()
