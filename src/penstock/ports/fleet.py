"""What a store may offer besides keeping messages: figures of the fleet and of what is to come.

Each is an optional part of a `penstock.ports.store.Store`.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from penstock.model.fleet import Heartbeat
from penstock.model.forecast import Forecast


class HeartbeatStore(Protocol):
    """Keeps the last heartbeat of every process on the store."""

    async def beat(self, heartbeat: Heartbeat) -> None:
        """Keep it in place of the process's last one."""
        ...

    async def heartbeats(self) -> list[Heartbeat]:
        """All that are kept, in no order; what an unknown version wrote is left out."""
        ...

    async def forget_heartbeats(self, before: int) -> None:
        """Drop those of processes last seen before that moment."""
        ...


class Forecasting(Protocol):
    async def forecast(self, now: int) -> Forecast:
        """What is coming due. At millions pending it may take a while, away from the path."""
        ...


class DeadLetter(NamedTuple):
    """As much of a dead message as a group of them tells."""

    route: str
    error: str
    at: int
    """When it died."""
    id: str


class DeadLetters(Protocol):
    async def dead_letters(self, route: str | None, limit: int) -> list[DeadLetter]:
        """At most `limit` of the dead, without their payloads."""
        ...
