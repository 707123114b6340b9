"""What the handlers wrote down, and what it says: how late, how many, how often."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

STEPS = 200
"""Parts a distribution is kept in, for the plots."""


@dataclass(frozen=True)
class Came:
    """One call of a handler. Times in microseconds."""

    id: int
    due: int
    now: int

    @property
    def late(self) -> float:
        """Milliseconds."""
        return (self.now - self.due) / 1000


def read(path: Path, first: int = 0, number: int = 1 << 60) -> list[Came]:
    """Every call for those ids, in order; a last line that is not whole is left out."""
    if not path.exists():
        return []
    whole, _, _ = path.read_bytes().rpartition(b"\n")
    found = []
    for line in whole.splitlines():
        name, due, now = map(int, line.split())
        if first <= name < first + number:
            found.append(Came(name, due * 1000, now))
    return found


def count(path: Path) -> int:
    """How many calls so far, without looking at them."""
    return path.read_bytes().count(b"\n") if path.exists() else 0


def wait_for(path: Path, number: int, seconds: float, step: float = 0.05) -> bool:
    """Whether so many calls were written down within that time."""
    deadline = time.monotonic() + seconds
    while count(path) < number:
        if time.monotonic() > deadline:
            return False
        time.sleep(step)
    return True


def wait_while_any(path: Path, number: int, pause: float, most: float) -> None:
    """Until so many calls were written down, none for so long, or that long altogether."""
    begun = seen = time.monotonic()
    before = -1
    while (now := count(path)) < number:
        moment = time.monotonic()
        if now != before:
            before, seen = now, moment
        if moment - seen > pause or moment - begun > most:
            return
        time.sleep(0.2)


def quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[int(share * (len(ordered) - 1))]


def lateness(came: Sequence[Came]) -> dict[str, object]:
    """p50, p99, how many were early and by how much, and the distribution in steps."""
    lates = sorted(one.late for one in came)
    return {
        "p50": round(quantile(lates, 0.5), 3),
        "p99": round(quantile(lates, 0.99), 3),
        "max": round(lates[-1], 3),
        "early": sum(late < 0 for late in lates),
        "earliest": round(min(0.0, lates[0]), 3),
        "steps": [round(quantile(lates, n / STEPS), 2) for n in range(STEPS + 1)],
    }


def drained(came: Sequence[Came]) -> float:
    """Messages a second from the moment they were due to the last call."""
    took = max(one.now for one in came) - min(one.due for one in came)
    return len(came) / max(took, 1) * 1e6


def repeats(came: Sequence[Came], number: int) -> tuple[int, int]:
    """(ids that never came, calls beyond the first of an id)."""
    names = {one.id for one in came}
    return number - len(names), len(came) - len(names)
