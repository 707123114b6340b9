"""The sinks of routes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from importlib import import_module

from penstock.model.errors import SinkUnavailable
from penstock.ports.sink import Sink
from penstock.schemes import SINKS, driver_of
from penstock.settings import RouteSettings, Settings

log = logging.getLogger("penstock")

LOOK_AGAIN = 0.5
"""Seconds between two attempts to reach a broker that is starting."""


async def open_sink(name: str, options: RouteSettings) -> Sink:
    driver = driver_of(SINKS, options.sink, f"routes.{name}.sink")
    sink: Sink = await driver.open_sink(options.sink, options.as_sink_options(name))
    return sink


async def init_routes(settings: Settings, patience: float) -> dict[str, str]:
    """Create the topics, queues and streams of routes with `create_topic`; route → its address.

    A starting broker has `patience` seconds; then SinkUnavailable names the route.
    """
    made: dict[str, str] = {}
    for name, options in settings.routes.items():
        if not (options.model_extra or {}).get("create_topic"):
            continue
        sink = await open_sink(name, options)
        try:
            await _until_it_answers(name, sink, patience)
            made[name] = sink.name
        finally:
            await sink.close()
    return made


async def _until_it_answers(name: str, sink: Sink, patience: float) -> None:
    loop = asyncio.get_running_loop()
    until = loop.time() + patience
    while True:
        try:
            await sink.check()
        except SinkUnavailable as exc:
            if loop.time() >= until:
                raise SinkUnavailable(f"routes.{name}.sink: {exc.message}") from exc
            log.info("waiting for the sink of route %r: %s", name, exc)
            await asyncio.sleep(LOOK_AGAIN)
        else:
            return


def handler_sink(name: str, handler: Callable[..., object]) -> Sink:
    """A sink that calls a function of the embedding program."""
    sink: Sink = import_module("penstock.sinks.python").python_sink(handler, name)
    return sink
