"""Senders of the SMS system: one in this process, or several in processes of their own.

Each logs `Sent messages/s: N` while it sends. The result is the figures of the queue, which are
those of all its senders.
"""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.contrib.sms.keeper import Keeper
from penstock.contrib.sms.sender import Sender, simulated_provider
from penstock.contrib.sms.settings import SmsSettings
from penstock.contrib.sms.stats import SmsFigures, SmsStats
from penstock.model.times import format_duration
from penstock.sim.errors import Unreachable
from penstock.telemetry.logs import LogFormat, LogHandler, private, setup_logging
from penstock.time.clock import SystemClock

log = logging.getLogger("penstock.sms")

LOGS = Path("sender_logs")
SENT = "Sent messages/s: %d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """The settings of each sender."""

    max_attempts: int
    retry_ms: int
    at_once: int
    idle: float | None
    """Seconds without a message after which it ends."""

    def as_words(self) -> list[str]:
        """The command-line options for these settings."""
        words = ["--max-attempts", str(self.max_attempts), "--at-once", str(self.at_once)]
        words += ["--retry-after", format_duration(self.retry_ms)]
        return words + ([] if self.idle is None else ["--idle-exit", str(self.idle)])


@dataclass(frozen=True, slots=True, kw_only=True)
class Logs:
    """The destination and format of a sender's log."""

    level: str = "info"
    format: LogFormat = "auto"
    file: Path | None = None
    console: bool = True

    def open(self) -> LogHandler:
        return setup_logging(self.level, self.format, self.file, console=self.console)


async def run_one(
    settings: SmsSettings, manner: Manner, logs: Logs, stopping: asyncio.Event
) -> SmsFigures | None:
    """Send until `stopping`, or until no message came for `idle` seconds."""
    handler = logs.open()
    stats = SmsStats.at(settings.redis, settings.queue)
    sender = Sender(
        settings,
        stats,
        simulated_provider(settings, random.Random()),
        max_attempts=manner.max_attempts,
        retry_ms=manner.retry_ms,
        at_once=manner.at_once,
    )

    async def sent() -> int:
        return sender.sent

    beside = [
        asyncio.ensure_future(_stop_when_idle(sender, manner.idle, stopping)),
        asyncio.ensure_future(_log_rate(sent)),
    ]
    try:
        # Without a console, the parent process reads this line.
        await sender.run(stopping, (lambda: None) if logs.console else _say_ready)
        return await _last(stats)
    finally:
        for task in beside:
            task.cancel()
        await stats.close()
        handler.close()


async def run_several(
    number: int, settings: SmsSettings, manner: Manner, logs: Logs, stopping: asyncio.Event
) -> tuple[list[str], SmsFigures | None]:
    """Run several senders, stopped with this process; the answer names those that failed."""
    handler = logs.open()
    LOGS.mkdir(exist_ok=True)  # noqa: ASYNC240 - once, before anything runs
    log.info("%d senders start; their logs are in %s/", number, LOGS)
    stats = SmsStats.at(settings.redis, settings.queue)

    async def sent() -> int:
        return (await stats.read()).sent

    ready = _Ready(number, settings.queue)
    keeper = Keeper(
        partial(_start, manner=manner, ready=ready),
        SystemClock(),
        random.Random(),
        may_end=manner.idle is not None,
    )
    rate = asyncio.ensure_future(_log_rate(sent))
    names = [f"sender_instance_{index}" for index in range(1, number + 1)]
    try:
        failed = await keeper.run(names, stopping)
        return failed, await _last(stats)
    finally:
        rate.cancel()
        ready.cancel()
        await stats.close()
        handler.close()


class _Ready:
    """Logs one line when every sender consumes."""

    def __init__(self, number: int, queue: str) -> None:
        self._missing = number
        self._queue = queue
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def watch(self, name: str, stdout: asyncio.StreamReader) -> None:
        if name in self._tasks and self._tasks[name].done():
            return  # restarted: it was ready before
        if name in self._tasks:
            self._tasks[name].cancel()
        self._tasks[name] = asyncio.ensure_future(self._wait(stdout))

    async def _wait(self, stdout: asyncio.StreamReader) -> None:
        if await stdout.readline():
            self._missing -= 1
            if not self._missing:
                log.info("%d senders wait for messages in %s", len(self._tasks), self._queue)
        else:
            await asyncio.Event().wait()  # it ended; the next process's task replaces this one

    def cancel(self) -> None:
        for task in self._tasks.values():
            task.cancel()


def _say_ready() -> None:
    print("ready", flush=True)


async def _start(name: str, manner: Manner, ready: _Ready) -> asyncio.subprocess.Process:
    """Start a sender. It rotates its own log; an error that ends it is written there as well."""
    path = LOGS / f"{name}.log"
    with open(path, "ab", opener=private) as file:  # noqa: ASYNC230 - a log's file
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock", "sim", "sms-sender", *manner.as_words()),
            *("--log-file", str(path), "--no-console"),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=file,
        )
    if process.stdout is not None:
        ready.watch(name, process.stdout)
    return process


async def _log_rate(total: Callable[[], Awaitable[int]]) -> None:
    """Log a line for every second with sent messages, until cancelled."""
    before: int | None = None
    while True:
        try:
            now = await total()
        except Unreachable:
            now = None  # the senders log it
        if now is not None and before is not None and now > before:
            log.info(SENT, now - before)
        before = before if now is None else now
        await asyncio.sleep(1)


async def _last(stats: SmsStats) -> SmsFigures | None:
    """The figures of the queue; None if Redis is unavailable."""
    try:
        return await stats.read()
    except Unreachable as exc:
        log.warning("%s", exc.message)
        return None


async def _stop_when_idle(sender: Sender, idle: float | None, stopping: asyncio.Event) -> None:
    if idle is None:
        return
    while (left := idle - sender.idle_seconds) > 0:  # noqa: ASYNC110 - time is what is awaited
        await asyncio.sleep(max(0.05, left))
    stopping.set()
