"""The destination of a message on a route that lets it choose one.

Patterns are those of brokers: `*` stands for one part of a name between dots (`orders.*` allows
`orders.eu` and not `orders.eu.vip`), and `>` or `#` as the last part for one or more.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from penstock.model.message import Message

REMEMBERED = 4096
"""Most topics whose check is cached; a caller could name any number of them."""


class Topics:
    """Uses a message's own topic if a pattern allows it (`orders.*`), else the route's own."""

    def __init__(self, own: str, allowed: Sequence[str] = ()) -> None:
        self.own = own
        patterns = [re.compile(expression(pattern)) for pattern in allowed]

        @lru_cache(maxsize=REMEMBERED)
        def allows(topic: str) -> bool:
            return any(pattern.fullmatch(topic) for pattern in patterns)

        self._allows = allows if patterns else None

    def of(self, message: Message) -> str:
        topic = message.topic
        if not topic or self._allows is None or not self._allows(topic):
            return self.own
        return topic


def expression(pattern: str) -> str:
    """A pattern as a regular expression for a whole name."""
    *parts, last = pattern.split(".")
    expressions = [re.escape(part).replace(r"\*", "[^.]*") for part in parts]
    expressions.append(".+" if last in (">", "#") else re.escape(last).replace(r"\*", "[^.]*"))
    return r"\.".join(expressions)
