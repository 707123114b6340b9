"""Messages that tasks schedule at the same time share one batch request; for event loops.

A single message is sent alone and at once; `Load` decides how long others wait.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from penstock.model.draft import Draft
from penstock.model.outcome import Receipt
from penstock.sdk.async_rooms import AsyncSend
from penstock.sdk.calls import Outcome, in_one_line, is_busy, schedule, schedule_lines
from penstock.sdk.transport import GATHER_SECONDS, Load

TURNS = 8
"""Turns of the event loop that a call waits at most while each of them brings more messages."""


class _Place(NamedTuple):
    """A message that waits for its request, and the future of its caller."""

    draft: Draft
    line: bytes
    answer: asyncio.Future[Outcome | Exception]


class AsyncGather:
    """Sends the messages that the tasks of one event loop schedule."""

    def __init__(self, send: AsyncSend) -> None:
        self._send = send
        self._load = Load()
        self._waiting: list[_Place] = []
        self._gathering = False
        """A call is about to begin."""
        self._patience: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def schedule(self, draft: Draft) -> Receipt:
        """Schedule a message that has its id; raises the error of this one."""
        if self._load.is_alone and not self._waiting:
            self._load.begin(1)
            try:
                return await self._send(schedule(draft))
            finally:
                self._end(1)
        answer: asyncio.Future[Outcome | Exception] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Place(draft, in_one_line(draft), answer))
        self._stir()
        outcome = await answer
        if is_busy(outcome):  # it alone was refused for now: be patient with it alone
            return await self._send(schedule(draft))
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def _stir(self) -> None:
        """Gather for a call if one may begin; else wait until one may."""
        if self._gathering or not self._waiting:
            return
        loop = asyncio.get_running_loop()
        if self._load.may_begin(len(self._waiting)):
            self._gathering = True
            loop.call_soon(self._gather, len(self._waiting), TURNS)
        elif self._patience is None:
            self._patience = loop.call_later(GATHER_SECONDS, self._begin)

    def _gather(self, seen: int, turns: int) -> None:
        """Callers that have just been answered ask again within a few turns."""
        if turns and len(self._waiting) > seen:
            loop = asyncio.get_running_loop()
            loop.call_soon(self._gather, len(self._waiting), turns - 1)
        else:
            self._begin()

    def _begin(self) -> None:
        self._gathering = False
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None
        waiting = [place for place in self._waiting if not place.answer.done()]
        while waiting and self._load.has_room:
            group, waiting = self._load.take(waiting)
            self._load.begin(len(group))
            task = asyncio.get_running_loop().create_task(self._carry(group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        self._waiting = waiting

    async def _carry(self, group: Sequence[_Place]) -> None:
        outcomes: Sequence[Outcome | Exception]
        try:
            outcomes = await self._ask(group)
        except Exception as exc:  # noqa: BLE001 - every caller raises it
            outcomes = [exc] * len(group)
        except BaseException:
            for place in group:
                place.answer.cancel()
            raise
        finally:
            self._end(len(group))
        for place, outcome in zip(group, outcomes, strict=True):
            if not place.answer.done():  # else its caller has left
                place.answer.set_result(outcome)

    async def _ask(self, group: Sequence[_Place]) -> Sequence[Outcome]:
        if len(group) == 1:
            return [await self._send(schedule(group[0].draft))]
        return await self._send(schedule_lines([place.line for place in group]))

    def _end(self, size: int) -> None:
        self._load.end(size)
        self._stir()
