"""The pure rules of a waiting room: how many to admit, in which order, and estimated waits.

Every SQL or Lua copy of these is tested against them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping

import msgspec

from penstock.model.room import Rate, RoomSettings, RoomState
from penstock.model.ticket import Outlook

LOT_BITS = 40
"""Lottery numbers lie in 0 … 2^40-1, below every number given in order of arrival."""
BURST_MS = 100
"""The unused rate of this span may be spent at once: promotions need no millisecond timing."""
STRIDE = 1_000_000
LOOK_EVERY_MS = 800
"""Time after which a room is due for another promotion: below one second, with a margin."""
ATTEND_MS = 5_000
"""Interval at which a promotion notes that the room is attended."""
OUTAGE_MS = 15_000
"""Time without a promotion that counts as an outage: waiters get a new grace after it."""
WINDOW_MS = 60_000
"""Approximate span over which admissions are counted."""
RECORD_GRACE_MS = 2_000
"""Brokers add a member before they write its record: the record is awaited for this long."""
SCAN_MOST, SCAN_STEP = 20_000, 500
"""Most members read, and members per read, to find any that may pass those without a record."""
MARK_MOST, MARK_EVERY_MS = 5_000, 1_000
"""Most members checked ahead of their turn for a missing record, and how often."""
LATE_RECORD_MS, LATE_USER_MS = 600_000, 60_000
"""How long after a promotion a late record, or a late WAITING_USER_IDS entry, is still removed."""
MIN_POLL_MS = 1_000
MAX_POLL_MS = 30_000
NEAR_POLL_MS = 3_000
"""Longest poll interval of the next visitors in line, who are at most as many as the slots."""
IDLE_POLL_MS = 5_000
MAX_ETA_S = 30 * 86_400
"""Longest wait that is still shown as an estimate."""


def lot(seed: str, user: str) -> int:
    """The drawn number: a function of seed and user, so that a visitor cannot draw again."""
    return int(hashlib.sha1(f"{seed}:{user}".encode(), usedforsecurity=False).hexdigest()[:10], 16)


# --- how many ------------------------------------------------------------------------------


def burst_of(rate: Rate) -> int:
    return max(1, rate.count * BURST_MS // rate.per)


SET_BACK_MS = 5_000
"""A clock behind the stored time by more than this was set back."""


def earn(rate: Rate, credit: int, since: int, now: int) -> int:
    """Credit after the time from `since` to `now`. One admission costs `rate.per`.

    Clocks that differ by less than SET_BACK_MS earn nothing. A clock that is further behind was set
    back and earns the difference; otherwise no visitor would be admitted until it catches up.
    """
    full = burst_of(rate) * rate.per
    if -SET_BACK_MS <= now - since <= 0:
        return min(credit, full)
    enough = full // rate.count + 1  # bounds the product: all of it stays an exact integer
    return min(full, credit + min(abs(now - since), enough) * rate.count)


def next_credit_at(rate: Rate, credit: int, now: int) -> int:
    """The moment at which the next whole admission has been earned."""
    missing = rate.per - credit
    return now if missing <= 0 else now + -(-missing // rate.count)


def admissible(capacity: int, in_use: int, waiting: int, tokens: int | None, limit: int) -> int:
    """How many visitors to admit now. `tokens` is None if the room has no rate."""
    wanted = min(capacity - max(0, in_use), waiting, limit)
    return max(0, wanted if tokens is None else min(wanted, tokens))


def frees_slot(in_use: int, held: int) -> bool:
    """Whether a ticket that ends gives its slot back.

    `held` counts the tickets that hold a slot, this one included. Fewer slots in use than tickets
    means that another program has already released some: releasing this one too would admit one
    visitor too many.
    """
    return in_use > 0 and in_use >= held


# --- in which order ------------------------------------------------------------------------


class LaneShares(msgspec.Struct):
    """Stride scheduling between lanes: over time each gets slots in proportion to its weight."""

    at: int = 0
    passes: dict[str, int] = msgspec.field(default_factory=dict)

    def draw(self, lanes: Mapping[str, int], waiting: Mapping[str, int], count: int) -> list[str]:
        """The lanes of the next `count` admissions, in order; records each lane's turns.

        An empty lane saves up no turns, and a lane that is alone uses none.
        """
        if len(lanes) == 1:
            return [name for name in lanes for _ in range(min(count, waiting.get(name, 0)))]
        left = {name: waiting.get(name, 0) for name in lanes}
        order: list[str] = []
        while len(order) < count:
            best = ""
            best_pass = -1
            for name in sorted(lanes):
                passed = max(self.passes.get(name, 0), self.at)
                if left[name] > 0 and (best_pass < 0 or passed < best_pass):
                    best, best_pass = name, passed
            if best_pass < 0:
                break
            self.at = best_pass
            self.passes[best] = best_pass + STRIDE // lanes[best]
            left[best] -= 1
            order.append(best)
        return order


def lane_share(lanes: Mapping[str, int], lane: str, occupied: Mapping[str, int]) -> float:
    """The share of the slots a lane gets while visitors wait in the lanes of `occupied`."""
    own = lanes.get(lane, 1)
    total = own + sum(
        weight for name, weight in lanes.items() if name != lane and occupied.get(name, 0) > 0
    )
    return own / total


def awaits_record(found: int, now: int) -> bool:
    """Whether to pass over a member found without a record at `found`: it blocks no other."""
    return now < found + RECORD_GRACE_MS


def is_late(joined: int | None, promoted: int) -> bool:
    """Whether a record written after its user was promoted belongs to that visit, not to a next."""
    return joined is None or joined <= promoted


# --- silence -------------------------------------------------------------------------------


def silent_before(settings: RoomSettings, floor: int, now: int) -> int | None:
    """Waiters last seen at or before this moment have given up; None if no waiter has.

    `floor` is when the room was last found unattended: no waiter could be seen before it.
    """
    if settings.wait_grace is None or now - settings.wait_grace < floor:
        return None
    return now - settings.wait_grace


# --- how long ------------------------------------------------------------------------------


class Flow(msgspec.Struct, frozen=True):
    """Admissions of the running window and of the one before it."""

    since: int = 0
    count: int = 0
    before: int = 0

    def after(self, number: int, now: int) -> Flow:
        """The flow after `number` more admissions at `now`."""
        rolled = self._at(now)
        return Flow(rolled.since, rolled.count + number, rolled.before)

    def a_minute(self, now: int) -> float:
        """A sliding count over about the last minute."""
        if not self.since:
            return 0.0
        rolled = self._at(now)
        left = max(0, WINDOW_MS - (now - rolled.since)) / WINDOW_MS
        return rolled.count + rolled.before * left

    def _at(self, now: int) -> Flow:
        """The windows as of `now`."""
        since = self.since or now
        passed = (now - since) // WINDOW_MS
        if passed <= 0:
            return self if self.since else Flow(since)
        before = self.count if passed == 1 else 0
        return Flow(since + passed * WINDOW_MS, 0, before)


class Eta(msgspec.Struct, frozen=True):
    """The range of seconds until this visitor's turn."""

    low: int
    high: int


