"""Limits the bytes of bodies in memory while they arrive, over all connections."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from penstock.model.errors import Overloaded


class Receiving:
    """The bytes of bodies that have begun to arrive and are not read to their end."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.held = 0

    def hold(self, size: int) -> None:
        """Count so many more bytes; Overloaded when they exceed the limit."""
        if self.held + size > self.limit:
            raise Overloaded(f"{self.held:,} bytes of other requests are being received already")
        self.held += size

    def free(self, size: int) -> None:
        self.held -= size


class Holding:
    """The bytes of one body, counted until the block ends."""

    def __init__(self, receiving: Receiving) -> None:
        self._receiving = receiving
        self._size = 0

    def become(self, size: int) -> None:
        """Set the bytes of this body; Overloaded when they exceed the limit."""
        if size > self._size:
            self._receiving.hold(size - self._size)
        else:
            self._receiving.free(self._size - size)
        self._size = size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._receiving.free(self._size)
