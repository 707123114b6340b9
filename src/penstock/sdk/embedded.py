"""Penstock inside a program: schedule, hold and release without a server."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeAlias, TypeVar, Unpack

from penstock.flow.policies import Policies
from penstock.flow.worker import Worker
from penstock.model.decision import CounterFigure, Decision
from penstock.model.errors import ConfigError, InvalidMessage, PenstockError, UnknownThing
from penstock.model.message import Event, Message
from penstock.model.outcome import Receipt
from penstock.model.policy import Policy, Suppression
from penstock.model.policy_view import question_of
from penstock.model.query import decode_cursor, encode_cursor
from penstock.model.rate import parse_rate
from penstock.model.route import is_route_name
from penstock.model.status_view import Readiness, RouteStatus, Stats
from penstock.model.view import BulkResult, Erased
from penstock.ports.sink import Sink
from penstock.ports.store import MayFail, Store
from penstock.rooms.parts import RoomParts
from penstock.sdk.asked import (
    Delay,
    MessageLike,
    Moment,
    change_of,
    check_names,
    filter_of,
    page_size,
)
from penstock.sdk.embedded_recurring import EmbeddedRecurring
from penstock.sdk.embedded_rooms import EmbeddedRooms
from penstock.sdk.fields import ChangeFields, FilterFields, OwnMessageFields, QuestionFields
from penstock.sdk.here import local_draft
from penstock.sdk.recurring import RuleFields
from penstock.sdk.rules import (
    PolicyLike,
    SuppressionLike,
    policy_value,
    question,
    suppression_value,
)
from penstock.sdk.stream import schedule_batches
from penstock.settings import RouteSettings, given
from penstock.telemetry.tracing import tracer
from penstock.time.clock import Clock
from penstock.wiring import Parts, handler_sink, open_parts, open_worker, put_configured

F = TypeVar("F", bound=Callable[..., object])
Handler: TypeAlias = Callable[..., object]
RouteLike: TypeAlias = str | Handler | RouteSettings | Mapping[str, Any]
"""A sink's URL, a function to call, or the fields of a [routes.*] entry."""


@asynccontextmanager
async def open_engine(
    url: str = "sqlite:///penstock.db",
    *,
    routes: Mapping[str, RouteLike] | None = None,
    worker: bool = False,
    clock: Clock | None = None,
    **settings: Any,
) -> AsyncIterator[Engine]:
    """Open a store and schedule into it; with `worker=True` also release, inside this program.

    `routes` says where messages go. Without it any route name is accepted, for another process
    to serve. `settings` are the sections of penstock.toml: `worker_settings={"lease": "10s"}`,
    `limits={"max_payload": 1024}`. A store in memory goes by `clock` if one is given:
    `penstock.testing.clock.ManualClock` stands still until a test moves it.

        async with penstock.open("sqlite:///jobs.db", routes={"default": handle}, worker=True) as p:
            await p.schedule({"hello": "later"}, delay="15m")
    """
    named = routes or {}
    sections = {"worker" if name == "worker_settings" else name: v for name, v in settings.items()}
    configured = given(
        store=url,
        routes={name: _route_settings(name, value) for name, value in named.items()},
        **sections,
    )
    handlers: dict[str, Sink] = {
        name: handler_sink(name, value) for name, value in named.items() if callable(value)
    }
    opening = open_parts(configured, any_route=routes is None, clock=clock)
    async with opening as parts, _closing(handlers):
        parts.observer.tracer = tracer()
        await put_configured(parts)
        async with engine_over(parts, handlers) as engine:
            if not worker:
                async with parts.fleet.joined():
                    yield engine
                return
            rooms = await engine.rooms.open()
            async with (
                open_worker(parts, handlers) as running,
                parts.fleet.joined(running),
                _beside(running, parts.store, rooms),
            ):
                engine.recurring.serve(running)
                yield engine
                await engine.recurring.ready()


