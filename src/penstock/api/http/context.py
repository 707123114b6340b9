"""The parts of this process that every handler uses, and the limits of its requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from penstock.api.audit import Audit
from penstock.api.http.auth import Guard
from penstock.api.http.clients import Clients
from penstock.api.http.live import Live
from penstock.api.http.receiving import Receiving
from penstock.api.http.visitors import Visitors
from penstock.api.verbs import Mount, load
from penstock.flow.status import Status
from penstock.flow.worker import Worker
from penstock.model.errors import Overloaded
from penstock.rooms.parts import RoomParts
from penstock.telemetry.metrics import Family, families
from penstock.version import __version__
from penstock.wiring import Parts

VERSION = __version__
MAX_IN_FLIGHT = 20_000
"""Single puts waiting for the store at most; more are answered 429."""
SMALL_BODY = 64 * 1024
"""Bytes of a body that carries no payload: filters, rooms, policies."""
VISITOR_BODY = 4 * 1024
"""Bytes of a visitor's request body."""


Everyone: TypeAlias = Callable[[], Awaitable[Mapping[str, list[Family]]]]


@dataclass(slots=True)
class Api:
    """The parts of this process, as the handlers see them."""

    parts: Parts
    guard: Guard
    worker: Worker | None = None
    max_in_flight: int = MAX_IN_FLIGHT
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the server stops: streams end."""
    started: float = field(default_factory=time.monotonic)
    in_flight: int = 0
    """Single puts received and not answered yet."""
    rooms: RoomParts | None = None
    """None: this store has no waiting rooms."""
    mounts: tuple[Mount, ...] = ()
    """The verbs and pages that parts beside the core add to this server."""
    everyone: Everyone | None = None
    """Collects metrics from the processes that share this port; None: there is only this one."""
    visitors: Visitors = field(default_factory=Visitors)
    audit: Audit = field(default_factory=Audit)
    clients: Clients = field(init=False)
    receiving: Receiving = field(init=False)
    status: Status = field(init=False)
    live: Live = field(init=False)

    def __post_init__(self) -> None:
        settings = self.parts.settings.api
        self.clients = Clients(settings.trusted_proxies)
        self.receiving = Receiving(max(settings.max_receiving, settings.max_body))
        self.status = self.parts.status()
        self.live = Live(self.status, self.parts.store.clock, self.closing, self.rooms)

    def families(self) -> list[Family]:
        """The metrics of this process."""
        return families(self.parts.observer, self.worker, self.collectors())

    def collectors(self) -> list[Any]:
        """The metric collectors that the mounted parts add to /metrics."""
        named = [mount.figures for mount in self.mounts if mount.figures]
        return [one for name in named for one in load(name)(self.rooms)]

    def check_load(self) -> None:
        if self.in_flight >= self.max_in_flight:
            raise Overloaded(f"{self.in_flight:,} messages are waiting for the store already")
