"""HISTORY: the last twenty minutes of the fleet, one point per second, in bounded memory."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from penstock.model.lateness import Lateness
from penstock.model.status_view import HistoryPoint, HistoryView
from penstock.model.times import format_moment

STEP_MS = 1_000
LENGTH = 1_200
"""Points: twenty minutes."""
MAX_GAP = 30
"""Seconds without a look over which a difference is spread; a longer gap stays unknown."""
RATES: Mapping[str, tuple[str, ...]] = {
    "accepted": ("accepted",),
    "released": ("released",),
    "delivered": ("delivered",),
    "failed": ("retry", "dead"),
    "deferred": ("deferred",),
    "blocked": ("blocked",),
}
"""Name of a curve → the stages that add up to it."""


class _Point(msgspec.Struct, frozen=True):
    rates: dict[str, float | None]
    pending: int | None
    p50: int | None
    p99: int | None

    def curves(self) -> dict[str, float | None]:
        return {
            **self.rates,
            "pending": self.pending,
            "late_p50": self.p50,
            "late_p99": self.p99,
        }


_UNKNOWN = _Point(dict.fromkeys(RATES), None, None, None)


class History:
    """Records the fleet's totals once per second."""

    def __init__(self) -> None:
        self._points: deque[_Point] = deque([_UNKNOWN] * LENGTH, maxlen=LENGTH)
        self._second = 0
        self._totals: Mapping[str, int] | None = None
        self._lateness = Lateness()

    def add(
        self, now: int, totals: Mapping[str, int], lateness: Lateness, pending: int | None
    ) -> None:
        second = now // STEP_MS
        gap = second - self._second
        if gap == 0:
            return  # the next record includes it
        before, self._totals = self._totals, dict(totals)
        fresh, self._lateness = lateness.since(self._lateness), _copy(lateness)
        if before is None or not 0 < gap <= MAX_GAP:
            missing = min(max(gap, 1), LENGTH) if before is not None else 1
            self._points.extend([_UNKNOWN] * (missing - 1))
            self._points.append(_Point(_UNKNOWN.rates, pending, None, None))
            self._second = second
            return
        rates: dict[str, float | None] = {}
        for name, stages in RATES.items():
            more = sum(totals.get(stage, 0) - before.get(stage, 0) for stage in stages)
            rates[name] = max(0, more) if gap == 1 else round(max(0, more) / gap, 1)
        point = _Point(rates, pending, fresh.quantile(0.5), fresh.quantile(0.99))
        self._points.extend([point] * gap)
        self._second = second

    def newest(self) -> HistoryPoint:
        """The newest point, for readers that have all earlier ones."""
        at = format_moment(self._second * STEP_MS)
        return HistoryPoint(at=at, points=self._points[-1].curves())

    def view(self, now: int) -> HistoryView:
        """Every point of the window; points before the first record are unknown."""
        last = self._second if self._totals is not None else now // STEP_MS
        curves = [point.curves() for point in self._points]
        points = {name: [each[name] for each in curves] for name in _UNKNOWN.curves()}
        first = (last - LENGTH + 1) * STEP_MS
        return HistoryView(step=STEP_MS // 1000, from_=format_moment(first), points=points)


def _copy(lateness: Lateness) -> Lateness:
    copied = Lateness()
    copied.merge(lateness)
    return copied
