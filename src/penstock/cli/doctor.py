"""`penstock doctor`: everything a server needs, tried once; one line for each."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import msgspec
import typer

from penstock.cli import show
from penstock.cli.session import FAILED, Session, command
from penstock.model.errors import PenstockError

if TYPE_CHECKING:
    from penstock.ports.store import Store
    from penstock.settings import Settings

PATIENCE = 10.0
"""Seconds that a store or a sink has to answer."""
CLOCK_MS = 1_000
"""Clocks that differ by more are worth a warning."""


class Finding(msgspec.Struct, frozen=True):
    status: Literal["ok", "warning", "failed"]
    part: str
    detail: str


def register(app: typer.Typer) -> None:
    command(app)(doctor)


def doctor(session: Session) -> None:
    """Try everything a server needs: settings, store, durability, each sink, the clock.

    One line for each; exit 1 when something failed. It connects to the store and to every sink,
    sends nothing and leaves nothing behind.

    \b
    Examples:
      penstock doctor
      penstock doctor --config /etc/penstock/penstock.toml --json
    """
    findings = asyncio.run(_all(session))
    failed = any(finding.status == "failed" for finding in findings)
    if session.json:
        show.as_json({"status": "failed" if failed else "ok", "findings": findings})
    else:
        show.table(
            ("", "part", "/found"), [(each.status, each.part, each.detail) for each in findings]
        )
    if failed:
        raise typer.Exit(FAILED)


async def _all(session: Session) -> list[Finding]:
    from penstock.cli.config import server_problems

    found = session.examined()
    problems = [*found.problems, *await server_problems(found.settings)]
    findings = [Finding("failed", "settings", problem) for problem in problems]
    findings += [Finding("warning", "settings", warning) for warning in found.warnings]
    if not findings:
        where = "defaults (no penstock.toml here)" if found.file is None else str(found.file)
        findings.append(Finding("ok", "settings", where))
    findings += [finding async for finding in _store(found.settings)]
    sinks = (_sink(name, found.settings) for name in found.settings.all_routes())
    return [*findings, *await asyncio.gather(*sinks)]


async def _store(settings: Settings) -> AsyncIterator[Finding]:
    """The store, its durability and its clock."""
    from penstock.settings.secrets import redact
    from penstock.wiring import in_memory, nothing_to_read, open_store

    address = show.full_address(redact(settings.store))
    try:
        if missing := nothing_to_read(settings):
            memory = in_memory(settings)
            yield (
                Finding("warning", "store", missing)
                if memory
                else await _new_store(settings, missing)
            )
            return
        with _warnings_logged() as warnings:
            async with asyncio.timeout(PATIENCE):
                store = await open_store(settings)
        try:
            async with asyncio.timeout(PATIENCE):
                facts = await store.messages.check()
            yield Finding("ok", "store", f"{address} answers and takes writes")
            for finding in _durability(store, facts, warnings):
                yield finding
            yield _clock(store)
        finally:
            await store.close()
    except TimeoutError:
        yield Finding("failed", "store", f"{address} did not answer within {PATIENCE:.0f} s")
    except PenstockError as exc:
        yield Finding("failed", "store", exc.message)


async def _new_store(settings: Settings, missing: str) -> Finding:
    """Whether a store that is not there can be made: one beside it is, and is removed again."""
    from penstock.wiring import open_store, scratch_store

    with _warnings_logged():
        try:
            async with asyncio.timeout(PATIENCE), scratch_store(settings) as beside:
                await (await open_store(beside)).close()
        except PenstockError:
            why = "its folder does not exist or cannot be written"
            return Finding("failed", "store", f"{missing} and cannot be made: {why}")
    return Finding(
        "warning", "store", f"{missing}; `penstock store init` makes one, and so does `serve`"
    )


def _durability(store: Store, facts: dict[str, str], logged: list[str]) -> Iterator[Finding]:
    warnings = [*store.warnings, *logged]
    if not warnings:
        yield Finding("ok", "durability", facts.get("durability", "no known risk"))
    for warning in warnings:
        yield Finding("warning", "durability", warning)


def _clock(store: Store) -> Finding:
    offset = store.clock.now() - show.now()
    if abs(offset) > CLOCK_MS:
        ahead = "ahead of" if offset > 0 else "behind"
        text = f"the store's clock is {abs(offset) / 1000:.1f} s {ahead} this machine's"
        return Finding("warning", "clock", f"{text}; messages go out by the store's")
    return Finding("ok", "clock", "the store and this machine agree within a second")


async def _sink(name: str, settings: Settings) -> Finding:
    from penstock.settings.secrets import redact
    from penstock.wiring import open_sink

    options, part = settings.all_routes()[name], f"sink of {name}"
    address = redact(options.sink)
    try:
        sink = await open_sink(name, options)
        try:
            async with asyncio.timeout(PATIENCE):
                await sink.check()
        finally:
            await sink.close()
    except TimeoutError:
        return Finding("failed", part, f"{address} did not answer within {PATIENCE:.0f} s")
    except PenstockError as exc:
        return Finding("failed", part, f"{address}: {exc.message}")
    return Finding("ok", part, address)


@contextmanager
def _warnings_logged() -> Iterator[list[str]]:
    """Collect the warnings that drivers log while the block runs."""
    found: list[str] = []

    class Collect(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            found.append(record.getMessage())

    logger, handler = logging.getLogger("penstock"), Collect(logging.WARNING)
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield found
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates
