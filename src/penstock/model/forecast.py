"""Due messages to come: per minute for the next hour, per hour for the next week."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

MINUTE_MS = 60_000
HOUR_MS = 3_600_000
MINUTES = 60
HOURS = 7 * 24


class Forecast(msgspec.Struct, kw_only=True):
    """Scheduled messages by route and by the minute and hour they are due in.

    Both run from the minute and the hour that `now` is in, and both begin with the overdue, so
    either is complete without the other. `later` is due after the last hour.
    """

    now: int
    minutes: list[Counter[str]] = msgspec.field(
        default_factory=lambda: [Counter() for _ in range(MINUTES)]
    )
    hours: list[Counter[str]] = msgspec.field(
        default_factory=lambda: [Counter() for _ in range(HOURS)]
    )
    later: Counter[str] = msgspec.field(default_factory=Counter)
    exact: bool = True
    """False if some messages were spread evenly over the time they may be due in."""

    @property
    def first_minute(self) -> int:
        return self.now - self.now % MINUTE_MS

    @property
    def first_hour(self) -> int:
        return self.now - self.now % HOUR_MS

    def add(self, route: str, due: int, number: int) -> None:
        """Add `number` messages of a route due in the minute of `due`."""
        if not number:
            return
        minute = max(0, due - self.first_minute) // MINUTE_MS
        if minute < MINUTES:
            self.minutes[minute][route] += number
        self.add_to_hour(route, due, number)

    def add_to_hour(self, route: str, due: int, number: int) -> None:
        """Add messages of which only the hour is known."""
        hour = max(0, due - self.first_hour) // HOUR_MS
        if hour < HOURS:
            self.hours[hour][route] += number
        else:
            self.later[route] += number

    def spread(self, route: str, start: int, end: int, number: int) -> None:
        """Add `number` messages of a route, spread evenly over [start, end)."""
        start = max(start, self.now)
        if end - start <= MINUTE_MS - start % MINUTE_MS:  # within one minute: an exact count
            self.add(route, start, number)
            return
        self.exact = False
        given = 0
        for edge, until in _pieces(start, end, self.first_hour + HOURS * HOUR_MS):
            share = number * (until - start) // (end - start)
            self.add(route, edge, share - given)
            given = share


def _pieces(start: int, end: int, horizon: int) -> Iterator[tuple[int, int]]:
    """[start, end) cut at every minute up to the horizon, and in one piece after it."""
    edge = start
    while edge < min(end, horizon):
        until = min(end, edge - edge % MINUTE_MS + MINUTE_MS)
        yield edge, until
        edge = until
    if edge < end:
        yield edge, end
