"""A route: the messages' destination and the settings of its sends."""

from __future__ import annotations

import random
import re
from functools import lru_cache

import msgspec

from penstock.model.errors import InvalidMessage
from penstock.model.times import format_duration, parse_duration

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@lru_cache(maxsize=1024)  # every message names its route, and there are few of them
def is_route_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


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


class KeyLimit(msgspec.Struct, frozen=True):
    """A route's limits for messages of one key."""

    in_flight: int = 1
    """Most messages of one key in flight."""
    ordered: bool = False
    """Send one at a time in the order of due; a retry or a deferral holds back later messages."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """A route's settings for the flow; its sink is opened separately."""

    name: str
    max_attempts: int = 8
    backoff: Backoff = Backoff()
    semaphore_limit: int | None = None
    """Most sends in flight; None uses the sink's default."""
    topics: tuple[str, ...] = ()
    """Patterns of destinations that a message may choose (`orders.*`)."""
    per_key: KeyLimit | None = None
    settle_ahead: int | None = None
    """Most messages sent and not yet settled when a send begins; None uses the sink's default."""
    timeout: int | None = None
    """Milliseconds after which a send that has not ended counts as overdue; None for never."""
