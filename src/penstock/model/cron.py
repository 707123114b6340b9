"""The moments of a cron expression in a time zone, in whole epoch seconds.

cronsim reads and explains the expression. When it fires is decided here, because cronsim follows
Debian's cron where clocks change: `* 2 * * *` fires sixty times more in autumn and never in spring.
Here a wall time that does not exist fires at the first instant after the gap, and one that comes
twice fires the first time only. An expression whose hour is a wildcard fires at every instant that
its wall clock matches: both times in autumn, and nothing is made up for in spring.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from penstock.model.errors import InvalidMessage

DAY = 86_400
MAX_TEXT = 200
"""Most characters of an expression."""
LAST_YEAR = 9998
NAMED = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_SAMPLE = DAY // 2
"""Interval at which a zone's offset is sampled; no zone changes its clocks twice within it."""
_BEFORE = 3 * DAY
"""Time before a year that is searched too: a change on its eve may reach into it."""
_NEVER_YEARS = 41
"""29 February falls on each day of the week within so many years, also around 2100."""
_WINDOW = 3_600
_FIELDS = ("second", "minute", "hour", "day-of-month", "month", "day-of-week")
_ON_DAYS = re.compile(r"(?<! or)(?<! it's) on ((?:Mon|Tues|Wednes|Thurs|Fri|Satur|Sun)day to )")


class Span(NamedTuple):
    """A time during which a zone's offset stays the same."""

    start: int
    end: int
    offset: int
    before: int
    """The offset that was in force until `start`."""


