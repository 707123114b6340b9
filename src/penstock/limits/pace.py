"""Pace: an even rate in the long run, bounded bursts, and a slot for each message that must wait.

The generic cell rate algorithm in exact integers: a millisecond has `ticks` ticks, and one message
every `gap` ticks is the rate.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import msgspec

MAX_TICKS = 4096
"""Keeps every number below 2^53, so that a script with floating point gives the same answers."""


class PaceState(msgspec.Struct, array_like=True, gc=False):
    ticks: int
    """The unit the two below are in: ticks a millisecond."""
    next: int = 0
    """When the next message would be sent if they were sent evenly."""
    cursor: int = 0
    """The value of `next` once every message that waits for a slot has been sent."""


class Rate:
    """A rate (messages a millisecond) and a burst, in ticks."""

    __slots__ = ("burst", "gap", "slack", "ticks")

    def __init__(self, rate: Fraction, burst: int) -> None:
        gap = 1 / rate
        if gap.denominator > MAX_TICKS:  # a little slower rather than a little faster
            gap = Fraction(ceil(gap * MAX_TICKS), MAX_TICKS)
        self.ticks = gap.denominator
        self.gap = gap.numerator
        self.burst = burst
        self.slack = (burst - 1) * self.gap

    def fresh(self) -> PaceState:
        return PaceState(self.ticks)

    def adopt(self, state: PaceState) -> PaceState:
        """The same moments in this rate's ticks: the rate may have been changed."""
        if state.ticks != self.ticks:
            state.next = -(-state.next * self.ticks // state.ticks)
            state.cursor = -(-state.cursor * self.ticks // state.ticks)
            state.ticks = self.ticks
        return state

    def free_at(self, state: PaceState, now: int, *, has_slot: bool) -> int:
        """The slot of a message that may not be sent now; 0: it may.

        No message overtakes those that wait for slots already given, unless its own slot has come.
        """
        last = max(state.next, state.cursor)
        if (state.next if has_slot else last) - self.slack <= now * self.ticks:
            return 0
        return -(-(last - self.slack) // self.ticks)

    def fits(self, state: PaceState, now: int, number: int, *, whole: bool) -> bool:
        """True if so many may be sent now, in a row. `whole`: given slots delay no message."""
        at = now * self.ticks
        last = state.next if number <= 1 else max(state.next, at) + (number - 1) * self.gap
        return (last if whole else max(last, state.cursor)) - self.slack <= at

    def go(self, state: PaceState, now: int, number: int = 1) -> None:
        state.next = max(state.next, now * self.ticks) + number * self.gap

    def give_slot(self, state: PaceState) -> None:
        """Reckon with a message that will go out at the slot: a whole millisecond."""
        last = max(state.next, state.cursor)
        slot = -(-(last - self.slack) // self.ticks)
        state.cursor = max(last, slot * self.ticks) + self.gap

    def room(self, state: PaceState, now: int) -> tuple[int, int]:
        """How many may be sent now, and when the next one may if none."""
        at = now * self.ticks
        ready = state.next - self.slack
        if ready > at:
            return 0, -(-ready // self.ticks)
        return (at - max(ready, at - self.slack)) // self.gap + 1, now
