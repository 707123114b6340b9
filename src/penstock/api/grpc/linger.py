"""How long single calls wait for each other: grpc.aio hands them over one by one, further apart
than the turns of the event loop that the intake waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class CallTime:
    """Wait about as long as a call takes, where that brings others: time in proportion to what it
    saves. For items that come one by one, further apart than turns of the loop.

    A group as large as those before it goes at once: then probably everybody is there.
    """

    SHARE = 4.0
    """How long a group gathers, in calls."""
    LONGEST = 0.01
    """Seconds the first of a group waits at most."""
    SHORTEST = 0.0003
    """Calls that take less gain nothing by waiting."""
    HOPE = 8
    """Full groups in a row until it is tried whether more would come."""
    ALONE = 8
    """After so many waits in vain in a row a caller counts as alone …"""
    SELDOM = 16
    """… and only every so often is it tried whether it still is."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.full = most
        self._waited = False
        self._cost = 0.0
        """Seconds a call takes lately."""
        self._hope = self.HOPE
        self._in_vain = 0
        self._groups_alone = 0

    def wait(self, size: int, over: Callable[[], None]) -> asyncio.Handle | None:
        if self._waited:
            self._waited = False
            self._learn(size)
            return None
        seconds = self._seconds()
        if seconds is None:
            return None
        self._waited = True
        return asyncio.get_running_loop().call_later(seconds, over)

    def began(self) -> float:
        return asyncio.get_running_loop().time()

    def ended(self, began: float) -> None:
        self._cost += (asyncio.get_running_loop().time() - began - self._cost) / 8

    def _seconds(self) -> float | None:
        """None where nobody else is, or where it would not pay."""
        wait = min(self.LONGEST, self._cost * self.SHARE)
        if wait < self.SHORTEST:
            return None
        if self._in_vain >= self.ALONE:
            self._groups_alone += 1
            if self._groups_alone % self.SELDOM:
                return None
        return wait

    def _learn(self, size: int) -> None:
        """How many come: the group was full, or its time was over."""
        if size >= self.full:
            self._hope -= 1
            full = self.full if self._hope else self.full * 2
            self._hope = self._hope or self.HOPE
        else:
            self._hope = self.HOPE
            self._in_vain = 0 if size > 1 else self._in_vain + 1
            full = max(size, self.full * 3 // 4)
        self.full = min(self._most, max(2, full))
