"""A circuit breaker: while a sink does not answer at all, its messages wait in the store."""

from __future__ import annotations

import random
from collections.abc import Sequence

from penstock.model.clock import is_ahead
from penstock.model.outcome import Retry, SendOutcome
from penstock.model.route import Backoff

TRIP_AFTER = 5
"""Sends in a row that nobody answered."""
PROBE = Backoff(500, 15_000)
"""How long to wait before one message is sent to see whether somebody is there again."""


class Breaker:
    """Closed: everything passes. Open: nothing until `retry_at`. Then one probe at a time.

    In doubt, too, it is one at a time: nobody has answered yet.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._silent = 0
        self._probing = False
        self._in_doubt = False
        self.retry_at: int | None = None

    @property
    def is_open(self) -> bool:
        return self.retry_at is not None

    @property
    def lets_all_pass(self) -> bool:
        return self.retry_at is None and not self._in_doubt

    def allowance(self, wanted: int, now: int) -> int:
        """How many of `wanted` may be claimed now."""
        if self.lets_all_pass:
            return wanted
        waits = self._probing or (
            self.retry_at is not None and is_ahead(self.retry_at, now, PROBE.high)
        )
        return 0 if waits else min(wanted, 1)

    def doubt(self) -> None:
        """Until somebody answers: a sink that is gone shall not cost a whole batch an attempt."""
        self._in_doubt = True

    def trust(self) -> bool:
        """Somebody is there; whether others were waiting to know."""
        waited, self._in_doubt = self._in_doubt and self._probing, False
        return waited

    def look_again(self) -> int | None:
        """When to ask for an allowance again; None: when the probe under way has ended."""
        return None if self._probing else self.retry_at

    def began(self) -> None:
        self._probing = self.is_open or self._in_doubt

    def not_sent(self) -> None:
        """What was to be the probe is not sent: the next one may be."""
        self._probing = False

    def record(self, outcomes: Sequence[SendOutcome], now: int) -> None:
        """Learn from one send."""
        self._probing = False
        if not outcomes or not all(isinstance(o, Retry) and o.unreachable for o in outcomes):
            self._silent = 0
            self._in_doubt = False
            self.retry_at = None
            return
        self._silent += 1
        if self._silent >= TRIP_AFTER:
            self.retry_at = now + PROBE.wait(self._silent - TRIP_AFTER, self._chance)
