"""The interface between store suites and a store: opening, crashing, passing time."""

from __future__ import annotations

from typing import Protocol

from penstock.ports.store import Store

DAY_MS = 86_400_000
MANY = 1_000_000


class StoreHarness(Protocol):
    """One empty place for messages, new for each test."""

    async def open(self, *, retention: int = DAY_MS, retention_count: int = MANY) -> Store:
        """Open the place; opened again, it is the same place with the same content."""
        ...

    async def crash(self, store: Store) -> None:
        """Drop the store as a killed process would: nothing is flushed or released.

        The next `open` finds exactly what had been answered. Only durable stores need this.
        """
        ...

    async def pass_time(self, millis: int) -> None:
        """Advance the store's clock by at least this much: by a jump, or by a real wait.

        The suites never ask for more than 50 ms at once and never pass a `now` that the store's
        clock has not reached, so a store on its server's clock can take part.
        """
        ...

    async def close(self) -> None:
        """Remove the place and everything in it."""
        ...
