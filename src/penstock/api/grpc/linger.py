"""How long single calls wait for each other: grpc.aio delivers them one by one, further apart than
the turns of the event loop that the intake waits for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class CallTime:
    """Waits about as long as a call takes, where that gathers more items: the wait is in proportion
    to the saving. For items that arrive one by one, further apart than turns of the loop.

    A group as large as the previous ones goes at once: then probably every caller is in it.
    """

    SHARE = 4.0
    """The time a group gathers, in multiples of a call's duration."""
    LONGEST = 0.01
    """Seconds the first of a group waits at most."""
    SHORTEST = 0.0003
    """Calls that take less gain nothing by waiting."""
    HOPE = 8
    """Consecutive full groups until a longer wait is tried."""
    ALONE = 8
    """After so many consecutive waits without a second item a caller counts as alone …"""
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
        """The time to wait; None where no other caller is active, or where waiting would not
        pay.
        """
        wait = min(self.LONGEST, self._cost * self.SHARE)
        if wait < self.SHORTEST:
            return None
        if self._in_vain >= self.ALONE:
            self._groups_alone += 1
            if self._groups_alone % self.SELDOM:
                return None
        return wait

    def _learn(self, size: int) -> None:
        """Learn from a group's size, when it was full or its time was over."""
        if size >= self.full:
            self._hope -= 1
            full = self.full if self._hope else self.full * 2
            self._hope = self._hope or self.HOPE
        else:
            self._hope = self.HOPE
            self._in_vain = 0 if size > 1 else self._in_vain + 1
            full = max(size, self.full * 3 // 4)
        self.full = min(self._most, max(2, full))
