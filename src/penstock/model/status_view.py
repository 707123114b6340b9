"""The system's status as the API, the clients and the command line show it."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.model.fleet import LaneState, Role
from penstock.model.state import State


class RouteStats(msgspec.Struct, frozen=True, kw_only=True):
    """The store's figures for a route, and its workers' state."""

    scheduled: int
    overdue: int
    leased: int
    dead: int
    next_due: str | None
    sink: str | None = None
    """The sink; None if no worker serves the route, but the store holds messages for it."""
    paused: bool = False
    in_flight: int | None = None
    """Sends under way; None if no live worker serves the route."""
    capacity: int | None = None
    """Most sends in flight, of all workers together."""
    waiting_for_sink: bool | None = None
    """True if some worker's sink does not answer at all: its messages wait in the store."""
    reached: bool | None = None
    """False if some worker's sink has not answered once since that worker started."""
    errors: int = 0
    """Failed attempts counted by the processes known now."""


class RouteStatus(RouteStats, frozen=True, kw_only=True):
    """A route's status with its name, for lists."""

    name: str


class RoutesOut(msgspec.Struct, frozen=True):
    items: list[RouteStatus]
    next: None = None


class PausedOut(msgspec.Struct, frozen=True):
    name: str
    paused: bool


class HealthOut(msgspec.Struct, frozen=True):
    """Liveness: the process is up. Its dependencies are reported by readyz."""

    status: str
    version: str
    uptime: float
    worker: bool


class LatenessStats(msgspec.Struct, frozen=True, kw_only=True):
    """Lateness (released - due) in milliseconds; quantiles are upper bounds of their bucket."""

    count: int
    mean: float
    p50: int | None
    p99: int | None
    max: int
    early: int


class ProcessStats(msgspec.Struct, frozen=True, kw_only=True):
    """One process on the store."""

    id: str
    role: Role
    host: str
    pid: int
    version: str
    started: str
    last_seen: str
    alive: bool
    """False if it stopped, or sent no heartbeat for a while."""
    stopped: bool = False
    """True if it stopped in order: nothing went wrong."""
    routes: dict[str, LaneState]
    """Its worker's state by route; empty without a worker."""
    metrics: str | None
    """The address of its Prometheus metrics; None if it serves none."""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """The store's figures, and the counts of its processes since they started."""

    now: str
    version: str
    uptime: float
    """Seconds since the answering process started."""
    states: dict[State, int]
    routes: dict[str, RouteStats]
    totals: dict[str, int]
    """Messages by stage: accepted, released, delivered, retry, dead …"""
    counts: dict[str, dict[str, int]]
    """Messages by route, then stage."""
    lateness: dict[str, LatenessStats]
    processes: list[ProcessStats] = []
    policies: dict[str, dict[str, int]] = {}
    """Policy → allowed (it applied, and the message was sent), deferred, blocked (it was the
    binding policy), shadowed (it would have been)."""


class ForecastSpan(msgspec.Struct, frozen=True, kw_only=True):
    from_: str = msgspec.field(name="from")
    routes: dict[str, int]
    """Only routes with messages due in this span."""


class ForecastView(msgspec.Struct, frozen=True, kw_only=True):
    """Due messages to come; the first minute and the first hour begin with the overdue."""

    now: str
    minutes: list[ForecastSpan]
    hours: list[ForecastSpan]
    later: dict[str, int]
    """Messages due after the last hour."""
    exact: bool
    """False if some messages were spread evenly over the time they may be due in."""


class PartHealth(msgspec.Struct, frozen=True, kw_only=True):
    """The health of one part."""

    status: Literal["ok", "behind", "waiting", "overdue", "failed", "none"]
    """behind: the worker does not keep up; waiting: the sink does not answer, or has not answered
    once since this process started; overdue: calls of a function take longer than the route's
    timeout; none: there is no worker in this process."""
    detail: str | None = None
    facts: dict[str, str | float | bool] = {}


class Readiness(msgspec.Struct, frozen=True):
    """Whether messages can be accepted now, with the facts."""

    status: str
    """ready · not ready · stopping"""
    store: str = ""
    """The store's name; empty if the caller may see only status and part names."""
    facts: dict[str, str] = {}
    """Facts about the store."""
    error: str | None = None
    parts: dict[str, PartHealth] = {}
    """store, worker, and sink.ROUTE for each route that is served here."""


class PartStatus(msgspec.Struct, frozen=True):
    """The health of one part, without details."""

    status: str


class ReadinessSummary(msgspec.Struct, frozen=True):
    """Whether messages can be accepted now, for callers who may not see more."""

    status: str
    parts: dict[str, PartStatus] = {}


def summary_of(readiness: Readiness) -> ReadinessSummary:
    """The status and the part names: no address, path, host or error text."""
    parts = {name: PartStatus(part.status) for name, part in readiness.parts.items()}
    return ReadinessSummary(readiness.status, parts)


class DeadGroup(msgspec.Struct, kw_only=True):
    """A route's dead letters with the same error."""

    route: str
    error: str
    """The common error text: numbers and ids are #, except the status of a sink's answer."""
    match: str | None
    """A literal piece of the error, for the `error` of a filter; None if there is none."""
    count: int
    oldest: str
    newest: str
    """When the most recent of them died; `oldest` is the first."""
    example_id: str


class DeadGroups(msgspec.Struct, frozen=True, kw_only=True):
    """Groups of dead letters, the largest first."""

    items: list[DeadGroup]
    truncated: bool
    """True if there are more dead letters than were read, or more groups than are listed."""


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """Curves of equal length, newest last; null where a value is unknown."""

    step: int
    """Seconds between two points."""
    from_: str = msgspec.field(name="from")
    """The moment of the first point."""
    points: dict[str, list[float | None]]
    """accepted, released, delivered, failed, deferred, blocked: messages in that second;
    pending: scheduled; late_p50, late_p99: milliseconds."""


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """The newest point of every curve."""

    at: str
    points: dict[str, float | None]


def routes_of(shown: RoutesOut) -> list[RouteStatus]:
    return shown.items
