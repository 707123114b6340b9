"""REUSE: an answer that is costly to compute serves every caller for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from penstock.time.clock import Clock

SLOW_MS = 25
"""An answer that takes longer than this is reused instead of computed for every caller …"""
SHARE = 50
"""… but when this many times as long has passed."""

T = TypeVar("T")


class Reuse(Generic[T]):
    """However many pages are open, the store spends little of its time on their figures."""

    def __init__(
        self,
        clock: Clock,
        find: Callable[[], Awaitable[T]],
        *,
        at_least: int = 0,
        at_most: int | None = None,
    ) -> None:
        self._clock = clock
        self._find = find
        self._at_least = at_least
        """Milliseconds an answer serves, however quickly it was found."""
        self._at_most = at_most
        """Milliseconds an answer serves, however slowly it was found; None: no bound."""
        self._finding = asyncio.Lock()
        self._found: T | None = None
        self._found_at = 0
        self._took = 0
        self._good_until = 0

    async def get(self) -> T:
        async with self._finding:
            began = self._clock.now()
            if self._found is None or not self._found_at <= began < self._good_until:
                self._found = await self._find()
                # Slow once may be the machine; only who is slow again serves for long.
                before, self._took = self._took, self._clock.now() - began
                took = min(before, self._took)
                self._found_at = began
                serves = max(self._at_least, took * SHARE if took > SLOW_MS else 0)
                if self._at_most is not None:
                    serves = min(serves, self._at_most)
                self._good_until = began + serves
            return self._found