@asynccontextmanager
async def engine_over(parts: Parts, handlers: dict[str, Sink]) -> AsyncIterator[Engine]:
    """The verbs on parts that are open; parts that the verbs open are closed at the end."""
    async with AsyncExitStack() as closing:
        yield Engine(parts, handlers, EmbeddedRooms(parts, closing))


@asynccontextmanager
async def _closing(sinks: Mapping[str, Sink]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for sink in sinks.values():
            await sink.close()


@asynccontextmanager
async def _beside(worker: Worker, store: Store, rooms: RoomParts | None) -> AsyncIterator[None]:
    """Run worker and rooms while the block runs. The block's errors are its own, not a group's.

    Should the worker itself fail, the block is cancelled and the worker's error raised.
    """
    owner = asyncio.current_task()
    failed: BaseException | None = None

    def ended(done: asyncio.Task[None]) -> None:
        nonlocal failed
        failed = None if done.cancelled() else done.exception()
        if failed is not None and owner is not None:
            owner.cancel()

    task = asyncio.get_running_loop().create_task(_work(worker, store, rooms))
    task.add_done_callback(ended)
    try:
        yield
    except asyncio.CancelledError:
        if failed is None or owner is None:
            raise
        owner.uncancel()
        raise failed from None
    finally:
        worker.stop()
        await asyncio.wait([task])


async def _work(worker: Worker, store: Store, rooms: RoomParts | None) -> None:
    """Run until the worker stops or the store fails for good; rooms are promoted as long."""
    working = asyncio.ensure_future(worker.run())
    beside = [] if rooms is None else [asyncio.ensure_future(rooms.run())]
    if store.may_fail is not None:
        beside.append(asyncio.ensure_future(_fail_with(store.may_fail)))
    try:
        await asyncio.wait([working, *beside], return_when=asyncio.FIRST_COMPLETED)
        for task in beside:
            if task.done():
                task.result()  # they only ever end by failing
        await working
    finally:
        worker.stop()
        for task in beside:
            task.cancel()
        await asyncio.wait([working, *beside])


async def _fail_with(store: MayFail) -> None:
    raise await store.failure()


class Engine:
    """The verbs of Penstock on a store opened here."""

    def __init__(self, parts: Parts, handlers: dict[str, Sink], rooms: EmbeddedRooms) -> None:
        self.rooms = rooms
        """Waiting rooms."""
        self.recurring = EmbeddedRecurring(parts, handlers)
        """Recurring rules."""
        self._parts = parts
        self._handlers = handlers
        self._status = parts.status()

    @property
    def clock(self) -> Clock:
        """The store's clock: due times are on it."""
        return self._parts.store.clock

    def every(
        self, period: Delay, *, name: str | None = None, **fields: Unpack[RuleFields]
    ) -> Callable[[F], F]:
        """A decorator: the function is called every so often, by a rule and a route of its name.

        @engine.every("15m", overlap="skip")
        async def clean_up() -> None: ...
        """
        return self.recurring.calls(name, {**fields, "every": period})

    def cron(
        self, expression: str, *, name: str | None = None, **fields: Unpack[RuleFields]
    ) -> Callable[[F], F]:
        """A decorator, as `every`: `@engine.cron("0 9 * * mon-fri", zone="Europe/Berlin")`."""
        return self.recurring.calls(name, {**fields, "cron": expression})

    async def schedule(self, payload: object = None, **fields: Unpack[OwnMessageFields]) -> Receipt:
        """Keep a message until its moment (`at` or `delay`; neither: now). Durable on return.

        With `connection`, one of your own to the PostgreSQL database that the store is in, the
        message is part of the transaction under way there: committed with it, or never there.
        """
        connection = fields.pop("connection", None)
        check_names("schedule", fields)
        draft = local_draft(payload, fields)
        if connection is None:
            return await self._parts.intake.schedule_one(draft)
        transactions = self._parts.store.transactions
        if transactions is None:
            raise ConfigError("connection: only a store in PostgreSQL can join your transaction")
        return await transactions.put_within(connection, self._parts.intake.checked(draft))

    async def schedule_many(self, messages: Iterable[MessageLike]) -> list[Receipt | PenstockError]:
        """Keep many at once: one outcome each, in order; bad ones do not hold back the good."""
        batches = schedule_batches(self._parts.intake, messages)
        return [outcome async for batch in batches for outcome in batch]

    async def schedule_stream(
        self, messages: Iterable[MessageLike]
    ) -> AsyncIterator[Receipt | PenstockError]:
        """Store any number in constant memory; an outcome follows once its message is durable."""
        async for batch in schedule_batches(self._parts.intake, messages):
            for outcome in batch:
                yield outcome

    async def get(self, message_id: str) -> Message:
        """The message as it is now; UnknownMessage if there is none."""
        return (await self._parts.control.get(message_id))[0]

    async def timeline(self, message_id: str) -> list[Event]:
        """The message's events, oldest first."""
        return (await self._parts.control.get(message_id))[1]

    async def list(
        self, *, cursor: str | None = None, limit: int = 100, **where: Unpack[FilterFields]
    ) -> tuple[builtins.list[Message], str | None]:
        """A page in order of due, and the cursor of the next one (None: the last).

        A page may have fewer than `limit` messages, or none, with more to come: only a cursor of
        None is the end.
        """
        after = None if cursor is None else decode_cursor(cursor)
        page = await self._parts.control.search(filter_of(**where), after, page_size(limit))
        return page.items, None if page.next is None else encode_cursor(page.next)

    async def cancel(self, message_id: str, *, version: int | None = None) -> Message:
        """Cancelled, now or before; else AlreadyReleased, UnknownMessage or VersionConflict."""
        return await self._parts.control.cancel(message_id, version)

    async def reschedule(
        self, message_id: str, *, version: int | None = None, **change: Unpack[ChangeFields]
    ) -> Message:
        """Change the due time or the content of a message that is still waiting."""
        amendment = self._parts.intake.change(message_id, change_of(**change), version)
        return await self._parts.control.reschedule(amendment)

    async def release(self, message_id: str, *, version: int | None = None) -> Message:
        """Make it due now."""
        return await self._parts.control.release(message_id, version)

    async def cancel_where(
        self, *, dry_run: bool = False, **where: Unpack[FilterFields]
    ) -> BulkResult:
        """Cancel everything scheduled that matches; `dry_run` only counts."""
        return await self._parts.control.cancel_where(filter_of(**where), dry_run=dry_run)

    async def release_where(
        self, *, dry_run: bool = False, **where: Unpack[FilterFields]
    ) -> BulkResult:
        """Make everything scheduled that matches due now; `dry_run` only counts."""
        return await self._parts.control.release_where(filter_of(**where), dry_run=dry_run)

    async def reschedule_where(
        self,
        *,
        at: Moment | None = None,
        delay: Delay | None = None,
        dry_run: bool = False,
        **where: Unpack[FilterFields],
    ) -> BulkResult:
        """Make every scheduled message that matches due at one moment; `dry_run` only counts.

        A message that would have expired by then counts as matched and is not changed.
        """
        when = change_of(at=at, delay=delay)
        due = self._parts.intake.due(when.at, when.delay)
        return await self._parts.control.reschedule_where(filter_of(**where), due, dry_run=dry_run)

    async def redrive(
        self, *, rate: str | None = None, dry_run: bool = False, **where: Unpack[FilterFields]
    ) -> BulkResult:
        """Send every dead message that matches again; `rate` paces them ("100/s")."""
        return await self._parts.control.redrive_where(
            filter_of(**where), rate=None if rate is None else parse_rate(rate), dry_run=dry_run
        )

    async def delete(self, message_id: str, *, version: int | None = None) -> Message:
        """Delete a dead message and return it. AlreadyReleased if it is not dead."""
        return await self._parts.control.delete(message_id, version)

    async def delete_dead(
        self, *, dry_run: bool = False, **where: Unpack[FilterFields]
    ) -> BulkResult:
        """Delete every dead message that matches, with all its data; `dry_run` only counts."""
        return await self._parts.control.delete_where(filter_of(**where), dry_run=dry_run)

    async def forget(self, key: str) -> Erased:
        """Erase every message and counter of a key; a message being sent is erased after its send.

        Suppression lists keep the key, so that an opt-out outlives the erasure.
        """
        return await self._parts.erase.all_of(key)

    async def routes(self) -> builtins.list[RouteStatus]:
        """Every route, with the store's figures for it."""
        return await self._status.routes()

    async def pause(self, route: str) -> None:
        """Pause a route: no process sends its messages until it is resumed."""
        await self._pause(route, True)

    async def resume(self, route: str) -> None:
        """Resume a paused route."""
        await self._pause(route, False)

    async def policies(self) -> dict[str, Policy]:
        """Every policy in force, by id."""
        return dict((await self._policies.refresh()).policies)

    async def put_policy(self, policy_id: str, policy: PolicyLike) -> None:
        """Store a policy; it binds every later decision in every process."""
        await self._policies.put({policy_id: policy_value(policy)})

    async def drop_policy(self, policy_id: str) -> None:
        """Delete a policy and its counters."""
        await self._policies.drop(policy_id)

    async def suppressions(self) -> dict[str, Suppression]:
        """Every suppression list, by id, without its keys."""
        return dict((await self._policies.refresh()).suppressions)

    async def suppression(self, list_id: str) -> Suppression:
        """One list with its keys."""
        return await self._policies.suppression(list_id)

    async def put_suppression(self, list_id: str, suppression: SuppressionLike) -> None:
        """Create or replace a list: it has exactly these keys."""
        await self._policies.put_suppression(list_id, suppression_value(suppression))

    async def drop_suppression(self, list_id: str) -> None:
        """Delete a list: its keys get messages again."""
        await self._policies.drop_suppression(list_id)

    async def suppress(self, list_id: str, *keys: str) -> None:
        """Add keys to a list."""
        await self._policies.suppress(list_id, add=keys)

    async def unsuppress(self, list_id: str, *keys: str) -> None:
        """Take keys off a list."""
        await self._policies.suppress(list_id, remove=keys)

    async def explain(self, **asked: Unpack[QuestionFields]) -> Decision:
        """The decision about such a message now, and the reasons; writes nothing."""
        now = self._parts.store.clock.now()
        (decision,) = await self._policies.explain([question_of(question(asked), now)])
        return decision

    async def counters(self, key: str) -> builtins.list[CounterFigure]:
        """The counters of the caps for a key."""
        return await self._policies.counters(key)

    @property
    def _policies(self) -> Policies:
        if self._parts.policies is None:
            raise UnknownThing(f"the store {self._parts.store.name} keeps no policies")
        return self._parts.policies

    async def stats(self) -> Stats:
        """The figures of the store and of the processes on it."""
        return await self._status.stats()

    async def health(self) -> Readiness:
        """Whether the engine accepts messages now."""
        return await self._status.readiness()

    async def _pause(self, route: str, paused: bool) -> None:
        if self._parts.any_route:
            if not is_route_name(route):
                raise InvalidMessage("route", "must be 1-100 letters, digits, _ . or -")
        else:
            await self._status.check_route(route)
        await self._parts.control.pause(route, paused)

    async def run(self) -> None:
        """Release messages here until cancelled; for programs that only work."""
        rooms = await self.rooms.open()
        async with open_worker(self._parts, self._handlers) as worker:
            await _work(worker, self._parts.store, rooms)


def _route_settings(name: str, value: RouteLike) -> RouteSettings | Mapping[str, Any]:
    if isinstance(value, str):
        return RouteSettings(sink=value)
    if isinstance(value, RouteSettings | Mapping):
        return value
    if not callable(value):
        raise ConfigError(
            f"routes.{name}: {value!r} is no route: give a sink's URL, a function to call, or what"
            " a [routes.*] entry can say (penstock.RouteSettings or a mapping)",
            field=f"routes.{name}",
        )
    return RouteSettings(sink="python:")  # the function itself is passed beside
