"""What the monitor watches: the engine, the SMS system, or both; and when."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec
from rich.live import Live

from penstock.cli import monitor_view, show
from penstock.cli.monitor_view import Look, SmsLook
from penstock.cli.session import Session
from penstock.model.errors import PenstockError, StoreUnavailable, UnknownThing
from penstock.model.status_view import Stats
from penstock.model.times import format_moment
from penstock.settings_origin import dotenv
from penstock.sim.errors import client_library
from penstock.sim.sms.settings import is_configured, read_sms_settings
from penstock.telemetry.logs import setup_logging

log = logging.getLogger("penstock.monitor")

T = TypeVar("T")
SmsAsk = Callable[[], Awaitable[SmsLook]]
EngineAsk = Callable[[], Awaitable[Stats]]


async def watch(
    session: Session,
    interval: float | None,
    updates: int | None,
    stopping: asyncio.Event,
    log_file: Path | None = None,
) -> bool:
    """Look, show, wait; until `stopping` or after so many updates. False: it never saw anything."""
    async with AsyncExitStack() as stack:
        engine, nothing = await _engine(session, stack)
        # With no engine to watch, the SMS system is looked for where it is by default.
        sms = await _sms(stack) if is_configured(dotenv()) or engine is None else None
        looker = _Looker(engine, sms)
        first = await looker.look()
        if engine is None and first.sms is None and not is_configured(dotenv()):
            raise UnknownThing(f"nothing to watch: {nothing}; nor an SMS system: {first.errors[0]}")
        pause = interval or read_sms_settings(dotenv()).update_interval
        display = stack.enter_context(_display(session, log_file))
        display(first)
        seen, found = 1, first.found
        while not stopping.is_set() and (updates is None or seen < updates):
            if not await _waited(pause, stopping):
                break
            display(look := await looker.look())
            seen, found = seen + 1, found or look.found
        return found


class _Looker:
    """Asks both, and works out what passed since the look before."""

    def __init__(self, engine: EngineAsk | None, sms: SmsAsk | None) -> None:
        self._engine = engine
        self._sms = sms
        self._before: tuple[float, dict[str, int]] | None = None

    async def look(self) -> Look:
        errors: list[str] = []
        engine = await _asked(self._engine, errors)
        sms = await _asked(self._sms, errors)
        if sms is not None and engine is not None and _is_unused(engine):
            engine = None  # a line of zeros beside the SMS figures tells nothing
        rates = {} if engine is None else self._rates(engine.totals)
        now = format_moment(time.time_ns() // 1_000_000)
        return Look(at=now, sms=sms, engine=engine, rates=rates, errors=errors)

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
    """Nothing is held or was counted, and no process runs."""
    return not (any(engine.states.values()) or engine.totals or engine.processes)


async def _asked(ask: Callable[[], Awaitable[T]] | None, errors: list[str]) -> T | None:
    if ask is None:
        return None
    try:
        return await ask()
    except PenstockError as exc:
        errors.append(exc.message)  # shown beside the rest: the next look may find it back
        return None


async def _engine(session: Session, stack: AsyncExitStack) -> tuple[EngineAsk | None, str]:
    """How to ask the engine; or None, and why there is nothing to ask."""
    try:
        verbs = await stack.enter_async_context(session.verbs())
    except UnknownThing as exc:
        return None, exc.message
    except StoreUnavailable as exc:
        if not is_configured(dotenv()):
            raise
        return _away(exc), ""  # there is the SMS system to show all the same
    return verbs.stats, ""


def _away(exc: StoreUnavailable) -> EngineAsk:
    async def ask() -> Stats:
        raise exc

    return ask


async def _sms(stack: AsyncExitStack) -> SmsAsk:
    client_library("redis", "redis")
    from penstock.sim.sms.stats import SmsStats

    settings = read_sms_settings(dotenv())
    stats = SmsStats.at(settings.redis, settings.queue)
    stack.push_async_callback(stats.close)

    async def ask() -> SmsLook:
        return monitor_view.sms_look(settings.queue, await stats.read())

    return ask


@contextmanager
def _display(session: Session, log_file: Path | None) -> Iterator[Callable[[Look], None]]:
    """Live in a terminal, one line per look elsewhere, JSON for machines; and into the log's file.

    JSON by --json or LOG_FORMAT=json; [log] format = "json" of the settings where no terminal is.
    """
    sms = read_sms_settings(dotenv())
    file = log_file or sms.monitor_log_file
    with _file(file) as write, _screen(session, sms.log_format) as display:

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
        yield show.as_json
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
    """One line of JSON per look, rotated as every log."""
    if file is None:
        yield lambda _look: None
        return
    handler = setup_logging(file=file, console=False)
    try:
        yield lambda look: log.info(msgspec.to_builtins(look))
    finally:
        handler.close()


async def _waited(seconds: float, stopping: asyncio.Event) -> bool:
    """Whether the time passed before it was asked to stop."""
    try:
        async with asyncio.timeout(seconds):
            await stopping.wait()
    except TimeoutError:
        return True
    return False
