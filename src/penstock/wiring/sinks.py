"""The sinks of routes."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from penstock.drivers import SINKS, driver_of
from penstock.ports.sink import Sink
from penstock.settings import RouteSettings


async def open_sink(name: str, options: RouteSettings) -> Sink:
    driver = driver_of(SINKS, options.sink, f"routes.{name}.sink")
    sink: Sink = await driver.open_sink(options.sink, options.as_sink_options(name))
    if options.format == "decision-batch":
        sink = import_module("penstock.sinks.packed").PackedSink(sink)
    return sink


def handler_sink(name: str, handler: Callable[..., object]) -> Sink:
    """A sink that calls a function of the program Penstock runs in."""
    sink: Sink = import_module("penstock.sinks.python").python_sink(handler, name)
    return sink
