"""One shared connection: opened on first use, replaced after it broke."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Generic, TypeVar

Line = TypeVar("Line")


class Kept(ABC, Generic[Line]):
    """Opens, checks and closes a shared connection; a driver implements these steps."""

    def __init__(self) -> None:
        self._line: Line | None = None
        self._connecting = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def connect(self) -> Line:
        """Open a connection. On failure, close half-open parts by `later`."""

    @abstractmethod
    def is_alive(self, line: Line) -> bool: ...

    @abstractmethod
    async def hang_up(self, line: Line) -> None:
        """Close it without waiting long for a peer that may be gone."""

    async def line(self) -> Line:
        """The open connection, or a new one; concurrent callers get the same."""
        async with self._connecting:
            if self._line is not None and not self.is_alive(self._line):
                self.forget(self._line)
            if self._line is None:
                self._line = await self.connect()
            return self._line

    def forget(self, line: Line | None) -> None:
        """Discard a broken connection: everything awaited on it fails."""
        if line is not None:
            if self._line is line:
                self._line = None
            self.later(self.hang_up(line))

    def later(self, goodbye: Coroutine[None, None, None]) -> None:
        """Run a coroutine in the background; only `close` waits for it."""
        task = asyncio.get_running_loop().create_task(goodbye)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        self.forget(self._line)
        if self._leaving:
            await asyncio.wait(self._leaving)
