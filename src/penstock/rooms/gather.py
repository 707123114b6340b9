"""GATHER: what many visitors ask of one room at the same moment becomes one call of the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

Asked = TypeVar("Asked")
Answer = TypeVar("Answer")

MAX_TOGETHER = 200
"""Visitors of one call: a longer one would hold up the others."""


class Gather(Generic[Asked, Answer]):
    """One call a room at a time; whoever asks meanwhile is part of the next."""

    def __init__(self, work: Callable[[str, Sequence[Asked]], Awaitable[Sequence[Answer]]]) -> None:
        self._work = work
        self._waiting: dict[str, list[tuple[Asked, Callable[[Answer | Exception], None]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, room: str, asked: Asked) -> Answer:
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def done(outcome: Answer | Exception) -> None:
            if answer.done():
                return  # the caller has gone
            if isinstance(outcome, Exception):
                answer.set_exception(outcome)
            else:
                answer.set_result(outcome)

        self.submit(room, asked, done)
        return await answer

    def submit(self, room: str, asked: Asked, done: Callable[[Answer | Exception], None]) -> None:
        """Call back with the answer, or with what went wrong: no future for each who asks."""
        waiting = self._waiting.get(room)
        if waiting is not None:
            waiting.append((asked, done))
            return
        self._waiting[room] = [(asked, done)]
        task = asyncio.get_running_loop().create_task(self._serve(room))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, room: str) -> None:
        await asyncio.sleep(0)  # let everybody who is ready now come along
        while batch := self._waiting[room][:MAX_TOGETHER]:
            self._waiting[room] = self._waiting[room][MAX_TOGETHER:]
            try:
                answers = await self._work(room, [asked for asked, _ in batch])
            except Exception as exc:  # noqa: BLE001 - it is handed to everybody who asked
                for _, done in batch:
                    done(exc)
                continue
            for (_, done), answer in zip(batch, answers, strict=True):
                done(answer)
        del self._waiting[room]
