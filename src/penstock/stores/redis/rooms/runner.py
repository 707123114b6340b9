"""How rooms call Redis: with the Dispatcher's patience, timed, and by the names of their keys."""

from __future__ import annotations

import time
from collections.abc import Callable

from penstock.model.durations import Durations
from penstock.redis_kit.address import PREFIX
from penstock.redis_kit.breaker import Patience
from penstock.redis_kit.connect import Server
from penstock.redis_kit.runner import Runner
from penstock.stores.redis.rooms.keys import RoomNames

PATIENCE = Patience(
    waits=(1.0, 1.0, 1.0), retries_slow=True, trip_after=1, first_open=5.0, longest_open=5.0
)
"""Three tries more, a second apart; then callers are refused until one call gets through."""


class RoomRunner(Runner):
    """A Runner with the names of the rooms' keys."""

    def __init__(
        self,
        server: Server,
        name: str,
        prefix: str = PREFIX,
        *,
        patience: Patience | None = None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.times = Durations()
        """Of scripts that were answered."""
        super().__init__(
            server,
            name,
            patience=patience or PATIENCE,
            durations=self.times,
            monotonic=monotonic,
        )
        self.names = RoomNames(prefix, cluster=server.cluster)
