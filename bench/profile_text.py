"""Samples of py-spy → a page one can read and compare: who takes the time, and for whom."""

from __future__ import annotations

import re
from collections import Counter

SHOWN = 30
_PLACES = re.compile(r"[^\s(]*/(?:site-packages|src|lib/python[\d.]+)/")
_HERE = re.compile(r"\((?:\S*/)?bench/")


def summary(about: str, raw: str) -> str:
    """`raw`: lines of "frame;frame;frame samples", outermost first, as py-spy writes them."""
    own: Counter[str] = Counter()
    within: Counter[str] = Counter()
    total = 0
    for line in raw.splitlines():
        stack, _, number = line.rpartition(" ")
        if not number.isdigit() or not stack:
            continue
        frames = [_short(frame) for frame in stack.split(";")]
        total += int(number)
        own[frames[-1]] += int(number)
        for frame in set(frames):
            within[frame] += int(number)
    return "\n".join(
        [
            f"{about}: {total:,} samples of a busy interpreter",
            "",
            *_table("itself", own, total),
            "",
            *_table("with what it calls", within, total),
            "",
        ]
    )


def _table(title: str, counted: Counter[str], total: int) -> list[str]:
    return [
        f"  % {title}",
        *(f"{100 * n / total:5.1f} {name}" for name, n in counted.most_common(SHOWN)),
    ]


def _short(frame: str) -> str:
    """Without the machine's folders and without the line."""
    name = _PLACES.sub("", frame)
    name = _HERE.sub("(bench/", name)
    return re.sub(r":\d+\)$", ")", name)
