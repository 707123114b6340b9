"""Durations as a histogram with a recent maximum."""

from __future__ import annotations

from bisect import bisect_left

DURATION_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)
"""Upper bounds of the buckets; one more bucket holds the rest."""
WINDOW_SECONDS = 60.0
"""The maximum covers this window and the one before, as monitoring wants a maximum that decays."""


class Durations:
    """Seconds by bucket, their number and sum, and the maximum of the last 1-2 minutes."""

    def __init__(self) -> None:
        self.buckets = [0] * (len(DURATION_SECONDS) + 1)
        self.count = 0
        self.total = 0.0
        self._window = 0
        self._longest = self._before = 0.0

    def add(self, seconds: float, now: float) -> None:
        """Add a duration; `now` is in seconds on any monotonic clock."""
        self.buckets[bisect_left(DURATION_SECONDS, seconds)] += 1
        self.count += 1
        self.total += seconds
        self._roll(now)
        self._longest = max(self._longest, seconds)

    def longest(self, now: float) -> float:
        self._roll(now)
        return max(self._longest, self._before)

    def _roll(self, now: float) -> None:
        window = int(now // WINDOW_SECONDS)
        if window != self._window:
            self._before = self._longest if window == self._window + 1 else 0.0
            self._window, self._longest = window, 0.0
