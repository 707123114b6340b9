"""Drivers' objections to their addresses, collected before any is used."""

from __future__ import annotations

from penstock.model.errors import ConfigError
from penstock.settings import Settings
from penstock.wiring.hop import intake_sink, intake_source
from penstock.wiring.sinks import open_sink
from penstock.wiring.sources import source_parts
from penstock.wiring.stores import check_store_address


async def driver_problems(settings: Settings) -> list[str]:
    """The problems of the store's and sinks' addresses; connects to none and creates nothing."""
    problems: list[str] = []
    try:
        check_store_address(settings)
    except ConfigError as exc:
        problems.append(exc.message)
    for name, options in settings.all_routes().items():
        try:
            sink = await open_sink(name, options)
        except ConfigError as exc:
            problems.append(exc.message)
        else:
            await sink.close()
    for name, source in settings.sources.items():
        try:
            async with source_parts(name, source):
                pass
        except ConfigError as exc:
            problems.append(exc.message)
    if settings.intake_topic is not None:
        try:
            await (await intake_sink(settings.intake_topic)).close()
            await (await intake_source(settings.intake_topic)).close()
        except ConfigError as exc:
            problems.append(exc.message)
    return problems
