"""Makes docs/images/ticks.svg: `make ticks` in a terminal, as it was, played in an SVG.

Run it on a quiet machine; `--for` is how long the system runs, `--speed` how fast it is played.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILE = ROOT / "docs" / "images" / "ticks.svg"
COLUMNS, ROWS = 104, 24
CHAR, LINE = 7.85, 18
LONGEST = 1.2
"""Seconds of a pause at most, as it is played."""
HOLD = 6.0
"""Seconds the end is shown before it begins again."""
COLOURS = ("#7dd3fc", "#86efac", "#fca5a5", "#fcd34d", "#c4b5fd", "#f9a8d4", "#5eead4")


def record(span: str) -> list[tuple[float, str]]:
    """Every line with the second it came in."""
    command = [sys.executable, "-m", "systems", "ticks", "--for", span]
    begun = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    lines = []
    for line in process.stdout or ():
        print(line, end="")
        lines.append((time.monotonic() - begun, line.rstrip("\n")))
    if process.wait():
        sys.exit("the verdict does not hold: nothing is written")
    return lines


def played(lines: list[tuple[float, str]], speed: float) -> list[tuple[float, str]]:
    """The same lines at the seconds they are shown, after the command."""
    shown, at, before = [(0.6, "$ make ticks FOR=0")], 1.4, 0.0
    for second, line in lines:
        at += min(LONGEST, (second - before) / speed)
        before = second
        shown.append((at, line))
    return shown


def drawing(shown: list[tuple[float, str]], span: str) -> str:
    end = shown[-1][0] + HOLD
    width, height = round(COLUMNS * CHAR) + 32, ROWS * LINE + 56
    parts = [
        (
            '<svg xmlns="http://www.w3.org/2000/svg"'
            f' viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
            ' font-family="ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace"'
            ' font-size="13" role="img" aria-label="make ticks, to its verdict">'
        ),
        f'<rect width="{width}" height="{height}" rx="8" fill="#0f172a"/>',
        (
            '<g fill="#475569"><circle cx="18" cy="16" r="5"/><circle cx="34" cy="16" r="5"/>'
            '<circle cx="50" cy="16" r="5"/></g>'
        ),
        f'<svg x="16" y="34" width="{width - 32}" height="{ROWS * LINE + 6}"><g>',
        _scroll([at for at, _ in shown], end),
    ]
    colours: dict[str, str] = {}
    for number, (at, line) in enumerate(shown):
        text = line.replace("FOR=0", f"FOR={span}") if number == 0 else line
        parts.append(_line(number, at / end, end, text, colours))
    parts += ["</g></svg>", "</svg>\n"]
    return "\n".join(parts)


def _scroll(moments: list[float], end: float) -> str:
    """One row up for each line beyond the last row."""
    moves = [(at / end, -LINE * place) for place, at in enumerate(moments[ROWS:], 1)]
    times = ";".join(["0", *(f"{at:.4f}" for at, _ in moves)])
    values = ";".join(["0 0", *(f"0 {up}" for _, up in moves)])
    return (
        '<animateTransform attributeName="transform" type="translate" calcMode="discrete"'
        f' dur="{end:.1f}s" repeatCount="indefinite" keyTimes="{times}" values="{values}"/>'
    )


def _line(number: int, at: float, end: float, text: str, colours: dict[str, str]) -> str:
    cut = text if len(text) <= COLUMNS else text[: COLUMNS - 1] + "…"
    process, bar, rest = cut.partition(" | ")
    appears = (
        f'<animate attributeName="opacity" calcMode="discrete" dur="{end:.1f}s"'
        f' repeatCount="indefinite" keyTimes="0;{at:.4f}" values="0;1"/>'
    )
    place = f'<text xml:space="preserve" y="{(number + 1) * LINE - 4}"'
    if bar:
        name = process.strip()
        colour = colours.setdefault(name, COLOURS[len(colours) % len(COLOURS)])
        words = f'<tspan fill="{colour}">{escape(process)} |</tspan> {escape(rest)}'
    else:
        words = escape(cut)
    return f'{place} fill="#e2e8f0">{appears}{words}</text>'


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--for", dest="span", default="10s")
    parser.add_argument("--speed", type=float, default=2.0)
    wanted = parser.parse_args()
    FILE.write_text(drawing(played(record(wanted.span), wanted.speed), wanted.span))
    print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
