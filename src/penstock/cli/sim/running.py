"""What the simulations share: until when they run, and how they write many lines."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Awaitable, Callable

from penstock.cli import show
from penstock.cli.loop import loop_factory

SIGNALS = (signal.SIGINT, signal.SIGTERM)
FLUSH_SECONDS = 0.05


def run_until_stopped(main: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    """Run it on the fastest loop there is; SIGINT and SIGTERM set the event it was given."""

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
