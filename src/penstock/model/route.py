"""A route: where messages go and how hard to try."""

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
    """What a route promises of every key."""

    in_flight: int = 1
    """Messages of one key that are being sent at most."""
    ordered: bool = False
    """One at a time in the order of due; a retry or a deferral holds back what comes after it."""


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """What the flow needs to know of a route; its sink is opened apart."""

    name: str
    max_attempts: int = 8
    backoff: Backoff = Backoff()
    semaphore_limit: int | None = None
    """Sends in flight at most; None leaves it to the sink."""
    topics: tuple[str, ...] = ()
    """Patterns of destinations a message may choose by itself (`orders.*`)."""
    per_key: KeyLimit | None = None
    settle_ahead: int | None = None
    """Messages that may be sent and not yet settled when the next send begins; None leaves it to
    the sink."""
    timeout: int | None = None
    """Milliseconds after which a send that has not ended counts as overdue; None: none does."""
