"""Single calls that were made at once share a store call, though gRPC hands them over one by one.

The intake groups what comes within a few turns of the event loop. grpc.aio takes longer than that
between one call and the next, so without this every call would be a transaction of its own.
"""

from __future__ import annotations

import asyncio

from penstock.flow.intake import GROUP, Done, Outcome, Way
from penstock.model.draft import Draft

SHARE = 4.0
"""How long a group gathers, in store calls: it takes time in proportion to what it saves."""
LONGEST = 0.01
"""Seconds the first of a group waits at most."""
SHORTEST = 0.0003
"""A store that answers faster than this gains nothing by waiting."""
HOPE = 8
"""Full groups in a row until it is looked whether more would come."""
ALONE = 8
"""After so many waits in vain in a row a caller counts as alone …"""
SELDOM = 16
"""… and only every so often is it looked whether it still is."""


class Crowd:
    """Lets calls wait for each other about as long as the store takes, if there are several.

    A group as large as those before it goes at once: then probably everybody is there.
    """

    def __init__(self, intake: Way) -> None:
        self._intake = intake
        self._group: list[tuple[Draft, Done]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._cost = 0.0
        """Seconds a store call takes lately."""
        self._full = GROUP
        """Calls after which nobody else is waited for."""
        self._hope = HOPE
        self._in_vain = 0
        self._alone = 0
        """Groups since somebody counts as alone."""
        self._timed: dict[Done, Done] = {}
        """Callbacks by which store calls under way are timed, by those they stand for."""

    def submit(self, draft: Draft, done: Done) -> None:
        self._group.append((draft, done))
        if self._timer is None:
            wait = self._wait()
            if wait == 0.0:
                self._flush()
            else:
                self._timer = asyncio.get_running_loop().call_later(wait, self._late)
        elif len(self._group) >= self._full:
            self._hope -= 1
            self._gathered(self._full if self._hope else self._full * 2)

    def withdraw(self, done: Done) -> None:
        self._group = [entry for entry in self._group if entry[1] is not done]
        self._intake.withdraw(self._timed.pop(done, done))

    def _wait(self) -> float:
        """Seconds for others to come; none where there are none, or where it would not pay."""
        wait = min(LONGEST, self._cost * SHARE)
        if wait < SHORTEST:
            return 0.0
        if self._in_vain >= ALONE:
            self._alone += 1
            if self._alone % SELDOM:
                return 0.0
        return wait

    def _late(self) -> None:
        self._hope = HOPE
        size = len(self._group)
        self._in_vain = 0 if size > 1 else self._in_vain + 1
        self._gathered(max(size, self._full * 3 // 4))

    def _gathered(self, full: int) -> None:
        self._full = min(GROUP, max(2, full))
        self._hope = self._hope or HOPE
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flush()

    def _flush(self) -> None:
        """To the intake in one turn of the loop, where they meet those of other APIs."""
        group, self._group = self._group, []
        if not group:
            return  # all of them were withdrawn
        for draft, done in group[:-1]:
            self._intake.submit(draft, done)
        draft, done = group[-1]
        self._intake.submit(draft, self._timing(done))

    def _timing(self, done: Done) -> Done:
        """The same, and the time until then is what a store call costs, smoothed."""
        loop = asyncio.get_running_loop()
        start = loop.time()

        def timed(outcome: Outcome) -> None:
            self._cost += (loop.time() - start - self._cost) / 8
            self._timed.pop(done, None)
            done(outcome)

        self._timed[done] = timed
        return timed