def estimate(ahead: int, lane: str, outlook: Outlook) -> Eta | None:
    """The range of the wait; None if it is unknown (paused, closed, not open, no figures yet)."""
    settings = outlook.room.settings
    if outlook.state is not RoomState.OPEN or settings.capacity <= 0:
        return None
    share = lane_share(settings.lanes, lane, outlook.waiting)
    rate = None if settings.admit_rate is None else settings.admit_rate.a_second * 60
    before = ahead + 1
    at_once = outlook.free * share
    if before <= at_once:
        return Eta(0, 1 if rate is None else _seconds(before, rate * share, up=True))
    paces = [outlook.a_minute] if outlook.a_minute > 0 else []
    if settings.session_ttl is not None:
        paces.append(settings.capacity * WINDOW_MS / settings.session_ttl)
    if rate is not None:
        paces = [min(pace, rate) for pace in paces] or [rate]
    if not paces:
        return None
    queue = max(1.0, before - at_once)
    fast, slow = max(paces) * share * 1.25, min(paces) * share * 0.75
    return Eta(_seconds(queue, fast, up=False), _seconds(queue, slow, up=True))


def _seconds(people: float, a_minute: float, *, up: bool) -> int:
    exact = min(people * 60 / a_minute, MAX_ETA_S)
    return max(1, math.ceil(exact)) if up else int(exact)


def poll_after_ms(ahead: int | None, eta: Eta | None, wait_grace: int | None, capacity: int) -> int:
    """When to ask again: often near the front, rarely at the back, always within the grace.

    An estimate may be far off: every visitor who would be admitted if the room emptied at once asks
    every few seconds whatever the estimate, so that no slot is held by a visitor who does not know
    of it.
    """
    if ahead is None:
        wait = MIN_POLL_MS
    elif eta is None:
        wait = IDLE_POLL_MS
    else:
        wait = eta.low * 1000 // 5
    longest = MAX_POLL_MS if wait_grace is None else min(MAX_POLL_MS, wait_grace // 3)
    longest = min(longest, NEAR_POLL_MS * (1 + (ahead or 0) // max(1, capacity)))
    return max(min(MIN_POLL_MS, longest), min(wait, longest), 1)
