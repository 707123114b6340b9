"""The intake topic: ids of messages travel to the store over a broker."""

from __future__ import annotations

from contextlib import AsyncExitStack

from penstock.flow.hop import Announcer
from penstock.flow.intake import Put
from penstock.model.errors import ConfigError
from penstock.ports.sink import Sink, SinkOptions
from penstock.ports.source import Source, SourceOptions
from penstock.ports.store import Store
from penstock.schemes import SINKS, SOURCES, driver_of
from penstock.settings import Settings

HOP_TIMEOUT = 2.0
"""Most seconds a caller waits for the intake topic before ids go to the store directly."""


async def announcing(settings: Settings, store: Store, stack: AsyncExitStack) -> Put | None:
    """A put that also announces its ids on the intake topic; None without one."""
    if settings.intake_topic is None:
        return None
    if store.admitting is None:
        raise ConfigError(
            f"intake_topic: ids take this way only with dynamodb+redis://; {store.name} keeps them"
            " with its messages"
        )
    sink = await intake_sink(settings.intake_topic)
    stack.push_async_callback(sink.close)
    return Announcer(store.admitting, sink).put


async def intake_sink(url: str) -> Sink:
    driver_of(SOURCES, url, "intake_topic")  # the topic is read as well
    driver = driver_of(SINKS, url, "intake_topic")
    options = SinkOptions(at="intake_topic", timeout=HOP_TIMEOUT, more={"create_topic": True})
    sink: Sink = await driver.open_sink(url, options)
    return sink


async def intake_source(url: str) -> Source:
    driver = driver_of(SOURCES, url, "intake_topic")
    options = SourceOptions(source="intake_topic", more={"create_topic": True})
    source: Source = await driver.open_source(url, options)
    return source
