"""The counter of a cap for one recipient (or channel, campaign …), and its arithmetic."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

import msgspec

from penstock.limits.window import EXACT, Window
from penstock.model.times import format_duration

REMEMBER_MS = 600_000
"""How long a counted id is known, so that counting it again changes nothing."""
REMEMBERED = 1_000
"""Approximate number of counted ids per counter; one shared by many would have too many."""
TIDY = 16
"""Places that are over are dropped when there are so many more,"""
MANY = 256
"""or so many, where there are many."""
KEPT_MS = 1_000
"""A place that is kept for a retry ends at a whole second; one that a decision has reserved never
does, which distinguishes the two."""
AHEAD_MS = 600_000
"""A decision may take effect after one that was made later, but by no more than this."""


class Counter(msgspec.Struct, array_like=True, gc=False):
    """Sends that may still count, oldest first, and reservations of messages in flight.

    There are many of these, and the garbage collector never scans them.
    """

    times: tuple[int, ...] = ()
    counts: tuple[int, ...] = ()
    """How many sends each time stands for; empty: one each."""
    held: dict[str, int] = {}
    """Message id → reserved until; negative: already counted, and remembered until then."""
    last: int = 0
    """The latest send, to the millisecond."""
    names: tuple[str, ...] = ()
    """In an account, all the counter's names there: caps that always count the same share it."""


class Limit:
    """The numbers of one cap in one zone. `limit` 0: only the interval matters."""

    __slots__ = ("always_allows_below", "exact", "interval", "limit", "window")

    def __init__(self, limit: int, window: Window | None, interval: int) -> None:
        self.limit = limit
        self.window = window
        self.interval = interval
        self.exact = limit <= EXACT
        self.always_allows_below = 0 if interval else limit
        """Below this number of sends and reservations one more fits, whatever their times."""

    def used(self, counter: Counter, now: int, me: str = "") -> int:
        """Sends that count now, and reservations of other messages."""
        return self._sent(counter, now) + _waiting(counter, now, me)

    def has_room(self, counter: Counter, now: int, number: int) -> bool:
        """True if so many more fit, as far as the window is concerned."""
        room = self.limit - number - self._sent(counter, now)
        return len(counter.held) <= room or _waiting(counter, now, "") <= room

    def free_at(self, counter: Counter, now: int, me: str) -> int:
        """When a unit is free for `me`, if no other message takes it; 0: one is free now.

        A message with a reservation, or already counted, keeps it. Reservations count as sent now.
        """
        held = counter.held
        if len(counter.times) + len(held) < self.always_allows_below and not counter.counts:
            return 0
        waiting = 0
        if held:
            if abs(held.get(me, 0)) > now:
                return 0
            if not self.interval and self._sent(counter, now) + len(held) < self.limit:
                return 0  # however many of them wait
            waiting = _waiting(counter, now, me)
        free = 0
        window = self.window
        if (
            window is not None
            and (waiting or counter.counts or len(counter.times) >= self.limit)
            and self._sent(counter, now) + waiting >= self.limit
        ):
            free = self._leaves(counter, window, now, self.limit - waiting)
        if self.interval:
            latest = now if waiting else counter.last
            after = latest + self.interval
            if latest and after > now and after > free:
                free = after
        return free

    def hold(self, counter: Counter, me: str, now: int, until: int) -> None:
        """Take a place for `me`, or keep the one it has of a later decision."""
        held = counter.held
        if len(held) % (TIDY if len(held) < MANY else MANY) == TIDY - 1:
            _tidy(held, now)
        mine = held.get(me, 0)
        if mine >= -now and is_ours(mine, until):
            held[me] = until

    def hold_all(self, counter: Counter, ids: Sequence[str], now: int, until: int) -> None:
        """The same for many at once."""
        held = counter.held
        if len(held) // REMEMBERED != (len(held) + len(ids)) // REMEMBERED:
            _tidy(held, now)
        if held.keys().isdisjoint(ids):
            held.update(dict.fromkeys(ids, until))
        else:
            ends = [(me, held.get(me, 0)) for me in ids]
            held.update({me: until for me, end in ends if end >= -now and is_ours(end, until)})

    def count(self, counter: Counter, me: str, now: int) -> None:
        """Count `me` as sent now; counting it again changes nothing.

        Sends that no longer count are dropped here, where every store writes the counter, and not
        on reservation: a process whose clock is behind would else drop them in its own view only.
        """
        held = counter.held
        if held.get(me, 0) < -now:
            return
        held[me] = -(now + REMEMBER_MS)
        if len(held) > 2 * REMEMBERED:
            _forget(held)
        window, times = self.window, counter.times
        if window is not None:
            if times and times[0] <= now - window.keeps:
                times = self._prune(counter, now)
            if self.exact and not counter.counts and (not times or times[-1] <= now):
                counter.times = (*times, now)
            else:
                self._add(counter, now if self.exact else window.grain(now))
        if counter.last < now:  # noqa: PLR1730 - a call of max takes longer
            counter.last = now

    def count_all(self, counter: Counter, ids: Sequence[str], now: int) -> None:
        """Count all ids as sent now."""
        held = counter.held
        fresh = [me for me in dict.fromkeys(ids) if held.get(me, 0) >= -now]
        if fresh:
            held.update(dict.fromkeys(fresh, -(now + REMEMBER_MS)))
            if len(held) > 2 * REMEMBERED:
                _forget(held)
            counter.last = max(counter.last, now)
            if self.window is not None:
                self._prune(counter, now)
                sent = now if self.exact else self.window.grain(now)
                self._add(counter, sent, len(fresh))

    def resets(self, counter: Counter, now: int) -> int | None:
        """When the count next falls by itself, or the interval is over; None: nothing counts.

        Reservations count as sent now.
        """
        waiting = _waiting(counter, now, "")
        ends = []
        if self.window is not None:
            first = bisect_right(counter.times, self.window.floor(now))
            if first < len(counter.times) or waiting:
                oldest = (*counter.times[first : first + 1], now)[0]
                ends.append(self.window.leaves(oldest, now))
        if self.interval and (waiting or counter.last + self.interval > now):
            ends.append((now if waiting else counter.last) + self.interval)
        return min(ends, default=None)

    def keeps(self) -> int:
        """How long after its last send a counter still matters."""
        return max(self.interval, 0 if self.window is None else self.window.keeps)

    def keeps_sends(self) -> int:
        """How long the limit looks back on single sends; -1: it does not."""
        return -1 if self.window is None else self.window.keeps

    def text(self, used: int) -> str:
        parts = []
        if self.window is not None:
            parts.append(f"{used} of {self.limit} {self.window.text}")
        if self.interval:
            parts.append(f"one every {format_duration(self.interval)}")
        return ", ".join(parts)

    def _sent(self, counter: Counter, now: int) -> int:
        times = counter.times
        if self.window is None or not times:
            return 0
        first = bisect_right(times, self.window.floor(now))
        if counter.counts:
            return sum(counter.counts[first:])
        return len(times) - first

    def _leaves(self, counter: Counter, window: Window, now: int, room: int) -> int:
        """When fewer than `room` of the sends count."""
        if room <= 0:
            return window.leaves(now, now)
        counts = counter.counts or (1,) * len(counter.times)
        seen = 0
        for sent, number in zip(reversed(counter.times), reversed(counts), strict=True):
            seen += number
            if seen >= room:
                return window.leaves(sent, now)
        return 0

    def _add(self, counter: Counter, sent: int, number: int = 1) -> None:
        times, counts = counter.times, counter.counts
        place = bisect_right(times, sent)
        if self.exact and not counts:
            counter.times = (*times[:place], *[sent] * number, *times[place:])
            return
        counts = counts or (1,) * len(times)
        if place and times[place - 1] == sent:
            counter.counts = (*counts[: place - 1], counts[place - 1] + number, *counts[place:])
        else:
            counter.times = (*times[:place], sent, *times[place:])
            counter.counts = (*counts[:place], number, *counts[place:])

    def _prune(self, counter: Counter, now: int) -> tuple[int, ...]:
        """The times that are left."""
        times = counter.times
        if self.window is not None and times and times[0] <= now - self.window.keeps:
            gone = bisect_right(times, now - self.window.keeps)
            times = counter.times = times[gone:]
            counter.counts = counter.counts[gone:]
        return times


