"""What a store may offer besides keeping messages: figures of the fleet and of what is to come.

Each is optional and asked for by `isinstance`: on a store without it the figures are those of
this process, the forecast says nothing of when, and dead letters are grouped from a list.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol, runtime_checkable

from penstock.model.fleet import Heartbeat
from penstock.model.forecast import Forecast


@runtime_checkable
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


@runtime_checkable
class SharesFigures(Protocol):
    """Counts rarely of its own accord: one count serves every process on the store."""

    @property
    def figures_serve(self) -> int:
        """Milliseconds that one count serves; 0: every call counts."""
        ...


@runtime_checkable
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


@runtime_checkable
class DeadLetters(Protocol):
    async def dead_letters(self, route: str | None, limit: int) -> list[DeadLetter]:
        """At most `limit` of the dead, without their payloads."""
        ...
