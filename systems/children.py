"""Processes of a running system: their lines, rates, report and cost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import Any

import psutil

from systems.spec import LOG, Command

KEPT = 20
"""Last lines of a process that are shown when it dies."""
STALE = 2.5
"""Seconds after which a rate that was not logged again counts as 0: idle processes log none."""
_RATE = re.compile(r"\b([A-Z][\w ]*/s|[A-Z][\w ]* per second): ([\d,]+)")
_OWN = ("PENSTOCK_", "RABBITMQ_", "REDIS_", "QUEUE_", "MONITOR_", "MEAN_", "FAILURE_")
"""Beginnings of variables that would configure a process of a system from outside."""


class Usage:
    """CPU and memory of a process and its children, also of children that have ended."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._seconds: dict[int, float] = {}
        self._from = 0.0
        self.memory = 0
        """The most bytes it was seen to have resident."""

    def look(self) -> None:
        memory = 0
        try:
            process = psutil.Process(self._pid)
            for one in (process, *process.children(recursive=True)):
                times = one.cpu_times()
                self._seconds[one.pid] = times.user + times.system
                memory += one.memory_info().rss
        except psutil.Error:
            return  # it has ended: what was seen last counts
        self.memory = max(self.memory, memory)

    def begin(self) -> None:
        """Count from here."""
        self.look()
        self._from = sum(self._seconds.values())

    @property
    def seconds(self) -> float:
        """Of CPU, since begin()."""
        return sum(self._seconds.values()) - self._from


class Child:
    """One process of the system."""

    def __init__(self, command: Command, show: Callable[[str, str], None]) -> None:
        self.command = command
        self.name = command.name
        self.last: deque[str] = deque(maxlen=KEPT)
        """Its last lines."""
        self._show = show
        self._rates: dict[str, tuple[int, float]] = {}
        self._held_back: str | None = None
        """The latest line of standard output, which may be the report."""
        self._readers: list[asyncio.Task[None]] = []
        self._is_ready = asyncio.Event()
        self._process: asyncio.subprocess.Process | None = None
        self.usage: Usage | None = None
        self.stop_asked = False

    async def start(self) -> None:
        inherited = {key: v for key, v in os.environ.items() if not key.startswith(_OWN)}
        self._process = process = await asyncio.create_subprocess_exec(
            *self.command.argv,
            cwd=self.command.folder,
            env={**inherited, "PYTHONUNBUFFERED": "1", **self.command.env},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C in the terminal reaches the runner alone
        )
        assert process.stdout is not None
        assert process.stderr is not None
        self.usage = Usage(process.pid)
        hears = self._hear_report if self.command.spec.report else self._hear
        self._readers = [
            asyncio.ensure_future(_read(process.stdout, hears)),
            asyncio.ensure_future(_read(process.stderr, self._hear)),
        ]

    @property
    def returncode(self) -> int | None:
        return None if self._process is None else self._process.returncode

    @property
    def started(self) -> bool:
        return self._process is not None

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.returncode is None

    async def wait(self) -> int:
        """Its exit code, when it has ended and all its lines are shown."""
        assert self._process is not None
        code = await self._process.wait()
        await asyncio.gather(*self._readers)
        return code

    async def said_it_is_ready(self) -> None:
        await self._is_ready.wait()

    def ask_to_stop(self) -> None:
        """SIGINT for what stands in for the world, as a person would; SIGTERM for the system."""
        self.stop_asked = True
        self.signal(signal.SIGINT if self.command.spec.world else signal.SIGTERM)

    def signal(self, number: signal.Signals) -> None:
        if self.running:
            assert self._process is not None
            self._process.send_signal(number)

    def kill(self) -> None:
        """End it and its children at once."""
        if self._process is not None:
            try:
                os.killpg(self._process.pid, signal.SIGKILL)
            except ProcessLookupError:
                return

    def rates(self) -> dict[str, int]:
        now = time.monotonic()
        return {
            what: number if now - at < STALE else 0 for what, (number, at) in self._rates.items()
        }

    def report(self) -> dict[str, Any] | None:
        """What it said last on standard output; None where that is no JSON object."""
        try:
            said = json.loads(self._held_back or "")
        except ValueError:
            return None
        return said if isinstance(said, dict) else None

    def _hear(self, line: str) -> None:
        self.last.append(line)
        for what, number in _RATE.findall(line):
            self._rates[what] = int(number.replace(",", "")), time.monotonic()
        ready = self.command.ready
        if ready is not None and ready.startswith(LOG) and ready[len(LOG) :].strip() in line:
            self._is_ready.set()
        self._show(self.name, line)

    def _hear_report(self, line: str) -> None:
        """Hold back JSON: it is the report unless another line of JSON comes after it."""
        if not line.startswith("{"):
            self._hear(line)
            return
        if self._held_back is not None:
            self._hear(self._held_back)
        self._held_back = line


async def _read(stream: asyncio.StreamReader, hear: Callable[[str], None]) -> None:
    """Lines of any length; the last one may lack its end."""
    rest = b""
    while piece := await stream.read(65_536):
        *whole, rest = (rest + piece).split(b"\n")
        for line in whole:
            hear(line.decode(errors="replace").rstrip("\r"))
    if rest:
        hear(rest.decode(errors="replace"))
