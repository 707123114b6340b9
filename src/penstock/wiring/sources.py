"""Sources, and the dead-letter sinks for records that they cannot read."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit

from penstock.flow.hop import Admitter
from penstock.flow.ingest import BATCH, Ingest
from penstock.ports.sink import Sink, SinkOptions
from penstock.ports.source import Source
from penstock.schemes import SINKS, SOURCES, driver_of
from penstock.settings import SourceSettings
from penstock.wiring.contrib import format_named
from penstock.wiring.hop import intake_source
from penstock.wiring.parts import Parts

LOGIN = (
    "username",
    "password",
    "sasl",
    "creds",
    "tls",
    "tls_ca",
    "tls_cert",
    "tls_key",
    "tls_verify",
)
"""A source's settings for credentials and trusted certificates."""
MADE = ("create_topic", "quorum", "stream", "retention", "max_age", "max_bytes", "discard")
"""A source's settings for creating its topic, queue or stream."""


@asynccontextmanager
async def open_sources(parts: Parts) -> AsyncIterator[list[Ingest | Admitter]]:
    """The intakes of messages, or of their ids, from brokers; closed at the end."""
    async with AsyncExitStack() as stack:
        ingests: list[Ingest | Admitter] = []
        topic, admitting = parts.settings.intake_topic, parts.store.admitting
        if topic is not None and admitting is not None:
            ids = await intake_source(topic)
            stack.push_async_callback(ids.close)
            ingests.append(Admitter(admitting, ids, parts.store.clock))
        for name, options in parts.settings.sources.items():
            opened = await stack.enter_async_context(source_parts(name, options))
            source, dead_letter = opened
            records = format_named(options.format)
            ingests.append(
                Ingest(
                    name,
                    source,
                    records.reader(options.routes),
                    parts.intake,
                    parts.store.clock,
                    parts.observer,
                    route=options.route,
                    dead_letter=dead_letter,
                    alone=records.alone,
                    batch=options.batch or records.records or BATCH,
                )
            )
        yield ingests


@asynccontextmanager
async def source_parts(
    name: str, options: SourceSettings
) -> AsyncIterator[tuple[Source, Sink | None]]:
    """The source and its dead-letter sink, whose limits are a route's defaults."""
    async with AsyncExitStack() as stack:
        driver = driver_of(SOURCES, options.from_, f"sources.{name}.from")
        source: Source = await driver.open_source(options.from_, options.as_source_options(name))
        stack.push_async_callback(source.close)
        dead_letter: Sink | None = None
        if options.dead_letter is not None:
            dead_letter = await _dead_letter(options, options.dead_letter, name)
            stack.push_async_callback(dead_letter.close)
        yield source, dead_letter


async def _dead_letter(source: SourceSettings, url: str, name: str) -> Sink:
    """The dead-letter sink; at the source's own broker it uses the source's login."""
    where = f"sources.{name}.dead_letter"
    driver = driver_of(SINKS, url, where)
    _, extra = SINKS[urlsplit(url).scheme]
    # A broker's topic is created if missing: otherwise a record without a destination is lost.
    more: dict[str, object] = {"create_topic": True} if extra is not None else {}
    if _broker(url) == _broker(source.from_):
        given = source.model_extra or {}
        more |= {login: given[login] for login in LOGIN if login in given}
    sink: Sink = await driver.open_sink(url, SinkOptions(at=where, more=more))
    return sink


async def publisher_to(source: SourceSettings, name: str) -> Sink:
    """A sink to the topic that the source reads, with its login and its creation settings."""
    where = f"sources.{name}.from"
    given = source.model_extra or {}
    more = {setting: given[setting] for setting in (*LOGIN, *MADE) if setting in given}
    driver = driver_of(SINKS, source.from_, where)
    sink: Sink = await driver.open_sink(source.from_, SinkOptions(at=where, more=more))
    return sink


def _broker(url: str) -> tuple[str, str]:
    parts = urlsplit(url)
    return parts.scheme, parts.netloc.rpartition("@")[2]
