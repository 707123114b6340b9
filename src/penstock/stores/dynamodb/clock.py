"""The store's clock: Redis' own once it has answered, until then this machine's.

DynamoDB has no clock. No message is ever claimed without Redis, whose script compares every `now`
with its own time: a machine's wrong clock may stamp a message, but cannot release it early.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from penstock.time.server_clock import ServerClock


class NearClock(ServerClock):
    """Works from the start, and more exactly once Redis has answered."""

    def __init__(self, server_time: Callable[[], Awaitable[float]]) -> None:
        super().__init__(server_time)
        self._base = time.time() * 1000 - time.monotonic() * 1000
