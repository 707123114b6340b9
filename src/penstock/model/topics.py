"""Where a message goes on a route that lets it choose."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase
from functools import lru_cache

from penstock.model.message import Message

REMEMBERED = 4096
"""Topics whose answer is kept; a caller could name any number of them."""


class Topics:
    """A message's own topic where a pattern allows it (`orders.*`), else the route's own."""

    def __init__(self, own: str, allowed: Sequence[str] = ()) -> None:
        self.own = own
        patterns = tuple(allowed)

        @lru_cache(maxsize=REMEMBERED)
        def allows(topic: str) -> bool:
            return any(fnmatchcase(topic, pattern) for pattern in patterns)

        self._allows = allows if patterns else None

    def of(self, message: Message) -> str:
        topic = message.topic
        if not topic or self._allows is None or not self._allows(topic):
            return self.own
        return topic