def reserved_until(moment: int) -> int:
    """When a reservation ends that a decision makes until that moment: never at a whole second."""
    return moment - (moment % KEPT_MS == 0)


def kept_until(moment: int) -> int:
    """When a reservation ends that is kept for a retry until that moment: at a whole second."""
    return -(-moment // KEPT_MS) * KEPT_MS


def is_ours(held: int, until: int) -> bool:
    """False if the place held until then is of a later decision than the one that reserves until
    `until`: the message may be on its way by that one, and no caller waits for this one any more.

    The message of a place that is kept for a retry is not on its way, however long that is kept.
    Nor is a decision later by more than `AHEAD_MS`: the clock was set back since it was made.
    """
    return held <= until or held % KEPT_MS == 0 or held > until + AHEAD_MS


def holds(counter: Counter | None, me: str) -> bool:
    """True if `me` holds an uncommitted reservation."""
    return counter is not None and counter.held.get(me, 0) > 0


def release(counter: Counter, me: str) -> None:
    """Give back the place that it holds."""
    del counter.held[me]


def keep(counter: Counter, me: str, until: int) -> None:
    """Hold the place for a retry."""
    counter.held[me] = kept_until(until)


def _waiting(counter: Counter, now: int, me: str) -> int:
    held = counter.held
    if not held:
        return 0
    return sum(map(now.__lt__, held.values())) - (held.get(me, 0) > now)


def _tidy(held: dict[str, int], now: int) -> None:
    """Drop the places that are over."""
    if held and min(map(abs, held.values())) <= now:
        for other in [other for other, end in held.items() if abs(end) <= now]:
            del held[other]


def _forget(held: dict[str, int]) -> None:
    """The counted ids that were counted first, if they are too many."""
    counted = [me for me, end in held.items() if end < 0]
    counted.sort(key=held.__getitem__, reverse=True)  # stable: one moment keeps its order
    for me in counted[: max(0, len(counted) - REMEMBERED)]:
        del held[me]
