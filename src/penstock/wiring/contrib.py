"""Additions of the contrib systems to sources and sinks whose settings name their formats."""

from __future__ import annotations

from penstock.contrib import SYSTEMS, in_use, load
from penstock.flow.formats import MESSAGE, Format
from penstock.ports.sink import Sink
from penstock.settings import Settings


def format_named(name: str) -> Format:
    """The format of a source's records."""
    for system in SYSTEMS.values():
        if name in system.formats:
            found: Format = load(system.formats[name])
            return found
    return MESSAGE


def wrapped(settings: Settings, route: str, sink: Sink) -> Sink:
    """The sink of a route, wrapped as the formats in use require."""
    for system in in_use(settings):
        if system.sinks is not None:
            sink = load(system.sinks)(settings, route, sink)
    return sink
