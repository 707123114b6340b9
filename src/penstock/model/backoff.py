"""How long a failed attempt waits before the next."""

from __future__ import annotations

import random

import msgspec

from penstock.model.errors import InvalidMessage
from penstock.model.times import format_duration, parse_duration


class Backoff(msgspec.Struct, frozen=True):
    """Exponential with jitter, always between `low` and `high` milliseconds."""

    low: int = 1_000
    high: int = 300_000

    def wait(self, failures: int, chance: random.Random) -> int:
        """Milliseconds to wait after that many failures in a row (the first is 1)."""
        upper = min(self.high, self.low << min(failures, 40))
        lower = max(self.low, upper // 2)
        return chance.randint(lower, max(lower, upper))

    def __str__(self) -> str:
        return f"{format_duration(self.low)}..{format_duration(self.high)}"


def parse_backoff(text: str, field: str = "backoff") -> Backoff:
    """ "1s..5m" → Backoff."""
    low, dots, high = text.partition("..")
    if not dots:
        raise InvalidMessage(field, 'must be a range such as "1s..5m"')
    backoff = Backoff(parse_duration(low, field), parse_duration(high, field))
    if not 0 < backoff.low <= backoff.high:
        raise InvalidMessage(field, "must go from more than 0 up to something not smaller")
    return backoff
