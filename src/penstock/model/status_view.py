"""How things stand, as the API, the clients and the command line show it."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.model.fleet import LaneState, Role
from penstock.model.state import State


class RouteStats(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds for a route, and what the fleet is doing for it."""

    scheduled: int
    overdue: int
    leased: int
    dead: int
    next_due: str | None
    sink: str | None = None
    """None: nobody serves the route, but the store holds messages for it."""
    paused: bool = False
    in_flight: int | None = None
    """Sends under way; None: no worker that is alive serves the route."""
    capacity: int | None = None
    """Sends in flight at most, of all workers together."""
    waiting_for_sink: bool | None = None
    """To some worker the sink does not answer at all: its messages wait in the store."""
    reached: bool | None = None
    """False: to some worker the sink has not answered once since that worker started."""
    errors: int = 0
    """Attempts that failed, as far as the processes now known have counted."""


class RouteStatus(RouteStats, frozen=True, kw_only=True):
    """The same with the route's name, for lists."""

    name: str


class RoutesOut(msgspec.Struct, frozen=True):
    items: list[RouteStatus]
    next: None = None


class PausedOut(msgspec.Struct, frozen=True):
    name: str
    paused: bool


class HealthOut(msgspec.Struct, frozen=True):
    """The process is up; what it stands on is readyz's business."""

    status: str
    version: str
    uptime: float
    worker: bool


class LatenessStats(msgspec.Struct, frozen=True, kw_only=True):
    """released - due in milliseconds; quantiles are upper bounds of their bucket."""

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
    """False: it stopped, or was not seen for a while."""
    stopped: bool = False
    """It said that it ends: nothing went wrong."""
    routes: dict[str, LaneState]
    """What its worker is doing; empty without one."""
    metrics: str | None
    """Where it serves Prometheus; None: nowhere."""


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """What the store holds, and what the processes on it did since they started."""

    now: str
    version: str
    uptime: float
    """Seconds since the process that answers was started."""
    states: dict[State, int]
    routes: dict[str, RouteStats]
    totals: dict[str, int]
    """Messages by stage: accepted, released, delivered, retry, dead …"""
    counts: dict[str, dict[str, int]]
    """The same by route, then stage."""
    lateness: dict[str, LatenessStats]
    processes: list[ProcessStats] = []
    policies: dict[str, dict[str, int]] = {}
    """Policy → allowed (it applied, and the message went), deferred, blocked (it was the one
    that bound), shadowed (it would have been)."""


class ForecastSpan(msgspec.Struct, frozen=True, kw_only=True):
    from_: str = msgspec.field(name="from")
    routes: dict[str, int]
    """Only routes of which something is due in this span."""


class ForecastView(msgspec.Struct, frozen=True, kw_only=True):
    """What is coming due; the first minute and the first hour begin with what is overdue."""

    now: str
    minutes: list[ForecastSpan]
    hours: list[ForecastSpan]
    later: dict[str, int]
    """Due behind the last hour."""
    exact: bool
    """False: some were spread evenly over the time they may be due in."""


class PartHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How one part stands."""

    status: Literal["ok", "behind", "waiting", "overdue", "failed", "none"]
    """behind: the worker does not keep up; waiting: the sink does not answer, or has not answered
    once since this process started; overdue: calls of a function take longer than the route's
    timeout; none: there is no worker in this process."""
    detail: str | None = None
    facts: dict[str, str | float | bool] = {}


class Readiness(msgspec.Struct, frozen=True):
    """Whether messages can be taken now, with the facts."""

    status: str
    """ready · not ready · stopping"""
    store: str = ""
    """Its name; empty where the caller may not see more than status and names of parts."""
    facts: dict[str, str] = {}
    """Of the store."""
    error: str | None = None
    parts: dict[str, PartHealth] = {}
    """store, worker, and sink.ROUTE for each route that is served here."""


class PartStatus(msgspec.Struct, frozen=True):
    """How one part stands, without any detail."""

    status: str


class ReadinessSummary(msgspec.Struct, frozen=True):
    """Whether messages can be taken now, for callers who may not see more."""

    status: str
    parts: dict[str, PartStatus] = {}


def summary_of(readiness: Readiness) -> ReadinessSummary:
    """The status and the names of the parts: no address, path, host or error text."""
    parts = {name: PartStatus(part.status) for name, part in readiness.parts.items()}
    return ReadinessSummary(readiness.status, parts)


class DeadGroup(msgspec.Struct, kw_only=True):
    """Dead letters of a route that died of the same."""

    route: str
    error: str
    """What they have in common: numbers and ids are #, but for the status that a sink answered."""
    match: str | None
    """A literal piece of it, for the `error` of a filter; None: there is none."""
    count: int
    oldest: str
    newest: str
    """When the first and the last of them died."""
    example_id: str


class DeadGroups(msgspec.Struct, frozen=True, kw_only=True):
    """The largest group first."""

    items: list[DeadGroup]
    truncated: bool
    """There are more dead letters than were looked at, or more groups than are told."""


class HistoryView(msgspec.Struct, frozen=True, kw_only=True):
    """Curves of equal length, the newest last; null where nothing is known."""

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
