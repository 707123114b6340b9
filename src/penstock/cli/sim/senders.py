"""Senders of the SMS system: one in this process, or several in processes of their own."""

from __future__ import annotations

import asyncio
import logging
import random
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from penstock.cli.sim.keeper import Keeper
from penstock.model.clock import SystemClock
from penstock.model.times import format_duration
from penstock.sim.sms.sender import Sender, simulated_provider
from penstock.sim.sms.settings import SmsSettings
from penstock.sim.sms.stats import SmsStats
from penstock.telemetry.logs import setup_logging

log = logging.getLogger("penstock.sms")

LOGS = Path("sender_logs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manner:
    """How each of them sends."""

    max_attempts: int
    retry_ms: int
    at_once: int
    idle: float | None
    """Seconds without a message after which it ends."""

    def as_words(self) -> list[str]:
        """The options of the command line that mean this."""
        words = ["--max-attempts", str(self.max_attempts), "--at-once", str(self.at_once)]
        words += ["--retry-after", format_duration(self.retry_ms)]
        return words + ([] if self.idle is None else ["--idle-exit", str(self.idle)])


async def run_one(settings: SmsSettings, manner: Manner, stopping: asyncio.Event) -> None:
    """Send until `stopping`, or until nothing came for long enough."""
    handler = setup_logging()
    stats = SmsStats.at(settings.redis, settings.queue)
    sender = Sender(
        settings,
        stats,
        simulated_provider(settings, random.Random()),
        max_attempts=manner.max_attempts,
        retry_ms=manner.retry_ms,
        at_once=manner.at_once,
    )
    watch = asyncio.ensure_future(_stop_when_idle(sender, manner.idle, stopping))
    try:
        await sender.run(stopping)
    finally:
        watch.cancel()
        await stats.close()
        handler.close()


async def run_several(number: int, manner: Manner, stopping: asyncio.Event) -> list[str]:
    """Keep so many running, and stop them with this process; the names of those that failed."""
    handler = setup_logging()
    LOGS.mkdir(exist_ok=True)  # noqa: ASYNC240 - once, before anything runs
    log.info("%d senders run; their logs are in %s/", number, LOGS)
    keeper = Keeper(
        partial(_start, manner=manner),
        SystemClock(),
        random.Random(),
        may_end=manner.idle is not None,
    )
    try:
        return await keeper.run([f"sender-{index}" for index in range(1, number + 1)], stopping)
    finally:
        handler.close()


async def _start(name: str, manner: Manner) -> asyncio.subprocess.Process:
    with (LOGS / f"{name}.log").open("ab") as file:
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock", "sim", "sms-sender", *manner.as_words()),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=file,
            stderr=file,
        )


async def _stop_when_idle(sender: Sender, idle: float | None, stopping: asyncio.Event) -> None:
    if idle is None:
        return
    while (left := idle - sender.idle_seconds) > 0:  # noqa: ASYNC110 - time is what is awaited
        await asyncio.sleep(max(0.05, left))
    stopping.set()
