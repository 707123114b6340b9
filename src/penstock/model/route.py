"""A route: the messages' destination and the settings of its sends."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from penstock.model.backoff import Backoff

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@lru_cache(maxsize=1024)  # every message names its route, and there are few of them
def is_route_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None


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