class Cron:
    """One cron expression in one time zone."""

    def __init__(self, text: str, zone: str) -> None:
        """Raise InvalidMessage for field `cron` if the expression never fires."""
        self._parsed = _parse(text)
        self._zone = zone
        self._hours = sorted(self._parsed.hours)
        self._minutes = sorted(self._parsed.minutes)
        self._seconds = sorted(self._parsed.seconds)
        self._by_instant = self._parsed.parts[2].startswith("*")
        self._days: dict[int, bool] = {}

    def after(self, moment: int) -> Iterator[int]:
        """Every moment after this one, in order."""
        year = _year_of(moment)
        while year <= LAST_YEAR:
            for span in _spans(self._zone, year):
                if span.end <= moment:
                    continue
                for found in self._within(span, moment + 1, span.end):
                    if found > moment:
                        yield found
                        moment = found
            moment = max(moment, _year_start(year + 1) - 1)
            year += 1

    def first_after(self, moment: int) -> int | None:
        """The first moment after this one, or None."""
        return _first_after(self, moment)

    def count(self, after: int, until: int) -> int:
        """Number of moments in (after, until]."""
        return _count(self, after, until)

    def latest(self, after: int, until: int) -> int | None:
        """The last moment in (after, until], or None."""
        return _latest(self, after, until)

    def find_count(self, after: int, until: int) -> int:
        """As `count`, without the cache."""
        found = 0
        for year in range(_year_of(after), _year_of(until) + 1) if after < until else ():
            first = max(after + 1, _year_start(year))
            for span in _spans(self._zone, year):
                found += self._count_within(span, max(first, span.start), min(until + 1, span.end))
        return found

    def find_latest(self, after: int, until: int) -> int | None:
        """As `latest`, without the cache."""
        window = _WINDOW
        while after < until:
            start = max(after, until - window)
            last = None
            for found in self.after(start):
                if found > until:
                    break
                last = found
            if last is not None or start == after:
                return last
            window *= 8
        return None

    def words(self) -> str:
        """The expression in English, without the zone."""
        said = self._parsed.explain().replace(" through ", " to ")
        said = said.replace("day of month", "day of the month").replace(" and on ", " or on ")
        return _ON_DAYS.sub(r", \1", said, count=1)

    def check_it_comes(self) -> None:
        """Raise InvalidMessage if the calendar has no such day."""
        first = date(2000, 1, 1).toordinal() - _EPOCH_ORDINAL
        if not any(self._matches(day) for day in range(first, first + _NEVER_YEARS * 366)):
            raise InvalidMessage("cron", "never comes: the calendar has no such day")

    def _within(self, span: Span, first: int, end: int) -> Iterator[int]:
        """Moments in [first, end) of one span, in order; one moment may be repeated."""
        if self._made_up_at(span) and first <= span.start < end:
            yield span.start
        start = max(first, self._new_from(span)) + span.offset
        last = end + span.offset
        for day in range(start // DAY, (last - 1) // DAY + 1):
            if self._matches(day):
                for second in self._times(start - day * DAY, last - day * DAY):
                    yield day * DAY + second - span.offset

    def _count_within(self, span: Span, first: int, end: int) -> int:
        if first >= end:
            return 0
        found = 0
        if self._made_up_at(span) and first <= span.start:
            found = 1
            first = max(first, span.start + 1)  # the wall time of that instant may match, too
        start = max(first, self._new_from(span))
        return found + self._walls_between(start + span.offset, end + span.offset)

    def _made_up_at(self, span: Span) -> bool:
        """Whether a wall time in the gap before the span fires at the span's start."""
        if self._by_instant or span.offset <= span.before:
            return False
        start, end = span.start + span.before, span.start + span.offset
        return self._walls_between(start, end) > 0

    def _walls_between(self, start: int, end: int) -> int:
        """Number of wall times in [start, end) that match."""
        if start >= end:
            return 0
        return sum(
            self._number_before(end - day * DAY) - self._number_before(start - day * DAY)
            for day in range(start // DAY, (end - 1) // DAY + 1)
            if self._matches(day)
        )

    def _new_from(self, span: Span) -> int:
        """The instant from which the span's wall times are new, not a repeat of the span before."""
        if self._by_instant:
            return span.start
        return span.start + max(0, span.before - span.offset)

    def _matches(self, day: int) -> bool:
        known = self._days.get(day)
        if known is None:
            when = date.fromordinal(day + _EPOCH_ORDINAL)
            known = when.month in self._parsed.months and self._parsed.match_day(when)
            if len(self._days) > 1000:
                self._days.clear()
            self._days[day] = known
        return known

    def _times(self, first: int, end: int) -> Iterator[int]:
        """Seconds of a day in [first, end) at which the expression fires."""
        for hour in self._hours[bisect_left(self._hours, (first - 3599) // 3600) :]:
            at_hour = hour * 3600
            if at_hour >= end:
                return
            for minute in self._minutes[bisect_left(self._minutes, (first - at_hour - 59) // 60) :]:
                at = at_hour + minute * 60
                if at >= end:
                    return
                for second in self._seconds[bisect_left(self._seconds, first - at) :]:
                    if at + second >= end:
                        return
                    yield at + second

    def _number_before(self, second: int) -> int:
        """Number of firing times of a day before this second of it."""
        if second <= 0:
            return 0
        hour, rest = divmod(second, 3600)
        minute, rest = divmod(rest, 60)
        hours = bisect_left(self._hours, hour)
        found = hours * len(self._minutes) * len(self._seconds)
        if hours < len(self._hours) and self._hours[hours] == hour:
            minutes = bisect_left(self._minutes, minute)
            found += minutes * len(self._seconds)
            if minutes < len(self._minutes) and self._minutes[minutes] == minute:
                found += bisect_left(self._seconds, rest)
        return found


# Rules that fire together mostly have the same expression and are planted together, too: they
# share these caches (a step of planting takes 11 µs instead of 128).


@lru_cache(maxsize=8192)
def _first_after(cron: Cron, moment: int) -> int | None:
    return next(cron.after(moment), None)


@lru_cache(maxsize=8192)
def _count(cron: Cron, after: int, until: int) -> int:
    return cron.find_count(after, until)


@lru_cache(maxsize=8192)
def _latest(cron: Cron, after: int, until: int) -> int | None:
    return cron.find_latest(after, until)


@lru_cache(maxsize=4096)
def cron(text: str, zone: str) -> Cron:
    """The moments of the expression; the zone is known to exist."""
    return Cron(text, zone)


def _parse(text: str) -> CronSim:
    word = text.strip().lower()
    named = NAMED.get(word)
    if len(text) > MAX_TEXT:
        raise InvalidMessage("cron", f"is longer than {MAX_TEXT} characters")
    if named is None and word.startswith("@"):
        raise InvalidMessage("cron", f"{word} names no time of day")
    try:
        return CronSim(named or text, _EPOCH)
    except CronSimError as exc:
        raise InvalidMessage("cron", _reason(text, str(exc))) from exc


def _reason(text: str, error: str) -> str:
    part = error.removeprefix("Bad ")
    if part not in _FIELDS:
        return f"needs 5 fields (minute hour day month weekday), not {len(text.split())}"
    fields = text.split()
    wrong = fields[_FIELDS.index(part) - (len(fields) == 5)]
    if part == "day-of-month" and all(c in "0123456789,-/*" for c in wrong):
        return f"never comes: no month of {fields[-2]!r} has day {wrong!r}"
    return f"{wrong!r} is not a {part}"


@lru_cache(maxsize=4096)
def _spans(zone: str, year: int) -> tuple[Span, ...]:
    """The zone's offsets from some days before the year to its end."""
    info = ZoneInfo(zone)
    start, end = max(0, _year_start(year) - _BEFORE), _year_start(year + 1)
    spans: list[Span] = []
    at, offset, before = start, _offset(info, start), _offset(info, start)
    for later in (*range(start + _SAMPLE, end, _SAMPLE), end - 1):
        changed = _offset(info, later)
        if changed != offset:
            change = _change_between(info, later - _SAMPLE, later, changed)
            spans.append(Span(at, change, offset, before))
            at, before, offset = change, offset, changed
    spans.append(Span(at, end, offset, before))
    return tuple(spans)


def _change_between(info: ZoneInfo, early: int, late: int, offset: int) -> int:
    """The first second at which the zone has the later offset."""
    while late - early > 1:
        middle = (early + late) // 2
        if _offset(info, middle) == offset:
            late = middle
        else:
            early = middle
    return late


def _offset(info: ZoneInfo, second: int) -> int:
    offset = datetime.fromtimestamp(second, info).utcoffset()
    return 0 if offset is None else offset.days * DAY + offset.seconds


def _year_of(second: int) -> int:
    return datetime.fromtimestamp(max(0, second), UTC).year


@lru_cache(maxsize=1024)
def _year_start(year: int) -> int:
    return int(datetime(year, 1, 1, tzinfo=UTC).timestamp())
