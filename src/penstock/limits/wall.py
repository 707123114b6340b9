"""Wall time in a zone → instants, also where the wall clock jumps or repeats itself."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - naive: UTC without the cost of saying so
_SECOND = timedelta(seconds=1)
_MINUTE = timedelta(minutes=1)


def instant(day: date, minutes: int, zone: ZoneInfo, *, last: bool) -> int:
    """The epoch ms at which the wall clock shows `minutes` after the day's midnight.

    A repeated wall time: its first instant, or its last. One that the clock jumps over: the
    first instant after the jump.
    """
    wall = datetime.combine(day, time()) + minutes * _MINUTE
    first = _seconds(wall, zone, fold=0)
    second = _seconds(wall, zone, fold=1)
    if first <= second:
        return (second if last else first) * 1000
    return _after_jump(second, first, zone) * 1000


def wall_time(at: int, zone: ZoneInfo) -> datetime:
    """The time that the wall clock shows, without its zone."""
    return datetime.fromtimestamp(at // 1000, zone).replace(tzinfo=None)


def wall_text(at: int, zone: ZoneInfo) -> str:
    """ "08:00" """
    return wall_time(at, zone).strftime("%H:%M")


def _seconds(wall: datetime, zone: ZoneInfo, *, fold: int) -> int:
    offset = wall.replace(tzinfo=zone, fold=fold).utcoffset() or timedelta()
    return (wall - offset - _EPOCH) // _SECOND


def _after_jump(before: int, after: int, zone: ZoneInfo) -> int:
    """The second in (before, after] at which the zone's offset changes."""
    target = _offset(after, zone)
    while after - before > 1:
        middle = (before + after) // 2
        if _offset(middle, zone) == target:
            after = middle
        else:
            before = middle
    return after


def _offset(second: int, zone: ZoneInfo) -> timedelta | None:
    return datetime.fromtimestamp(second, UTC).astimezone(zone).utcoffset()
