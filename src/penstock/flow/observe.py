"""OBSERVE: counters and the lateness histogram, touched once a batch and read by telemetry."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable
from typing import TypeAlias

LATENESS_MS = (1, 2, 3, 5, 8, 13, 20, 35, 60, 100, 200, 500, 1_000, 5_000, 30_000, 300_000)
"""Upper bounds of the lateness buckets; one more bucket holds the rest."""

Listener: TypeAlias = Callable[[str, str, int], None]


class Lateness:
    """released - due, in milliseconds."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(LATENESS_MS) + 1)
        self.count = 0
        self.total = 0
        self.worst = 0
        self.early = 0
        """Must stay 0: something left before it was due."""

    def add(self, lates: Iterable[int]) -> None:
        for late, number in Counter(lates).items():  # few different values in a batch
            self.buckets[bisect_left(LATENESS_MS, late)] += number
            self.count += number
            self.total += late * number
            if late > self.worst:
                self.worst = late
            elif late < 0:
                self.early += number

    def quantile(self, share: float) -> int | None:
        """The upper bound of the bucket where that share of all is reached."""
        if not self.count:
            return None
        want = share * self.count
        seen = 0
        for bound, number in zip((*LATENESS_MS, self.worst), self.buckets, strict=True):
            seen += number
            if seen >= want:
                return min(bound, self.worst)
        return self.worst


class Observer:
    """What this process did since it started, by stage and route."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.lateness: dict[str, Lateness] = {}
        self._listeners: list[Listener] = []

    def count(self, stage: str, route: str, number: int = 1) -> None:
        if number:
            self.counts[stage, route] += number
            for listener in self._listeners:
                listener(stage, route, number)

    def late(self, route: str, lates: Iterable[int]) -> None:
        self.lateness.setdefault(route, Lateness()).add(lates)

    def listen(self, listener: Listener) -> None:
        """Be told (stage, route, number) once a batch."""
        self._listeners.append(listener)

    def total(self, stage: str) -> int:
        return sum(number for (name, _), number in self.counts.items() if name == stage)
