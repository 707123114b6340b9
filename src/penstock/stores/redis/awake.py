"""Staying awake for a moment while one answer is waited for.

Whoever puts one message after another waits for every answer, and an answer from near by comes
within some tens of microseconds. An event loop that goes to sleep meanwhile gives its core away,
and waking a core that has gone idle takes as long again, on a virtual machine longer than all the
rest of the call. So for a moment the loop looks again and again instead: every look is a turn of
the loop like any other, nothing that is ready has to wait for it.

Only while it pays: for calls that follow one another closely and have nobody beside them, where
there is a core to spare for the server, and where answers do come within the moment. What comes
now and then, and what takes long, is waited for asleep, so that an idle process stays idle.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from penstock.model.machine import cores

MOMENT = 300e-6
"""Seconds to stay awake for one answer at most."""
CLOSE = 1e-3
"""Seconds between two calls that follow one another closely at most …"""
ROW = 3
"""… of which there must have been so many in a row: most calls come by ones and twos."""
PATIENCE = 3
"""Answers in a row that may come too late …"""
REST = 200
"""… before so many calls are waited for asleep."""


class Awake:
    """Decides of every call whether to stay awake for its answer, and does."""

    def __init__(
        self, timer: Callable[[], float] = time.monotonic, *, spare: bool | None = None
    ) -> None:
        """`spare`: whether there is a core besides the one this runs on; None: look."""
        self._timer = timer
        self._spare = cores() > 1 if spare is None else spare
        self._asked = float("-inf")
        self._row = 0
        self._until = 0.0
        self._answer: asyncio.Future[Any] | None = None
        """What it stays awake for."""
        self._looking = False
        """A look is due with the next turn of the loop."""
        self._late = 0
        self._rest = 0

    def wait(self, answer: asyncio.Future[Any]) -> None:
        """A call was made that has nobody beside it: stay awake for its answer if that pays."""
        now = self._timer()
        self._row = self._row + 1 if now - self._asked < CLOSE else 0
        self._asked = now
        if self._row < ROW or not self._spare:
            return
        if self._rest:
            self._rest -= 1
            return
        self._answer, self._until = answer, now + MOMENT
        if not self._looking:
            self._looking = True
            answer.get_loop().call_soon(self._look)

    def stop(self) -> None:
        """Somebody else has asked besides: what comes of many is not worth a moment of each."""
        self._answer = None

    def _look(self) -> None:
        self._looking = False
        answer, self._answer = self._answer, None
        if answer is None:
            return
        if answer.done():
            self._late = 0
        elif self._timer() < self._until:
            self._answer, self._looking = answer, True
            answer.get_loop().call_soon(self._look)
        else:
            self._late += 1
            if self._late == PATIENCE:
                self._late, self._rest = 0, REST
