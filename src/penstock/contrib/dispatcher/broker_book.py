"""The observations of a simulated broker, checked against the Dispatcher's promises.

Pure: moments are epoch milliseconds by Redis' clock. Every broker sees the promotions of all
brokers and the moments of their releases; the rest it knows of its own visitors only.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec


class EventTotals(msgspec.Struct, kw_only=True):
    """One event's totals, as observed by this broker."""

    capacity: int
    most_in_use: int = 0
    """Most slots in use: promotions less the slots released until then."""
    over: int = 0
    """Promotions without a free slot."""
    promoted: int = 0
    """Promotions for all brokers."""


class BrokerTotals(msgspec.Struct, kw_only=True):
    """The totals of a broker's visitors; joined = entered + invalid_tokens + lost."""

    instance: str
    seconds: float = 0.0
    """Seconds for which visitors came."""
    promotions_per_second: float = 0.0
    """Promotions of all brokers per second, from the first to the last."""
    joined: int = 0
    promoted: int = 0
    entered: int = 0
    left: int = 0
    """Visitors who released their slot."""
    invalid_tokens: int = 0
    wrong_instance: int = 0
    """Tokens sent to another instance than the record named when the visitor was promoted."""
    late_records: int = 0
    """Records written after their visitor had been promoted without them."""
    wrong_promoted_at: int = 0
    """Promotions whose `promotedAt` was not the member's score."""
    repeated: int = 0
    """Second promotions or tokens of one visitor."""
    lost: int = 0
    """Visitors who joined and never got a token."""
    order_violations: int = 0
    """Visitors with a record who were overtaken by a later one."""
    events: dict[str, EventTotals] = {}
    wait_ms: dict[str, int | None] = {}
    """Time from joining to the token: p50, p99."""
    late_ms: dict[str, int | None] = {}
    """Time from a free slot, or from a later record, to the promotion: p50, p99."""


@dataclass(slots=True)
class Visitor:
    event: str
    user: str
    score: float
    joined: float
    """When its joining was requested."""
    ready: float | None = None
    """When its record was written."""
    turn: int = 0
    """The number of its promotion in the event; 0 before the promotion."""
    promoted: int = 0
    instance: str | None = None
    """The instance that received the token; None before that."""
    overtaken: bool = False
    waited: float = 0.0


@dataclass(slots=True)
class _Event:
    in_use: int
    """Slots in use before the first observed promotion."""
    moments: list[int] = field(default_factory=list)
    """Moments of promotions, in order."""
    waiting: dict[str, Visitor] = field(default_factory=dict)
    """This broker's waiting visitors, in the order of their scores."""


class BrokerBook:
    def __init__(self, instance: str, capacity: int, in_use: Mapping[str, int]) -> None:
        """`in_use`: event → slots in use when the observation began."""
        self._capacity = capacity
        self._events = {event: _Event(slots) for event, slots in in_use.items()}
        self._visitors: dict[tuple[str, str], Visitor] = {}
        self.totals = BrokerTotals(instance=instance)

    @property
    def unfinished(self) -> int:
        """Visitors who wait for a token or have not released their slot."""
        return self.totals.joined - self.totals.left

    def lines_up(self, visitor: Visitor) -> None:
        """Record a joining visitor; called before the member is written, in the order of scores."""
        self._visitors[visitor.event, visitor.user] = visitor
        self._events[visitor.event].waiting[visitor.user] = visitor
        self.totals.joined += 1

    def promoted(self, event: str, user: str, promoted_at: str, moment: int) -> Visitor | None:
        """Record an entry of the stream ENTRY, in order; the visitor, if it is this broker's."""
        if event not in self._events:
            return None
        seen = self._events[event]
        seen.moments.append(moment)
        visitor = self._visitors.get((event, user))
        if visitor is None:
            return None
        if visitor.turn:
            self.totals.repeated += 1
            return None
        visitor.turn, visitor.promoted = len(seen.moments), moment
        self.totals.promoted += 1
        self.totals.wrong_promoted_at += _number(promoted_at) != visitor.score
        self._look_for_overtaken(seen, visitor)
        del seen.waiting[user]
        return visitor

    def _look_for_overtaken(self, seen: _Event, visitor: Visitor) -> None:
        for other in seen.waiting.values():
            if other.score >= visitor.score:
                return
            waited_ready = other.ready is not None and other.ready < visitor.promoted
            if waited_ready and not other.overtaken:
                other.overtaken = True
                self.totals.order_violations += 1

    def got_token(
        self, event: str, user: str, instance: str, now: float, *, valid: bool
    ) -> Visitor | None:
        """Record an entry of DISPATCH; the visitor, if it is this broker's and its first token."""
        visitor = self._visitors.get((event, user))
        if visitor is None:
            return None
        if visitor.instance is not None:
            self.totals.repeated += 1
            return None
        visitor.instance, visitor.waited = instance, now - visitor.joined
        if valid:
            self.totals.entered += 1
        else:
            self.totals.invalid_tokens += 1
        return visitor

    def left(self) -> None:
        self.totals.left += 1

    def finished(self, given_back: Mapping[str, Sequence[float]], seconds: float) -> BrokerTotals:
        """The totals; `given_back`: event → when slots were released, by all brokers."""
        totals = self.totals
        totals.seconds = seconds
        sorted_back = {event: sorted(moments) for event, moments in given_back.items()}
        for event, seen in self._events.items():
            totals.events[event] = self._event_totals(seen, sorted_back.get(event, []))
        totals.promotions_per_second = self._rate()
        notified = [visitor for visitor in self._visitors.values() if visitor.instance is not None]
        totals.lost = totals.joined - len(notified)
        for visitor in notified:
            if visitor.instance != totals.instance:
                had_record = visitor.ready is not None and visitor.ready < visitor.promoted
                totals.wrong_instance += had_record
                totals.late_records += not had_record
        totals.wait_ms = quantiles([visitor.waited for visitor in notified])
        late = [
            self._late(visitor, sorted_back.get(visitor.event, []))
            for visitor in self._visitors.values()
            if visitor.turn
        ]
        totals.late_ms = quantiles([one for one in late if one is not None])
        return totals

    def _rate(self) -> float:
        moments = [moment for seen in self._events.values() for moment in seen.moments]
        span = max(moments) - min(moments) if moments else 0
        return round(len(moments) * 1000 / span, 1) if span else float(len(moments))

    def _event_totals(self, seen: _Event, back: Sequence[float]) -> EventTotals:
        most = over = 0
        for number, moment in enumerate(seen.moments, 1):
            # Promotions are cut to the millisecond: releases within it count.
            in_use = seen.in_use + number - bisect_left(back, moment + 1)
            most = max(most, in_use)
            over += in_use > self._capacity
        return EventTotals(
            capacity=self._capacity, most_in_use=most, over=over, promoted=len(seen.moments)
        )

    def _late(self, visitor: Visitor, back: Sequence[float]) -> float | None:
        """Lateness of a promotion: the n-th one uses the (n - capacity)-th released slot."""
        number = self._events[visitor.event].in_use + visitor.turn - self._capacity
        if number > len(back):
            return None
        free = back[number - 1] if number > 0 else 0.0
        ready = visitor.joined if visitor.ready is None else visitor.ready
        return max(0.0, visitor.promoted - max(free, ready))


def quantiles(values: Sequence[float]) -> dict[str, int | None]:
    ordered = sorted(values)
    last = len(ordered) - 1
    return {
        name: round(ordered[int(share * last)]) if ordered else None
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None
