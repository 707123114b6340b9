"""Recurring rules inside a program, and functions that are called by them."""

from __future__ import annotations

import asyncio
import builtins
import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, Unpack

from penstock.flow.recurring import Configured, Recurring
from penstock.flow.worker import Worker
from penstock.model.errors import ConfigError, UnknownThing
from penstock.model.recurrence import check_rule_id
from penstock.model.recurrence_view import Preview, RecurringOut, RulePut
from penstock.model.route import Route
from penstock.ports.sink import Sink
from penstock.sdk.asked import Moment, moment_text, page_size
from penstock.sdk.recurring import RuleFields, rule_value
from penstock.wiring import Parts, handler_sink

F = TypeVar("F", bound=Callable[..., object])


class EmbeddedRecurring:
    """`engine.recurring`. A worker, of this program or of another, plants the messages."""

    def __init__(self, parts: Parts, sinks: dict[str, Sink]) -> None:
        """`sinks`: the sinks that are closed with the engine; decorated functions are added to
        them.
        """
        self._parts = parts
        self._sinks = sinks
        self._worker: Worker | None = None
        self._under_way: set[asyncio.Task[None]] = set()

    async def put(
        self, rule_id: str, *, version: int | None = None, **fields: Unpack[RuleFields]
    ) -> RulePut:
        """Make a rule or change it; `version`: only if it has this one (VersionConflict)."""
        rule = rule_value(fields, max_payload=self._parts.settings.limits.max_payload)
        return (await self._rules().put(rule_id, rule, version=version))[0]

    async def get(self, rule_id: str) -> RecurringOut:
        """The rule, its next moments and its latest results; UnknownThing if there is none."""
        return await self._rules().get(rule_id)

    async def list(
        self, *, cursor: str | None = None, limit: int = 100
    ) -> tuple[builtins.list[RecurringOut], str | None]:
        """A page by id, and the cursor of the next one (None: the last)."""
        page = await self._rules().list(cursor, page_size(limit))
        return page.items, page.next

    async def delete(self, rule_id: str, *, version: int | None = None) -> None:
        """Delete the rule; messages that it has planted stay."""
        await self._rules().delete(rule_id, version)

    async def pause(self, rule_id: str, *, version: int | None = None) -> RecurringOut:
        """Plant nothing until it is resumed."""
        return await self._rules().pause(rule_id, True, version)

    async def resume(self, rule_id: str, *, version: int | None = None) -> RecurringOut:
        """Plant again; moments that passed during the pause are not made up for."""
        return await self._rules().pause(rule_id, False, version)

    async def trigger(self, rule_id: str) -> str:
        """Put one more message of the rule, due now; its id."""
        return await self._rules().trigger(rule_id)

    async def backfill(self, rule_id: str, first: Moment, last: Moment) -> int:
        """Put past moments, both ends included, that are not known; how many there were."""
        begin, end = moment_text(first, "from"), moment_text(last, "to")
        return await self._rules().backfill(rule_id, begin, end)

    async def preview(self, **fields: Unpack[RuleFields]) -> Preview:
        """The moments of such a rule and their description in words; nothing is stored."""
        return self._rules().preview(rule_value(fields))

    async def ready(self) -> None:
        """Wait until the rules of decorated functions are stored; raises the error of one that
        failed.
        """
        await asyncio.gather(*self._under_way)

    # --- functions

    def serve(self, worker: Worker) -> None:
        """Functions may be decorated from now on: this worker calls them."""
        self._worker = worker

    def calls(self, name: str | None, fields: RuleFields) -> Callable[[F], F]:
        """A decorator: a rule and a route with the function's name, which calls it."""

        def decorate(function: F) -> F:
            rule_id = check_rule_id(name or function.__name__)
            rule = rule_value({**fields, "route": rule_id})
            worker = self._worker
            if worker is None:
                raise ConfigError(
                    f"recurring.{rule_id}: a function is called by a worker: open the engine with"
                    " worker=True"
                )
            self._parts.known_routes.add(rule_id)
            sink = handler_sink(rule_id, _taking_message(function))
            worker.add(Route(name=rule_id), sink)
            self._sinks[rule_id] = sink
            configuring = self._rules().configure(rule_id, Configured(rule))
            task = asyncio.get_running_loop().create_task(configuring)
            self._under_way.add(task)
            task.add_done_callback(self._under_way.discard)
            return function

        return decorate

    def _rules(self) -> Recurring:
        if self._parts.recurring is None:
            raise UnknownThing(f"the store {self._parts.store.name} keeps no recurring rules")
        return self._parts.recurring


def _taking_message(function: Callable[..., object]) -> Callable[..., object]:
    """A job need not look at its message."""
    if inspect.signature(function).parameters:
        return function
    if inspect.iscoroutinefunction(function):

        @wraps(function)
        async def call(_: Any) -> object:
            return await function()

        return _unwrapped(call)

    @wraps(function)
    def call_plain(_: Any) -> object:
        return function()

    return _unwrapped(call_plain)


def _unwrapped(call: Callable[..., object]) -> Callable[..., object]:
    """Remove `__wrapped__`, so that a sink inspects the parameters of the function itself."""
    del call.__wrapped__  # type: ignore[attr-defined]  # set by functools.wraps
    return call
