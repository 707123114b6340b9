"""Names of time zones."""

from __future__ import annotations

from functools import lru_cache
from zoneinfo import available_timezones

DEFAULT_ZONE = "UTC"


def is_zone(name: str) -> bool:
    """Is it an IANA time zone that this machine knows?"""
    return name in _zones()


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones())
