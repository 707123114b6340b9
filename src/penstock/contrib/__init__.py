"""The systems that Penstock replaces: their formats, calls, metrics, simulators and commands.

A system is mounted by the settings: by a route of its name, by its section, or by `contrib =
["ticks"]`; its formats are available to sources and routes that name them. A process that mounts
none imports none: this table names modules, as `penstock.schemes` does. Only wiring and the command
line read it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from penstock.api.verbs import Mount, load

if TYPE_CHECKING:
    from penstock.settings import Settings

__all__ = ["DISPATCHER", "SYSTEMS", "System", "in_use", "load", "mounted", "mounts"]

_HERE = "penstock.contrib"

DISPATCHER = f"{_HERE}.dispatcher.dispatch:Dispatcher"
"""Passes admissions on to programs that read them from Redis."""


@dataclass(frozen=True, slots=True)
class System:
    """One replaced system: what mounts it, and its additions as `module:name`."""

    routes: frozenset[str] = frozenset()
    """Names of routes that mount it."""
    sections: frozenset[str] = frozenset()
    """Sections of the settings that mount it."""
    formats: Mapping[str, str] = field(default_factory=dict)
    """Its formats of records: word → a penstock.flow.formats.Format."""
    sinks: str | None = None
    """(settings, route, sink) → the sink, wrapped as its formats require."""
    http: str | None = None
    """Its HTTP calls and its figures in /metrics: a penstock.api.verbs.Mount."""
    grpc: str | None = None
    """A gRPC service that is served beside penstock.v1."""
    commands: tuple[str, ...] = ()
    """Functions that add commands to `penstock sim`."""
    monitor: str | None = None
    """Its part of `penstock monitor`."""
    rate: str | None = None
    """The name of deliveries in its worker's log: `<rate>/s: N`."""


SYSTEMS = {
    "dispatcher": System(
        sections=frozenset({"rooms"}),
        http=f"{_HERE}.dispatcher.http:MOUNT",
        commands=(f"{_HERE}.dispatcher.commands:register",),
    ),
    "scheduler": System(
        routes=frozenset({"events"}),
        formats={"schedule-event": f"{_HERE}.scheduler_service.record:SCHEDULE_EVENT"},
        grpc=f"{_HERE}.scheduler_service.service:SchedulerService",
        commands=(f"{_HERE}.scheduler_service.commands:register",),
    ),
    "sender": System(
        formats={
            "decision-batch": f"{_HERE}.sender.decision_batch:DECISION_BATCH",
            "decision-items": f"{_HERE}.sender.decision_batch:DECISION_ITEMS",
        },
        sinks=f"{_HERE}.sender.sinks:wrapped",
        commands=(
            f"{_HERE}.sender.decision_commands:register",
            f"{_HERE}.sender.provider_commands:register",
        ),
    ),
    "sms": System(
        formats={"sms": f"{_HERE}.sms.record:SMS"},
        commands=(f"{_HERE}.sms.commands:register",),
        monitor=f"{_HERE}.sms.monitor:SmsMonitor",
    ),
    "ticks": System(
        routes=frozenset({"ticks"}),
        http=f"{_HERE}.ticks.http:MOUNT",
        commands=(f"{_HERE}.ticks.commands:register",),
        rate="Scheduled items",
    ),
}


def mounted(settings: Settings) -> list[System]:
    """The systems whose calls and figures these settings mount."""
    return [
        system
        for name, system in SYSTEMS.items()
        if name in settings.contrib
        or system.routes & settings.routes.keys()
        or system.sections & settings.model_fields_set
    ]


def in_use(settings: Settings) -> list[System]:
    """The systems whose formats these settings name."""
    named: set[str] = {route.format for route in settings.routes.values()}
    named |= {source.format for source in settings.sources.values()}
    return [system for system in SYSTEMS.values() if system.formats.keys() & named]


def mounts(settings: Settings) -> tuple[Mount, ...]:
    """The additions of these settings' systems to a server."""
    return tuple(load(system.http) for system in mounted(settings) if system.http is not None)
