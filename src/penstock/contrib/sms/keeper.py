"""Keeps processes running: one that ends is reported at once and restarted.

The wait before a restart grows while starts fail, so that a process that dies at once does not
spin. If none has ever run for long, the keeper gives up after a few starts: the command itself is
wrong, and its caller gets the error.
"""

from __future__ import annotations

import asyncio
import logging
import random
import signal
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from penstock.cli.endings import how_it_ended
from penstock.model.backoff import Backoff
from penstock.model.times import format_duration
from penstock.time.clock import Clock

log = logging.getLogger("penstock.sms")

PATIENCE_MS = 15_000
"""Time for processes to finish their work."""
LONG_MS = 30_000
"""Run time after which a start counts as successful."""
STARTS = 3
"""Starts of each process before it is given up, as long as none was successful."""
GRACE_MS = 200
"""An exit may be part of a common end (Ctrl-C reaches every process): check for that first."""
WAITS = Backoff(250, 30_000)


class Process(Protocol):
    """A process with asyncio's methods."""

    @property
    def returncode(self) -> int | None: ...

    async def wait(self) -> int: ...

    def send_signal(self, signal: int) -> None: ...

    def kill(self) -> None: ...


Start = Callable[[str], Awaitable[Process]]


class Keeper:
    """Runs one process per name until it is stopped."""

    def __init__(
        self, start: Start, clock: Clock, chance: random.Random, *, may_end: bool = False
    ) -> None:
        """`may_end`: a process that exits with success is done and is not restarted."""
        self._start = start
        self._clock = clock
        self._chance = chance
        self._may_end = may_end
        self._ran = False

    async def run(self, names: Sequence[str], stopping: asyncio.Event) -> list[str]:
        """Run until `stopping`, or until all are done; the answer names those that failed."""
        kept = await asyncio.gather(*(self._keep(name, stopping) for name in names))
        return [name for name, well in zip(names, kept, strict=True) if not well]

    async def _keep(self, name: str, stopping: asyncio.Event) -> bool:
        failures = 0
        while not stopping.is_set():
            began = self._clock.now()
            process = await self._start(name)
            try:
                await _first(process.wait(), stopping.wait())
                if stopping.is_set():
                    return await self._stopped(process)
            finally:
                if process.returncode is None:
                    process.kill()
            if process.returncode == 0 and self._may_end:
                return True
            await self._pause(GRACE_MS, stopping)
            if stopping.is_set():
                break
            lived_long = self._clock.now() - began - GRACE_MS >= LONG_MS
            self._ran = self._ran or lived_long
            failures = 1 if lived_long else failures + 1
            if failures >= STARTS and not self._ran:
                log.error(
                    "%s %s right after its start again; it is given up",
                    name,
                    how_it_ended(process.returncode or 0),
                )
                return False
            wait = WAITS.wait(failures, self._chance)
            log.warning(
                "%s %s; it is restarted in %s",
                name,
                how_it_ended(process.returncode or 0),
                format_duration(wait),
            )
            await self._pause(wait, stopping)
        return True

    async def _stopped(self, process: Process) -> bool:
        if process.returncode is None:
            process.send_signal(signal.SIGTERM)
            deadline = self._clock.now() + PATIENCE_MS
            await _first(process.wait(), self._clock.sleep_until(deadline))
        if process.returncode is None:
            process.kill()
        return await process.wait() in {0, -signal.SIGINT}

    async def _pause(self, millis: int, stopping: asyncio.Event) -> None:
        await _first(self._clock.sleep_until(self._clock.now() + millis), stopping.wait())


async def _first(*awaited: Awaitable[object]) -> None:
    """Return when one of them is done; the others are cancelled."""
    tasks = [asyncio.ensure_future(one) for one in awaited]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
