"""How long a client goes on asking."""

from __future__ import annotations

import random

from penstock.model.errors import PenstockError
from penstock.model.route import Backoff

PAUSE = Backoff(100, 5_000)
MAX_RETRY_AFTER = 60.0
"""Seconds: a server that asks for more is answered with its own error."""


class Patience:
    """One call's: a pause before each further try, and an end to them."""

    def __init__(self, retries: int, chance: random.Random) -> None:
        self._retries = retries
        self._chance = chance
        self._failures = 0

    def again(self, fault: PenstockError, asked: float | None = None) -> float:
        """Seconds to wait before the next try, `asked` at least; raises when there is none left."""
        self._failures += 1
        if self._failures > self._retries:
            raise fault
        return max(PAUSE.wait(self._failures, self._chance) / 1000, asked or 0.0)
