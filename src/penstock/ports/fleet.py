"""Optional parts of a store besides messages: figures of the fleet and of what is coming due.

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
        """Every stored heartbeat, in no order; one written by an unknown version is left out."""
        ...

    async def forget_heartbeats(self, before: int) -> None:
        """Delete the heartbeats of processes last seen before that moment."""
        ...


class Forecasting(Protocol):
    async def forecast(self, now: int) -> Forecast:
        """How much is coming due, by time. With millions pending it may take a while."""
        ...


class DeadLetter(NamedTuple):
    """The fields of a dead message that grouping needs."""

    route: str
    error: str
    at: int
    """When the message died."""
    id: str


class DeadLetters(Protocol):
    async def dead_letters(self, route: str | None, limit: int) -> list[DeadLetter]:
        """At most `limit` dead messages, without their payloads."""
        ...
