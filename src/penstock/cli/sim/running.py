"""Shared by the simulations: when they stop, and how they write many lines."""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from penstock.cli import show
from penstock.cli.loop import loop_factory
from penstock.flow.observe import Observer
from penstock.telemetry.logs import LogHandler, setup_logging
from penstock.telemetry.rates import Rates
from penstock.time.clock import SystemClock

SIGNALS = (signal.SIGINT, signal.SIGTERM)
FLUSH_SECONDS = 0.05


def run_until_stopped(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run it on the fastest loop available; SIGINT and SIGTERM set the event it receives."""

    async def run() -> None:
        stopping = asyncio.Event()
        for number in SIGNALS:
            asyncio.get_running_loop().add_signal_handler(number, stopping.set)
        await main(stopping)

    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(run())


class Lines:
    """Lines on stdout, written together a few times a second: thousands of them cost little."""

    def __init__(self) -> None:
        self._lines: list[str] = []

    def add(self, line: str) -> None:
        if not self._lines:
            asyncio.get_running_loop().call_later(FLUSH_SECONDS, self.flush)
        self._lines.append(show.printable(line))

    def flush(self) -> None:
        if self._lines:
            lines, self._lines = self._lines, []
            sys.stdout.write("\n".join(lines) + "\n")
            sys.stdout.flush()


class Stopwatch:
    """Measures the duration of a run, and stops it when it is enough."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._callbacks: list[Callable[[], None]] = []

    def elapsed(self) -> float:
        return time.monotonic() - self._start

    def on_stop(self, callback: Callable[[], None]) -> None:
        self._callbacks.append(callback)

    async def stop_after(self, seconds: float | None, stopping: asyncio.Event) -> None:
        """Set `stopping` after that many seconds; once it is set, notify every listener."""
        try:
            async with asyncio.timeout(seconds):
                await stopping.wait()
        except TimeoutError:
            stopping.set()
        for callback in self._callbacks:
            callback()


@asynccontextmanager
async def counting(
    observer: Observer,
    stage: str,
    what: str,
    stopping: asyncio.Event,
    seconds: float | None,
    open_log: Callable[[], LogHandler] = setup_logging,
    **more: str,
) -> AsyncIterator[Stopwatch]:
    """Log a rate every second; `seconds` from now at the latest `stopping` is set.

    `more`: further stages, by the words of their lines.
    """
    handler = open_log()
    watch = Stopwatch()
    lines = {stage: what, **more}
    rates = asyncio.gather(
        *(
            Rates(observer, SystemClock(), stage=each, what=words).run()
            for each, words in lines.items()
        )
    )
    end = asyncio.ensure_future(watch.stop_after(seconds, stopping))
    try:
        yield watch
    finally:
        rates.cancel()
        end.cancel()
        await asyncio.gather(rates, end, return_exceptions=True)
        handler.close()
