"""The wrappers of the sender's sinks."""

from __future__ import annotations

from penstock.contrib.sender.allowed import AllowedSink
from penstock.contrib.sender.packed import PackedSink
from penstock.ports.sink import Sink
from penstock.settings import Settings

BATCHES = "decision-batch"


def wrapped(settings: Settings, route: str, sink: Sink) -> Sink:
    """Packed if the route uses batches; ALLOW is written if notifications are sent one by one."""
    options = settings.routes.get(route)
    if options is not None and options.format == BATCHES:
        return PackedSink(sink)
    return AllowedSink(sink) if route in _fed(settings) else sink


def _fed(settings: Settings) -> set[str]:
    """The routes that receive notifications from decision batches."""
    return {
        route
        for source in settings.sources.values()
        if source.format == BATCHES
        for route in (source.route, *source.routes.values())
    }
