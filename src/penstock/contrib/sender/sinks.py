"""What a route of the sender has around its sink."""

from __future__ import annotations

from penstock.contrib.sender.allowed import AllowedSink
from penstock.contrib.sender.packed import PackedSink
from penstock.ports.sink import Sink
from penstock.settings import Settings

BATCHES = "decision-batch"


def wrapped(settings: Settings, route: str, sink: Sink) -> Sink:
    """Packed where the route asks for batches; where notifications of batches go on one by one,
    each says ALLOW."""
    options = settings.routes.get(route)
    if options is not None and options.format == BATCHES:
        return PackedSink(sink)
    return AllowedSink(sink) if route in _fed(settings) else sink


def _fed(settings: Settings) -> set[str]:
    """The routes to which notifications come from decision batches."""
    return {
        route
        for source in settings.sources.values()
        if source.format == BATCHES
        for route in (source.route, *source.routes.values())
    }
