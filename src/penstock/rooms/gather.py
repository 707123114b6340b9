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
        self._waiting: dict[str, list[tuple[Asked, asyncio.Future[Answer]]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def ask(self, room: str, asked: Asked) -> Answer:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()
        waiting = self._waiting.get(room)
        if waiting is not None:
            waiting.append((asked, answer))
        else:
            self._waiting[room] = [(asked, answer)]
            task = loop.create_task(self._serve(room))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await answer

    async def _serve(self, room: str) -> None:
        await asyncio.sleep(0)  # let everybody who is ready now come along
        while batch := self._waiting[room][:MAX_TOGETHER]:
            self._waiting[room] = self._waiting[room][MAX_TOGETHER:]
            try:
                answers = await self._work(room, [asked for asked, _ in batch])
            except Exception as exc:  # noqa: BLE001 - it is handed to everybody who asked
                for _, answer in batch:
                    if not answer.done():
                        answer.set_exception(exc)
                continue
            for (_, waiting), outcome in zip(batch, answers, strict=True):
                if not waiting.done():
                    waiting.set_result(outcome)
        del self._waiting[room]
