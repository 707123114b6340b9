"""The plots of the comparison as SVG, drawn by hand: readable in a light and in a dark page.

`python -m bench.peers.plots` writes them from bench/results/ into docs/images/.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "bench" / "results"
IMAGES = ROOT / "docs" / "images"

WIDTH = 900
LINE = 22
LABEL = 250
OURS, THEIRS, INK, FAINT = "#2f6fde", "#9aa3ad", "#6b7280", "#d1d5db"
BLUES = ("#1d4ed8", "#38bdf8", "#6366f1", "#0e7490", "#60a5fa")
CURVES = ("#e0662f", "#3f9b5f", "#a05bc4", "#c9a227", "#2aa5a5", "#d1467a", "#8b6b4a", "#5b7f95")
DASHES = ("", "6 3", "2 3")
"""Of the first round of colours, the second, and so on."""


@dataclass(frozen=True)
class Bar:
    label: str
    value: float
    ours: bool


@dataclass(frozen=True)
class Curve:
    label: str
    points: Sequence[tuple[float, float]]
    ours: bool = True


def bars(title: str, unit: str, rows: Sequence[Bar]) -> str:
    """Horizontal bars, longest first, on a scale of powers of ten."""
    rows = sorted((row for row in rows if row.value > 0), key=lambda row: -row.value)
    low = 10 ** math.floor(math.log10(min(row.value for row in rows)))
    high = max(row.value for row in rows)
    room = WIDTH - LABEL - 90

    def length(value: float) -> float:
        return room * (math.log10(value / low) + 0.15) / (math.log10(high / low) + 0.15)

    parts = []
    for number, row in enumerate(rows):
        y = 44 + number * LINE
        width, color = length(row.value), OURS if row.ours else THEIRS
        size = f'width="{width:.1f}" height="{LINE - 6}" rx="2"'
        parts += [
            _text(LABEL - 8, y + 13, row.label, anchor="end", strong=row.ours),
            f'<rect x="{LABEL}" y="{y}" {size} fill="{color}"/>',
            _text(LABEL + width + 6, y + 13, _short(row.value)),
        ]
    return _page(title, f"{unit}, logarithmic scale", 52 + len(rows) * LINE, parts)


def curves(title: str, across: str, up: str, rows: Sequence[Curve], *, share: bool = False) -> str:
    """Lines over a logarithmic axis; `share`: the upright axis is 0-100 %."""
    left, top, width, height = 70, 44, WIDTH - 370, 300
    xs = [x for row in rows for x, _ in row.points]
    low, high = math.log10(min(xs)), math.log10(max(xs))
    most = 1.0 if share else 1.15 * max(y for row in rows for _, y in row.points)

    def place(x: float, y: float) -> tuple[float, float]:
        along = (math.log10(x) - low) / ((high - low) or 1)
        return left + width * along, top + height * (1 - y / most)

    parts = _axes(place, (low, high), most, share)
    parts.append(_text(left + width / 2, top + height + 36, across, anchor="middle"))
    parts.append(_text(left, top - 8, up))
    ours, theirs = iter(BLUES * 4), iter(CURVES * 4)
    seen: Counter[str] = Counter()
    for number, row in enumerate(rows):
        color = next(ours if row.ours else theirs)
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in row.points))
        seen[color] += 1
        dash = DASHES[(seen[color] - 1) % len(DASHES)]
        style = f'fill="none" stroke="{color}" stroke-width="{2.5 if row.ours else 1.5}"'
        style += f' stroke-dasharray="{dash}"' if dash else ""
        y = top + 10 + number * 18
        parts += [
            f'<polyline points="{path}" {style}/>',
            f'<polyline points="{left + width + 16},{y} {left + width + 40},{y}" {style}/>',
            _text(left + width + 46, y + 4, row.label, strong=row.ours),
        ]
    return _page(title, "", max(top + height + 46, top + 20 + len(rows) * 18), parts)


def _axes(
    place: Callable[[float, float], tuple[float, float]],
    decades: tuple[float, float],
    most: float,
    share: bool,
) -> list[str]:
    low, high = decades
    parts = []
    for part in range(5):
        value = most * part / 4
        x, y = place(10**low, value)
        end, _ = place(10**high, value)
        parts.append(f'<line x1="{x}" y1="{y}" x2="{end}" y2="{y}" stroke="{FAINT}"/>')
        words = f"{value:.0%}" if share else _short(value)
        parts.append(_text(x - 6, y + 4, words, anchor="end"))
    for decade in range(math.ceil(low), math.floor(high) + 1):
        x, y = place(10.0**decade, 0)
        parts.append(_text(x, y + 18, _short(10.0**decade), anchor="middle"))
    return parts


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:,.3g}"


def _text(x: float, y: float, words: str, *, anchor: str = "start", strong: bool = False) -> str:
    weight = ' font-weight="600"' if strong else ""
    color = OURS if strong else INK
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}"{weight}>'
        f"{escape(words)}</text>"
    )


def _page(title: str, below: str, height: float, parts: Sequence[str]) -> str:
    font = 'font-family="system-ui, sans-serif" font-size="12" role="img"'
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" {font}>',
        f"<title>{escape(title)}</title>",
        f'<text x="8" y="20" font-size="15" font-weight="600" fill="{INK}">{escape(title)}</text>',
        *([_text(8, 36, below)] if below else []),
    ]
    return "\n".join([*head, *parts, "</svg>"]) + "\n"


def title_of(drawn: str) -> str:
    return drawn.partition("<title>")[2].partition("</title>")[0]


def _figure(one: Mapping[str, Any], *path: str) -> float:
    value: Any = one
    for name in path:
        value = (value or {}).get(name)
    return float(value or 0)


def throughput(peers: Sequence[Mapping[str, Any]], *path: str) -> list[Bar]:
    return [Bar(one["title"], _figure(one, *path), one["ours"]) for one in peers]


def memory(peers: Sequence[Mapping[str, Any]]) -> list[Bar]:
    """What is pending costs on the server and in the worker together."""
    return [
        Bar(
            one["title"],
            _figure(one, "bytes") + max(0.0, _figure(one, "worker_bytes")),
            one["ours"],
        )
        for one in peers
    ]


def distribution(peers: Sequence[Mapping[str, Any]], workload: str) -> list[Curve]:
    """Which share was at most so many ms late; what was early or under 0.1 ms counts as that."""
    found = []
    for one in peers:
        steps = (one.get(workload) or {}).get("steps")
        if steps:
            last = len(steps) - 1
            points = [(max(late, 0.1), n / last) for n, late in enumerate(steps)]
            found.append(Curve(one["title"], points, one["ours"]))
    return found


def growth(peers: Sequence[Mapping[str, Any]]) -> list[Curve]:
    """Megabytes of the server against how many are pending."""
    return [
        Curve(one["title"], [(n, max(0.0, used / 1e6)) for n, used in one["growth"]], one["ours"])
        for one in peers
        if one.get("growth")
    ]


def _pending(rows: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """(pending, µs) of lines that say "a message with 10,000 pending"."""
    words = "a message with "
    return [
        (float(row["what"].removeprefix(words).split()[0].replace(",", "")), row["figure"])
        for row in rows
        if row["what"].startswith(words)
    ]


def drawings(results: Path) -> dict[str, str]:
    """File name → SVG, of whatever results there are."""
    kept = {path.stem: json.loads(path.read_text()) for path in sorted(results.glob("*.json"))}
    found: dict[str, str] = {}
    if "peers" in kept:
        peers = kept["peers"]["peers"]
        unit = "messages a second"
        found["peers-bulk.svg"] = bars("Bulk enqueue", unit, throughput(peers, "bulk"))
        found["peers-single.svg"] = bars("Single enqueue", unit, throughput(peers, "single"))
        burst = throughput(peers, "burst", "drained")
        found["peers-burst.svg"] = bars("A burst of 10,000, drained", unit, burst)
        title = "Bytes a pending message, server and worker"
        found["peers-memory.svg"] = bars(title, "bytes", memory(peers))
        if rows := growth(peers):
            title = "Server memory against how many are pending (SQLite: its file)"
            found["peers-growth.svg"] = curves(title, "pending messages", "MB", rows)
        for name, words in (("burst", "a burst of 10,000"), ("steady", "200/s, 2–10 s ahead")):
            rows = distribution(peers, name)
            found[f"peers-late-{name}.svg"] = curves(
                f"Lateness: {words}", "milliseconds late", "share", rows, share=True
            )
    costs = {"SQLite": kept.get("pending"), "Redis": kept.get("redis")}
    rows = [Curve(name, _pending(one["rows"])) for name, one in costs.items() if one]
    if rows := [row for row in rows if len(row.points) > 1]:
        title = "Cost of a message against how many are pending"
        found["cost-pending.svg"] = curves(title, "pending messages", "µs", rows)
    return found


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for name, drawn in drawings(RESULTS).items():
        (IMAGES / name).write_text(drawn)


if __name__ == "__main__":
    main()
