"""The time a cap looks back on: rolling, or from one turn of the calendar to the next."""

from __future__ import annotations

from datetime import datetime, timedelta
from functools import lru_cache
from typing import TypeAlias
from zoneinfo import ZoneInfo

from penstock.limits.wall import instant, wall_time
from penstock.model.policy import Calendar
from penstock.model.times import format_duration

HOUR_MS = 3_600_000
GRAINS = 256
"""A cap that counts more than EXACT remembers its sends in this many steps of its window."""
EXACT = 100
_ZONES_APART_MS = 27 * HOUR_MS


class Rolling:
    """A send counts until exactly `length` ms after it."""

    def __init__(self, length: int, written: str = "") -> None:
        self.length = length
        self.text = f"in {written or format_duration(length)}"
        self.keeps = length

    def floor(self, now: int) -> int:
        """Sends at or before this do not count any more."""
        return now - self.length

    def leaves(self, sent: int, now: int) -> int:
        """When a send that counts now no longer counts."""
        del now
        return sent + self.length

    def grain(self, sent: int) -> int:
        """Rounded up: it counts a little longer, never shorter."""
        step = max(1, self.length // GRAINS)
        return -(-sent // step) * step


class Period:
    """A send counts until the calendar turns: hour, day, week from Monday, month or year."""

    def __init__(self, unit: Calendar, zone: ZoneInfo) -> None:
        self.unit = unit
        self.zone = zone
        self.text = f"this {unit} in {zone.key}"
        # Messages of one recipient may name other zones, where the period began before.
        self.keeps = _LONGEST[unit] + _ZONES_APART_MS
        self._start = self._end = 0

    def floor(self, now: int) -> int:
        return self.bounds(now)[0] - 1

    def leaves(self, sent: int, now: int) -> int:
        del sent
        return self.bounds(now)[1]

    def grain(self, sent: int) -> int:
        """The minute of a send: no period begins within one."""
        return sent // 60_000 * 60_000

    def bounds(self, now: int) -> tuple[int, int]:
        """The instants between which the period around `now` lies."""
        if not self._start <= now < self._end:
            self._start, self._end = self._find(now)
        return self._start, self._end

    def _find(self, now: int) -> tuple[int, int]:
        here = wall_time(now, self.zone)
        first, following = _period(here, self.unit)
        start = self._begin(first)
        if start > now:  # the period's first minute occurs twice, and this is before the second one
            before, _ = _period(first - timedelta(minutes=1), self.unit)
            return self._begin(before), start
        return start, self._begin(following)

    def _begin(self, wall: datetime) -> int:
        return instant(wall.date(), wall.hour * 60, self.zone, last=True)


Window: TypeAlias = Rolling | Period

_LONGEST = {
    Calendar.HOUR: 3 * HOUR_MS,
    Calendar.DAY: 49 * HOUR_MS,
    Calendar.WEEK: 8 * 24 * HOUR_MS,
    Calendar.MONTH: 32 * 24 * HOUR_MS,
    Calendar.YEAR: 367 * 24 * HOUR_MS,
}


def _period(wall: datetime, unit: Calendar) -> tuple[datetime, datetime]:
    """The wall times at which it and the next one begin."""
    hour = wall.replace(minute=0, second=0, microsecond=0)
    if unit is Calendar.HOUR:
        return hour, hour + timedelta(hours=1)
    day = hour.replace(hour=0)
    match unit:
        case Calendar.WEEK:
            first = day - timedelta(days=day.weekday())
            return first, first + timedelta(days=7)
        case Calendar.MONTH:
            first = day.replace(day=1)
            return first, (first + timedelta(days=32)).replace(day=1)
        case Calendar.YEAR:
            first = day.replace(month=1, day=1)
            return first, first.replace(year=first.year + 1)
        case _:
            return day, day + timedelta(days=1)


@lru_cache(maxsize=4096)
def period(unit: Calendar, zone: str) -> Period:
    """Shared, because it caches the last period it found."""
    return Period(unit, ZoneInfo(zone))
