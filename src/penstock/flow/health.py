"""HEALTH: each part of a process with its details, for /readyz."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

import msgspec

from penstock.model.fleet import LaneState

BEHIND_MS = 5_000
"""Something due longer ago that a worker could have taken means that it does not keep up."""


class PartHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How one part stands."""

    status: Literal["ok", "behind", "waiting", "overdue", "failed", "none"]
    """behind: the worker does not keep up; waiting: the sink does not answer, and its circuit
    breaker is open; overdue: calls of a function take longer than the route's timeout; none: there
    is no worker in this process."""
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


def sink_health(lane: LaneState) -> PartHealth:
    facts: dict[str, str | float | bool] = {
        "sink": lane.sink,
        "in_flight": lane.in_flight,
        "capacity": lane.capacity,
        "breaker_open": lane.waiting_for_sink,
        "overdue": lane.overdue,
    }
    if lane.waiting_for_sink:
        told = "does not answer: its messages wait in the store until it does"
        return PartHealth(status="waiting", detail=told, facts=facts)
    if lane.overdue:
        told = f"{lane.overdue} sends have been under way for longer than the route's timeout"
        return PartHealth(status="overdue", detail=told, facts=facts)
    return PartHealth(status="ok", facts=facts)


def worker_health(lanes: Mapping[str, LaneState]) -> PartHealth:
    """How long the oldest message has waited that nothing but this worker holds back."""
    if not lanes:
        return PartHealth(status="none")
    slowest = max(lanes, key=lambda name: lanes[name].lag)
    lag = lanes[slowest].lag / 1000
    if lag * 1000 > BEHIND_MS:
        told = f"{slowest} has messages that were due {lag:.1f} s ago"
        return PartHealth(status="behind", detail=told, facts={"lag_seconds": lag})
    return PartHealth(status="ok", facts={"lag_seconds": lag})
