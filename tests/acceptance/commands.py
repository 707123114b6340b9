"""`penstock …` as people run it: processes in a folder with its own settings and .env."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
PATIENCE = 300.0
"""Seconds until something that does not come counts as a failure; nothing waits this long."""
OWN = ("PENSTOCK_", "RABBITMQ_", "REDIS_", "QUEUE_", "MONITOR_", "MEAN_", "FAILURE_", "LOG_")
NO_GRPC = {"PENSTOCK_API__GRPC": "off"}
"""Not on its standard port, unless a test says where."""

_numbers = itertools.count(1)


class Command:
    """A command that runs, with what it has written so far."""

    def __init__(self, process: asyncio.subprocess.Process, out: Path, err: Path) -> None:
        self.process = process
        self._out = out
        self._err = err

    @property
    def stdout(self) -> str:
        return self._out.read_text()

    @property
    def stderr(self) -> str:
        return self._err.read_text()

    async def stop(self, how: signal.Signals = signal.SIGTERM) -> int:
        """End it and say how it ended."""
        if self.process.returncode is None:
            self.process.send_signal(how)
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            return await self.process.wait()

    async def until(self, true: Callable[[], bool]) -> None:
        """Wait for what it writes or does; fails with its output when it ends or takes too long."""
        deadline = time.monotonic() + PATIENCE
        while not true():
            ended = self.process.returncode
            if ended is not None or time.monotonic() > deadline:
                said = f"{self.stdout[-2000:]}\n{self.stderr[-2000:]}"
                raise AssertionError(f"it does not come; returncode {ended}\n{said}")
            await asyncio.sleep(0.05)


async def start(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> Command:
    """Start `penstock words…` in the folder; the caller ends it."""
    name = f"{'-'.join(words[:2])}-{next(_numbers)}"
    out, err = folder / f"{name}.out", folder / f"{name}.err"
    outer = {name: value for name, value in os.environ.items() if not name.startswith(OWN)}
    with out.open("wb") as to_out, err.open("wb") as to_err:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "penstock", *words),
            cwd=folder,
            env={**outer, **NO_GRPC, **(env or {})},
            stdout=to_out,
            stderr=to_err,
        )
    return Command(process, out, err)


@asynccontextmanager
async def running(
    folder: Path, *words: str, env: Mapping[str, str] | None = None
) -> AsyncIterator[Command]:
    """A command that runs until the end of the block."""
    command = await start(folder, *words, env=env)
    try:
        yield command
    finally:
        await command.stop(signal.SIGKILL)


async def run(folder: Path, *words: str, env: Mapping[str, str] | None = None) -> str:
    """A command that ends by itself, and well; what it printed."""
    async with running(folder, *words, env=env) as command:
        code = await command.ended()
        assert code == 0, f"{' '.join(words)} → {code}:\n{command.stdout}\n{command.stderr}"
        return command.stdout


def adapted(text: str, **changes: str) -> str:
    """An example's text with some of it replaced; what is to be replaced must be there."""
    for old, new in changes.items():
        assert old in text, f"the example has no {old!r}"
        text = text.replace(old, new)
    return text
