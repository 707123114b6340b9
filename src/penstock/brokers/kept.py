"""One connection that many share: made when it is first wanted, replaced when it is broken."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from typing import Generic, TypeVar

Line = TypeVar("Line")


class Kept(ABC, Generic[Line]):
    """A driver says how its line is made, whether it is one still, and how to end it."""

    def __init__(self) -> None:
        self._line: Line | None = None
        self._connecting = asyncio.Lock()
        self._leaving: set[asyncio.Task[None]] = set()

    @abstractmethod
    async def connect(self) -> Line:
        """A new one. What it leaves half open when it fails it ends by `later`."""

    @abstractmethod
    def is_alive(self, line: Line) -> bool: ...

    @abstractmethod
    async def hang_up(self, line: Line) -> None:
        """End it, never waiting long for a side that may be gone."""

    async def line(self) -> Line:
        """The one there is, or a new one; whoever asks meanwhile gets the same."""
        async with self._connecting:
            if self._line is not None and not self.is_alive(self._line):
                self.forget(self._line)
            if self._line is None:
                self._line = await self.connect()
            return self._line

    def forget(self, line: Line | None) -> None:
        """It is of no use any more: whatever is still waited for on it comes to nothing."""
        if line is not None:
            if self._line is line:
                self._line = None
            self.later(self.hang_up(line))

    def later(self, goodbye: Coroutine[None, None, None]) -> None:
        """Nobody waits for it but `close`."""
        task = asyncio.get_running_loop().create_task(goodbye)
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def close(self) -> None:
        self.forget(self._line)
        if self._leaving:
            await asyncio.wait(self._leaving)
