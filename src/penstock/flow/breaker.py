"""A circuit breaker: while a sink cannot be reached, its messages wait in the store.

A time-out of one message's answer is that message's own and opens nothing: only sends that found
nobody (`Retry.unreachable`) count. A line that was cut may still be one message's doing. So after a
probe that ended like that the next one is chosen among twice as many messages, and it is the one
that failed least often: an answer to any message closes the breaker.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from penstock.model.backoff import Backoff
from penstock.model.message import Message
from penstock.model.outcome import Retry, SendOutcome
from penstock.time.clock import is_ahead

TRIP_AFTER = 5
"""Consecutive sends that could not reach the sink before the breaker opens."""
PROBE = Backoff(500, 15_000)
"""Backoff before the next probe, by the number of consecutive probes that failed."""
WIDEST = 256
"""Messages that a probe is chosen from at most."""


def probe_of(messages: Sequence[Message]) -> Message:
    """Choose the message to probe the sink with: the first of those with the fewest failures."""
    return min(messages, key=lambda message: message.attempt - message.attempt_floor)


class Breaker:
    """Closed: everything passes. Open: nothing passes until `retry_at`, then one probe at a time.

    Half open, before the sink has answered at all, it also lets one probe through at a time.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._silent = 0
        """Consecutive sends that could not reach the sink, while closed."""
        self._failed = 0
        """Consecutive probes that could not reach the sink, while open."""
        self._width = 1
        """Messages that the next probe is chosen from."""
        self._last = 0
        """The number of the last probe; 0 is a send that is none."""
        self._probing = False
        self._half_open = False
        self.retry_at: int | None = None
        self.lets_all_pass = True
        """True if the breaker is closed and not half open."""
        self.is_at_rest = True
        """True if another answer of the sink would change nothing."""

    @property
    def is_open(self) -> bool:
        return self.retry_at is not None

    @property
    def reached(self) -> bool:
        """False: the sink has not answered since it was begun."""
        return not self._half_open

    def allowance(self, wanted: int, now: int) -> int:
        """How many of `wanted` to claim now; one of them is the probe unless all may pass."""
        if self.lets_all_pass:
            return wanted
        waits = self._probing or (
            self.retry_at is not None and is_ahead(self.retry_at, now, PROBE.high)
        )
        return 0 if waits else min(wanted, self._width)

    def half_open(self) -> None:
        """One probe at a time until the sink answers: one that is gone shall not cost a whole batch
        an attempt."""
        self._half_open = True
        self.lets_all_pass = self.is_at_rest = False

    def close(self) -> bool:
        """The sink has answered a check; whether messages were waiting to know."""
        waited, self._half_open = self._half_open and self._probing, False
        self.lets_all_pass = not self.is_open
        return waited

    def look_again(self) -> int | None:
        """When to ask for an allowance again; None: once the probe in flight has ended."""
        return None if self._probing else self.retry_at

    def began(self) -> int:
        """Sends begin. The number of the probe they are, to be recorded with them; 0: none."""
        if self.lets_all_pass:
            return 0
        self._probing = True
        self._last += 1
        return self._last

    def not_sent(self, probe: int) -> None:
        """Release a probe that was chosen and then not sent, so that the next one may be."""
        if probe == self._last:
            self._probing = False

    def record(self, outcomes: Sequence[SendOutcome], now: int, probe: int = 0) -> bool:
        """Learn from one send: an answer closes, silence counts. True: it opened or closed."""
        was_open = self.is_open
        was_probe = self._probing and probe == self._last
        self.not_sent(probe)
        if not outcomes or not all(isinstance(o, Retry) and o.unreachable for o in outcomes):
            self._silent = self._failed = 0
            self._width = 1
            self._probing = self._half_open = False
            self.retry_at = None
            self.lets_all_pass = self.is_at_rest = True
            return was_open
        self.is_at_rest = False
        if not was_open:
            self._silent += 1
            if self._silent >= TRIP_AFTER:
                self.retry_at = now + PROBE.wait(0, self._chance)
                self.lets_all_pass = False
        elif was_probe:  # a send that began before the breaker opened says nothing new
            self._failed += 1
            to_blame = any(isinstance(o, Retry) and o.may_have_arrived for o in outcomes)
            self._width = min(2 * self._width, WIDEST) if to_blame else 1
            self.retry_at = now + PROBE.wait(self._failed, self._chance)
        return self.is_open is not was_open
