"""Penstock inside a program: schedule, hold and release without a server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeAlias, Unpack

import msgspec

from penstock.model.change import check_change
from penstock.model.draft import Draft
from penstock.model.errors import PenstockError
from penstock.model.message import Event, Message
from penstock.model.outcome import Receipt
from penstock.model.query import decode_cursor, encode_cursor
from penstock.model.state import State
from penstock.ports.sink import Sink
from penstock.sdk.asked import (
    Delay,
    LabelsLike,
    Moment,
    change_of,
    draft,
    filter_of,
)
from penstock.sdk.fields import MessageFields
from penstock.settings import RouteSettings, given
from penstock.wiring import Parts, handler_sink, open_parts, open_worker

Handler: TypeAlias = Callable[..., object]
RouteLike: TypeAlias = str | Handler | RouteSettings | Mapping[str, Any]
"""A sink's URL, a function to call, or everything a [routes.*] entry can say."""


@asynccontextmanager
async def open_engine(
    url: str = "sqlite:///penstock.db",
    *,
    routes: Mapping[str, RouteLike] | None = None,
    worker: bool = False,
    **settings: Any,
) -> AsyncIterator[Engine]:
    """Open a store and schedule into it; with `worker=True` also release, inside this program.

    `routes` says where messages go. Without it any route name is accepted, for another process
    to serve. `settings` are the sections of penstock.toml: `worker_settings={"lease": "10s"}`,
    `limits={"max_payload": 1024}`.

        async with penstock.open("sqlite:///jobs.db", routes={"default": handle}, worker=True) as p:
            await p.schedule({"hello": "later"}, delay="15m")
    """
    named = routes or {}
    sections = {"worker" if name == "worker_settings" else name: v for name, v in settings.items()}
    configured = given(
        store=url,
        routes={name: _route_settings(value) for name, value in named.items()},
        **sections,
    )
    handlers: dict[str, Sink] = {
        name: handler_sink(name, value) for name, value in named.items() if callable(value)
    }
    async with open_parts(configured, any_route=routes is None) as parts:
        engine = Engine(parts, handlers)
        if not worker:
            yield engine
            return
        async with open_worker(parts, handlers) as running, asyncio.TaskGroup() as group:
            task = group.create_task(running.run())
            try:
                yield engine
            finally:
                running.stop()
                await asyncio.shield(task)


class Engine:
    """The verbs of Penstock on a store opened here."""

    def __init__(self, parts: Parts, handlers: Mapping[str, Sink]) -> None:
        self._parts = parts
        self._handlers = handlers

    async def schedule(self, payload: object = None, **fields: Unpack[MessageFields]) -> Receipt:
        """Keep a message until its moment (`at` or `delay`; neither: now). Durable on return."""
        return await self._parts.intake.schedule_one(draft(payload, **fields))

    async def schedule_many(
        self, messages: Iterable[Mapping[str, Any] | Draft]
    ) -> list[Receipt | PenstockError]:
        """Keep many at once: one outcome each, in order; bad ones do not hold back the good."""
        drafts = [item if isinstance(item, Draft) else draft(**item) for item in messages]
        outcomes: list[Receipt | PenstockError] = []
        size = self._parts.settings.worker.batch_size
        for start in range(0, len(drafts), size):
            outcomes += await self._parts.intake.schedule(drafts[start : start + size])
        return outcomes

    async def get(self, message_id: str) -> Message:
        """The message as it is now; UnknownMessage if there is none."""
        return (await self._parts.control.get(message_id))[0]

    async def timeline(self, message_id: str) -> list[Event]:
        """What happened to it, oldest first."""
        return (await self._parts.control.get(message_id))[1]

    async def list(
        self,
        *,
        state: State | str | None = None,
        route: str | None = None,
        key: str | None = None,
        due_from: Moment | None = None,
        due_to: Moment | None = None,
        cursor: str | None = None,
        limit: int = 100,
    ) -> tuple[list[Message], str | None]:
        """A page in order of due, and the cursor of the next one (None: the last)."""
        where = filter_of(state=state, route=route, key=key, due_from=due_from, due_to=due_to)
        after = None if cursor is None else decode_cursor(cursor)
        page = await self._parts.control.search(where, after, limit)
        return page.items, None if page.next is None else encode_cursor(page.next)

    async def cancel(self, message_id: str, *, version: int | None = None) -> Message:
        """Cancelled, now or before; else AlreadyReleased, UnknownMessage or VersionConflict."""
        return await self._parts.control.cancel(message_id, version)

    async def reschedule(
        self,
        message_id: str,
        *,
        at: Moment | None = None,
        delay: Delay | None = None,
        payload: object = msgspec.UNSET,
        headers: Mapping[str, str] | None = None,
        expires: Moment | None = None,
        priority: int | None = None,
        labels: LabelsLike | None = None,
        version: int | None = None,
    ) -> Message:
        """Change when it goes out, or what it says, while it is still waiting."""
        change = change_of(
            at=at,
            delay=delay,
            payload=payload,
            headers=headers,
            expires=expires,
            priority=priority,
            labels=labels,
        )
        now = self._parts.store.clock.now()
        limit = self._parts.settings.limits.max_payload
        return await self._parts.control.reschedule(
            check_change(message_id, change, now, version=version, max_payload=limit)
        )

    async def release(self, message_id: str, *, version: int | None = None) -> Message:
        """Make it due now."""
        return await self._parts.control.release(message_id, version)

    async def pause(self, route: str) -> None:
        """Hold everything of a route, in every process."""
        await self._parts.control.pause(route, True)

    async def resume(self, route: str) -> None:
        await self._parts.control.pause(route, False)

    async def run(self) -> None:
        """Release messages here until cancelled; for programs that only work."""
        async with open_worker(self._parts, self._handlers) as worker:
            await worker.run()


def _route_settings(value: RouteLike) -> RouteSettings | Mapping[str, Any]:
    if isinstance(value, str):
        return RouteSettings(sink=value)
    if isinstance(value, RouteSettings | Mapping):
        return value
    return RouteSettings(sink="python:")  # the function itself is passed beside
