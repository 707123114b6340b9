"""Gives each message behind a full cap a time of its own, instead of the next one to all.

A cap computes when the next unit is free. If every message behind it returned at that moment, a
backlog of one recipient would be claimed and decided again and again for one send each time. So the
first to be deferred gets that moment, as many more as the cap allows at once get the same, and
later ones the moments that follow at the cap's own rate. That is known only so far ahead (units may
be free sooner: policies are changed, messages cancelled); beyond it waiters return at moments drawn
from their ids.

The turns given are this process's own and may be lost: a moment given twice costs one more
decision, never a send too many, because the cap itself decides again.
"""

from __future__ import annotations

from functools import lru_cache
from zlib import crc32

from penstock.limits.engine import waiting_since
from penstock.model.decision import Subject
from penstock.model.message import Labels
from penstock.model.policy import Calendar, CalendarWindow, Cap, Scope
from penstock.model.times import parse_duration

KNOWN_MS = 300_000
"""Turns are given in order up to this far ahead, and drawn within at most this time after."""
LINES = 10_000
"""Lines remembered; beyond it those without a future turn are dropped."""

_HOUR_MS = 3_600_000
_PERIODS = {
    Calendar.HOUR: _HOUR_MS,
    Calendar.DAY: 24 * _HOUR_MS,
    Calendar.WEEK: 7 * 24 * _HOUR_MS,
    Calendar.MONTH: 30 * 24 * _HOUR_MS,
    Calendar.YEAR: 365 * 24 * _HOUR_MS,
}
_NO_LABELS = Labels()


class _Turns:
    """The last turn given, to how many messages, and how many came beyond the known turns."""

    __slots__ = ("beyond", "given", "place")

    def __init__(self) -> None:
        self.place = self.given = self.beyond = 0

    def next(self, first: int, number: int, length: int, subject: Subject) -> int:
        """The next one, `number` of them every `length` ms from `first` on."""
        if self.place < first:
            self.place, self.given, self.beyond = first, 0, 0
        if self.given < number:
            self.given += 1
            return self.place
        if self.place + length <= first + KNOWN_MS:
            self.place, self.given = self.place + length, 1
            return self.place
        self.beyond += 1
        span = min(KNOWN_MS, max(length, self.beyond * length // number))
        return self.place + 1 + crc32(subject.id.encode()) % span


class Waiters:
    """The turns of messages waiting for caps, as far as this process has given them."""

    def __init__(self) -> None:
        self._lines: dict[tuple[object, ...], tuple[_Turns, _Turns]] = {}

    def place(self, policy_id: str, cap: Cap, subject: Subject, until: int, now: int) -> int:
        """When to decide about the message again, given that the cap is full until `until`.

        A message that returned at its moment and found no unit goes before those that never waited.
        """
        line = (policy_id, *_values(cap, subject))
        turns = self._lines.get(line)
        if turns is None:
            if len(self._lines) >= LINES:
                self._drop_past(now)
            turns = self._lines[line] = _Turns(), _Turns()
        decided = subject.decided
        came_back = decided is not None and decided.until == subject.due
        number, length = _rate(cap)
        place = turns[came_back].next(until, number, length, subject)
        latest = _latest(cap, subject)
        if latest is None or place <= latest:
            return place
        # It would be too late for its turn: it may still find a place that another left.
        return until + crc32(subject.id.encode()) % max(1, latest - until + 1)

    def _drop_past(self, now: int) -> None:
        self._lines = {
            line: turns
            for line, turns in self._lines.items()
            if any(one.place > now for one in turns)
        }
        if len(self._lines) >= LINES:
            self._lines.clear()


def _values(cap: Cap, subject: Subject) -> tuple[object, ...]:
    """The values by which the cap counts the message."""
    labels = subject.labels or _NO_LABELS
    values: dict[Scope, object] = {
        Scope.KEY: subject.key,
        Scope.ROUTE: subject.route,
        Scope.CHANNEL: labels.channel,
        Scope.CAMPAIGN: labels.campaign,
        Scope.TAG: labels.tags,
    }
    return tuple(values[word] for word in cap.scope)


@lru_cache(maxsize=256)
def _rate(cap: Cap) -> tuple[int, int]:
    """(how many it lets through, in how many ms) in the long run."""
    gap = 0 if cap.min_interval is None else parse_duration(cap.min_interval, "min_interval")
    if cap.limit is None or cap.window is None:
        return 1, max(1, gap)
    window = cap.window
    if isinstance(window, CalendarWindow):
        length = _PERIODS[window.calendar]
    else:
        length = parse_duration(window, "window")
    if gap:
        return 1, max(1, gap, length // max(1, cap.limit))
    return max(1, cap.limit), max(1, length)


def _latest(cap: Cap, subject: Subject) -> int | None:
    """The last moment at which it may be sent; None: it may wait without end."""
    latest = None if subject.expires is None else subject.expires - 1
    if cap.max_defer is None:
        return latest
    end = waiting_since(subject) + parse_duration(cap.max_defer, "max_defer")
    return end if latest is None else min(end, latest)
