"""The monitor's subjects: the engine, the systems beside it, or both; and the intervals."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec
from rich.live import Live

from penstock.cli import monitor_view, show
from penstock.cli.monitor_view import Look, SystemLook
from penstock.cli.session import Session
from penstock.contrib import SYSTEMS, load
from penstock.model.errors import PenstockError, StoreUnavailable, UnknownThing
from penstock.model.status_view import Stats
from penstock.model.times import format_moment
from penstock.settings_origin import dotenv
from penstock.telemetry.logs import setup_logging

log = logging.getLogger("penstock.monitor")

T = TypeVar("T")
SystemAsk = Callable[[], Awaitable[SystemLook]]
EngineAsk = Callable[[], Awaitable[Stats]]


PAUSE = 5.0


class Watched(Protocol):
    """A system that may be watched beside the engine."""

    configured: bool
    """True if the environment or .env configures it."""
    update_interval: float
    """Seconds between two looks."""
    log_file: Path | None
    log_format: str | None

    async def open(self, stack: AsyncExitStack) -> SystemAsk:
        """Return the function that reads its figures; closed with the stack."""


async def watch(
    session: Session,
    interval: float | None,
    updates: int | None,
    stopping: asyncio.Event,
    log_file: Path | None = None,
) -> bool:
    """Look, show, wait; until `stopping` or after so many updates. False: it never saw anything."""
    systems = _systems()
    configured = any(one.configured for one in systems.values())
    async with AsyncExitStack() as stack:
        engine, nothing = await _engine(session, stack, alone=not configured)
        asks = dict.fromkeys(systems)
        for name, one in systems.items():
            # With no engine to watch, a system is looked for where it is by default.
            if one.configured or engine is None:
                asks[name] = await one.open(stack)
        looker = _Looker(engine, asks)
        first = await looker.look()
        if engine is None and not (configured or first.found):
            raise UnknownThing(f"nothing to watch: {nothing}; nor a system: {first.errors[0]}")
        pause = interval or min([one.update_interval for one in systems.values()], default=PAUSE)
        display = stack.enter_context(_display(session, log_file, systems.values()))
        display(first)
        seen, found = 1, first.found
        while not stopping.is_set() and (updates is None or seen < updates):
            if not await _waited(pause, stopping):
                break
            display(look := await looker.look())
            seen, found = seen + 1, found or look.found
        return found


def _systems() -> dict[str, Watched]:
    """Every system that can be watched, configured or not."""
    values = dotenv()
    return {
        name: load(system.monitor)(values)
        for name, system in SYSTEMS.items()
        if system.monitor is not None
    }


class _Looker:
    """Reads all of them, and computes rates since the previous refresh."""

    def __init__(self, engine: EngineAsk | None, systems: Mapping[str, SystemAsk | None]) -> None:
        self._engine = engine
        self._systems = systems
        self._before: tuple[float, dict[str, int]] | None = None

    async def look(self) -> Look:
        errors: list[str] = []
        engine = await _asked(self._engine, errors)
        systems = {name: await _asked(ask, errors) for name, ask in self._systems.items()}
        if engine is not None and any(systems.values()) and _is_unused(engine):
            engine = None  # a line of zeros beside the figures of a system would be noise
        rates = {} if engine is None else self._rates(engine.totals)
        now = format_moment(time.time_ns() // 1_000_000)
        return Look(at=now, systems=systems, engine=engine, rates=rates, errors=errors)

    def _rates(self, totals: dict[str, int]) -> dict[str, float]:
        now, before = time.monotonic(), self._before
        self._before = (now, totals)
        if before is None:
            return {}
        elapsed = max(now - before[0], 0.001)
        changes = {name: number - before[1].get(name, 0) for name, number in totals.items()}
        # Less than before: another process answers now, and it began at 0.
        return {name: max(0, more) / elapsed for name, more in changes.items()}


def _is_unused(engine: Stats) -> bool:
    """True if the engine has stored and counted nothing and no process runs."""
    return not (any(engine.states.values()) or engine.totals or engine.processes)


async def _asked(ask: Callable[[], Awaitable[T]] | None, errors: list[str]) -> T | None:
    if ask is None:
        return None
    try:
        return await ask()
    except PenstockError as exc:
        errors.append(exc.message)  # shown beside the rest: the next look may find it back
        return None


async def _engine(
    session: Session, stack: AsyncExitStack, *, alone: bool
) -> tuple[EngineAsk | None, str]:
    """Return how to read the engine; or None, with the reason.

    `alone`: nothing else is configured, and an unavailable store is an error.
    """
    try:
        verbs = await stack.enter_async_context(session.verbs())
    except UnknownThing as exc:
        return None, exc.message
    except StoreUnavailable as exc:
        if alone:
            raise
        return _away(exc), ""
    return verbs.stats, ""


def _away(exc: StoreUnavailable) -> EngineAsk:
    async def ask() -> Stats:
        raise exc

    return ask


@contextmanager
def _display(
    session: Session, log_file: Path | None, systems: Iterable[Watched]
) -> Iterator[Callable[[Look], None]]:
    """Live in a terminal, one line per look elsewhere, JSON for machines; and into the log's file.

    JSON by --json or LOG_FORMAT=json; [log] format = "json" of the settings where no terminal is.
    """
    files = [one.log_file for one in systems if one.log_file is not None]
    formats = [one.log_format for one in systems if one.log_format is not None]
    file = log_file or next(iter(files), None)
    with _file(file) as write, _screen(session, next(iter(formats), None)) as display:

        def show_and_write(look: Look) -> None:
            display(look)
            write(look)

        yield show_and_write


@contextmanager
def _screen(session: Session, log_format: str | None) -> Iterator[Callable[[Look], None]]:
    terminal = sys.stdout.isatty()
    if not terminal and log_format is None:
        log_format = session.settings().log.format
    if session.json or log_format == "json":
        yield lambda look: show.as_json(look.as_json())
    elif terminal:
        with Live(console=show.console(), auto_refresh=False) as live:
            yield lambda look: live.update(monitor_view.as_tables(look), refresh=True)
    else:

        def lines(look: Look) -> None:
            show.as_text(*monitor_view.as_lines(look))
            sys.stdout.flush()

        yield lines


@contextmanager
def _file(file: Path | None) -> Iterator[Callable[[Look], None]]:
    """Write one line of JSON per refresh, rotated like every log."""
    if file is None:
        yield lambda _look: None
        return
    handler = setup_logging(file=file, console=False)
    try:
        yield lambda look: log.info(msgspec.to_builtins(look.as_json()))
    finally:
        handler.close()


async def _waited(seconds: float, stopping: asyncio.Event) -> bool:
    """True if the time passed before the command was stopped."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return True
    return False
