"""Names of time zones."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import available_timezones

DEFAULT_ZONE = "UTC"


def is_zone(name: str) -> bool:
    """Whether it is an IANA time zone known to this machine."""
    return name in _zones()


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())
