"""Quiet hours: when a recipient's wall clock forbids sending."""

from __future__ import annotations

from bisect import bisect_right
from datetime import timedelta
from functools import lru_cache
from operator import itemgetter
from zoneinfo import ZoneInfo

from penstock.limits.wall import instant, wall_time
from penstock.model.policy import DAY_MINUTES, Day, Quiet, parse_wall

_DAYS = {day: number for number, day in enumerate(Day)}
_ONE_DAY = timedelta(days=1)
_WEEKS = range(-9, 17)
"""Days examined around a moment: two weeks, because a zone may skip a whole day;"""
_DAYS_AROUND = range(-3, 9)
"""fewer where every day has its quiet hours."""

_KEEP_AHEAD = 3_600_000
"""Milliseconds that spans looked up ahead are good for."""


class QuietHours:
    """One quiet policy in one zone: half-open spans of instants, merged where they touch."""

    def __init__(self, policy: Quiet, zone: ZoneInfo) -> None:
        self.zone = zone
        self._start = parse_wall(policy.from_, "from")
        end = parse_wall(policy.to, "to")
        self._end = end if end > self._start else end + DAY_MINUTES
        self._days = frozenset(_DAYS[day] for day in policy.days)
        daily = len(self._days) == len(_DAYS)
        self._around = _DAYS_AROUND if daily else _WEEKS
        self._from = self._until = 0
        self._quiet = False
        self._known: list[tuple[int, int]] = []
        """The spans looked up last: right from the first one's start to the last one's."""
        self._ahead: tuple[int, list[tuple[int, int]]] = (0, [])

    def ends(self, at: int) -> int:
        """The end of the quiet span that `at` lies in; 0 when it is not quiet."""
        if not self._from <= at < self._until:
            self._look(at)
        return self._until if self._quiet else 0

    def begins(self, at: int) -> int:
        """The start of the next quiet span; `at` itself is not quiet."""
        if not self._from <= at < self._until:
            self._look(at)
        return at if self._quiet else self._until

    def ahead(self, at: int) -> list[tuple[int, int]]:
        """The quiet spans of the next days, the one around `at` too."""
        asked, spans = self._ahead
        if not asked <= at < asked + _KEEP_AHEAD:
            spans = self._spans(at, _WEEKS)
            self._ahead = at, spans
        return [span for span in spans if span[1] > at]

    def _look(self, at: int) -> None:
        """Find the span, quiet or not, that holds `at`; most questions that follow are in it."""
        known = self._known
        if not known or not known[0][0] <= at < known[-1][0]:
            known = self._known = self._spans(at, self._around)
        following = bisect_right(known, at, key=itemgetter(0))
        start, end = known[following - 1] if following else (0, 0)
        if at < end:
            self._from, self._until, self._quiet = start, end, True
        elif following < len(known):
            self._from, self._until, self._quiet = end, known[following][0], False
        else:
            raise AssertionError("a week without quiet hours")

    def _spans(self, at: int, around: range) -> list[tuple[int, int]]:
        today = wall_time(at, self.zone).date()
        spans: list[tuple[int, int]] = []
        for ahead in around:
            day = today + ahead * _ONE_DAY
            if day.weekday() not in self._days:
                continue
            start = instant(day, self._start, self.zone, last=False)
            end = instant(day, self._end, self.zone, last=True)
            if spans and start <= spans[-1][1]:
                spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
            elif start < end:
                spans.append((start, end))
        return spans


@lru_cache(maxsize=4096)
def quiet_hours(policy: Quiet, zone: str) -> QuietHours:
    """Shared, because it caches the last span it found."""
    return QuietHours(policy, ZoneInfo(zone))
