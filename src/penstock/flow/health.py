"""HEALTH: each part of a process with its details, for /readyz."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.fleet import LaneState
from penstock.model.status_view import PartHealth

BEHIND_MS = 5_000
"""Something due longer ago that a worker could have taken means that it does not keep up."""


def sink_health(lane: LaneState) -> PartHealth:
    facts: dict[str, str | float | bool] = {
        "sink": lane.sink,
        "in_flight": lane.in_flight,
        "capacity": lane.capacity,
        "breaker_open": lane.waiting_for_sink,
        "reached": lane.reached,
        "overdue": lane.overdue,
    }
    if lane.waiting_for_sink:
        detail = "does not answer: its messages wait in the store until it does"
        return PartHealth(status="waiting", detail=detail, facts=facts)
    if not lane.reached:
        detail = "was not reached yet: messages go to it one by one until it answers"
        return PartHealth(status="waiting", detail=detail, facts=facts)
    if lane.overdue:
        detail = f"{lane.overdue} sends have been under way for longer than the route's timeout"
        return PartHealth(status="overdue", detail=detail, facts=facts)
    return PartHealth(status="ok", facts=facts)


def worker_health(lanes: Mapping[str, LaneState]) -> PartHealth:
    """The worker's health, by the age of the oldest message that only this worker delays."""
    if not lanes:
        return PartHealth(status="none")
    slowest = max(lanes, key=lambda name: lanes[name].lag)
    lag = lanes[slowest].lag / 1000
    if lag * 1000 > BEHIND_MS:
        detail = f"{slowest} has messages that were due {lag:.1f} s ago"
        return PartHealth(status="behind", detail=detail, facts={"lag_seconds": lag})
    return PartHealth(status="ok", facts={"lag_seconds": lag})
