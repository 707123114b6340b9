"""The store's clock: Redis' own where it can be asked, until then this machine's.

DynamoDB has no clock. Nothing is ever claimed without Redis, whose script holds every `now`
against its own time: so a machine's wrong clock may stamp a message, but can not let it out early.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from penstock.time.server_clock import ServerClock


class NearClock(ServerClock):
    """Works from the start, and better once Redis was asked."""

    def __init__(self, server_time: Callable[[], Awaitable[float]]) -> None:
        super().__init__(server_time)
        self._base = time.time() * 1000 - time.monotonic() * 1000
