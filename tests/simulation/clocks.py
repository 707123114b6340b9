"""The server's clock, and what each process takes it to be."""

from __future__ import annotations

from penstock.testing.clock import START
from penstock.time.clock import SystemClock
from tests.simulation.loop import VirtualLoop


class ServerClock:
    """The authority on time: it goes on with the loop, and may be set."""

    def __init__(self, loop: VirtualLoop, start: int = START) -> None:
        self._loop = loop
        self._start = start
        self.set_by = 0
        """Milliseconds by which somebody has set it in sum."""

    def elapsed(self) -> int:
        """Milliseconds since the beginning, whatever the clock was set to."""
        return int(self._loop.time() * 1000 + 1e-4)

    def now(self) -> int:
        return self._start + self.set_by + self.elapsed()


class ProcessClock(SystemClock):
    """The product's own clock, on top of another machine's time: wrong by `offset`."""

    def __init__(self, server: ServerClock, offset: int = 0) -> None:
        super().__init__()
        self._server = server
        self.offset = offset

    def now(self) -> int:
        return self._server.now() + int(self.offset)

    def exact(self) -> float:
        return float(self.now())
