"""Durations in milliseconds: a histogram that is cheap to fill and can be added up."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterable

import msgspec

LATENESS_MS = (1, 2, 3, 5, 8, 13, 20, 35, 60, 100, 200, 500, 1_000, 5_000, 30_000, 300_000)
"""Upper bounds of the buckets; one more bucket holds the rest."""


def _empty() -> list[int]:
    return [0] * (len(LATENESS_MS) + 1)


class Lateness(msgspec.Struct, kw_only=True):
    """Lateness (released - due) or send durations, in milliseconds."""

    buckets: list[int] = msgspec.field(default_factory=_empty)
    count: int = 0
    total: int = 0
    worst: int = 0
    early: int = 0
    """Must stay 0: counts messages sent before they were due."""

    def add(self, lates: Iterable[int]) -> None:
        for late, number in Counter(lates).items():  # few different values in a batch
            self.put(late, number)

    def put(self, late: int, number: int) -> None:
        """Add the same value `number` times."""
        self.buckets[bisect_left(LATENESS_MS, late)] += number
        self.count += number
        self.total += late * number
        if late > self.worst:
            self.worst = late
        elif late < 0:
            self.early += number

    def merge(self, other: Lateness) -> None:
        """Add another process's histogram; one with other buckets is ignored."""
        if len(other.buckets) != len(self.buckets):
            return
        self.buckets = [mine + more for mine, more in zip(self.buckets, other.buckets, strict=True)]
        self.count += other.count
        self.total += other.total
        self.worst = max(self.worst, other.worst)
        self.early += other.early

    def since(self, before: Lateness) -> Lateness:
        """The values added since an earlier snapshot; empty if this one has fewer."""
        if self.count <= before.count:
            return Lateness()
        pairs = zip(self.buckets, before.buckets, strict=True)
        return Lateness(
            buckets=[max(0, now - then) for now, then in pairs],
            count=self.count - before.count,
            total=self.total - before.total,
            worst=self.worst,
            early=self.early - before.early,
        )

    def quantile(self, share: float) -> int | None:
        """The upper bound of the bucket in which that share of all values is reached."""
        if not self.count:
            return None
        want = share * self.count
        seen = 0
        for bound, number in zip((*LATENESS_MS, self.worst), self.buckets, strict=True):
            seen += number
            if seen >= want:
                return min(bound, self.worst)
        return self.worst
