"""The verbs of Penstock over HTTP, for programs with an event loop."""

from __future__ import annotations

import asyncio
import builtins
from collections.abc import AsyncIterator, Iterable
from functools import cached_property
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from penstock.model.outcome import Receipt
from penstock.sdk.asked import change_of, draft_for, filter_of
from penstock.sdk.async_gather import AsyncGather
from penstock.sdk.async_link import AsyncLink
from penstock.sdk.async_rooms import AsyncRooms
from penstock.sdk.calls import (
    EITHER,
    ONLY_CANCEL,
    ONLY_DELETE,
    TIMELINE,
    Call,
    Outcome,
    about,
    batches,
    call,
    matching,
    page,
    schedule,
    schedule_batch,
    wire,
    wire_filter,
    with_id,
)
from penstock.sdk.transport import (
    DEFAULT_RETRIES,
    DEFAULT_TIMEOUT,
    DEFAULT_URL,
    NoReply,
    Wiring,
)

if TYPE_CHECKING:  # a client that only schedules loads neither policies nor figures
    from penstock.model.decision import CounterFigure, Decision
    from penstock.model.message import Event, Message
    from penstock.model.policy import Policy, Suppression
    from penstock.model.status_view import Readiness, RouteStatus, Stats
    from penstock.model.view import BulkResult, Erased
    from penstock.sdk.asked import Delay, MessageLike, Moment
    from penstock.sdk.async_recurring import AsyncRecurring
    from penstock.sdk.fields import ChangeFields, FilterFields, MessageFields, QuestionFields
    from penstock.sdk.rules import PolicyLike, SuppressionLike

T = TypeVar("T")


class AsyncClient:
    """A connection pool to one server. Calls that are safe to repeat are repeated, up to `retries`
    times.

    `ca` names a file of authorities to trust for https (PEM); without it the usual ones are.
    `timeout` is in seconds. A bulk change (`cancel_where`, `redrive` …) has none while it runs, and
    is sent again only when it never left: its count would be that of the second time. Messages that
    are scheduled concurrently share requests, each with its own answer; with `gather=False` every
    one is a request of its own.

        async with penstock.AsyncClient("http://127.0.0.1:8700", token="…") as client:
            await client.schedule({"hello": "later"}, delay="15m")
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        token: str | None = None,
        timeout: float = DEFAULT_TIMEOUT,
        retries: int = DEFAULT_RETRIES,
        ca: str | None = None,
        gather: bool = True,
    ) -> None:
        self._wiring = Wiring(url, token, timeout, retries, ca)
        self._link = AsyncLink(self._wiring)
        self._gather = AsyncGather(self._send) if gather else None
        self.rooms = AsyncRooms(self._send)
        """Waiting rooms."""

    @cached_property
    def recurring(self) -> AsyncRecurring:
        """Recurring rules."""
        from penstock.sdk.async_recurring import AsyncRecurring  # noqa: PLC0415 - for those who ask

        return AsyncRecurring(self._send)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        exc: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections; the client cannot be used after."""
        await self._link.close()

    async def schedule(self, payload: object = None, **fields: Unpack[MessageFields]) -> Receipt:
        """Keep a message until its moment (`at` or `delay`; neither: now). Durable on return."""
        wanted = with_id(draft_for("schedule", payload, fields), self._wiring.make_id)
        if self._gather is not None:
            return await self._gather.schedule(wanted)
        return await self._send(schedule(wanted))

    async def schedule_many(self, messages: Iterable[MessageLike]) -> list[Outcome]:
        """Keep many at once: one outcome each, in order; bad ones do not hold back the good."""
        return [outcome async for outcome in self.schedule_stream(messages)]

    async def schedule_stream(self, messages: Iterable[MessageLike]) -> AsyncIterator[Outcome]:
        """Store any number in constant memory; an outcome follows once its message is durable."""
        for batch in batches(messages, self._wiring.make_id):
            answered = await self._send(schedule_batch(bytes(batch.lines))) if batch.sent else []
            for outcome in batch.outcomes(answered):
                yield outcome

    async def get(self, message_id: str) -> Message:
        """The message as it is now; UnknownMessage if there is none."""
        return await self._send(about("get", message_id))

    async def timeline(self, message_id: str) -> list[Event]:
        """The message's events, oldest first."""
        return await self._send(about("get", message_id, value=TIMELINE))

    async def list(
        self, *, cursor: str | None = None, limit: int = 100, **where: Unpack[FilterFields]
    ) -> tuple[builtins.list[Message], str | None]:
        """A page in order of due, and the cursor of the next one (None: the last).

        A page may have fewer than `limit` messages, or none, with more to come: only a cursor of
        None is the end.
        """
        return await self._send(page("list", cursor, limit, wire_filter(filter_of(**where))))

    async def cancel(self, message_id: str, *, version: int | None = None) -> Message:
        """Cancelled, now or before; else AlreadyReleased, UnknownMessage or VersionConflict."""
        return await self._send(about("cancel", message_id, version=version, query=ONLY_CANCEL))

    async def reschedule(
        self, message_id: str, *, version: int | None = None, **change: Unpack[ChangeFields]
    ) -> Message:
        """Change the due time or the content of a message that is still waiting."""
        return await self._send(
            about("change", message_id, version=version, content=wire(change_of(**change)))
        )

    async def release(self, message_id: str, *, version: int | None = None) -> Message:
        """Make it due now."""
        return await self._send(about("release", message_id, version=version))

    async def cancel_where(
        self, *, dry_run: bool = False, **where: Unpack[FilterFields]
    ) -> BulkResult:
        """Cancel everything scheduled that matches; `dry_run` only counts."""
        return await self._send(matching("cancelMany", filter_of(**where), dry_run=dry_run))

    async def release_where(
        self, *, dry_run: bool = False, **where: Unpack[FilterFields]
    ) -> BulkResult:
        """Make everything scheduled that matches due now; `dry_run` only counts."""
        return await self._send(matching("releaseMany", filter_of(**where), dry_run=dry_run))

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
        when = wire(change_of(at=at, delay=delay))
        return await self._send(
            matching("rescheduleMany", filter_of(**where), dry_run=dry_run, **when)
        )

    async def redrive(
        self, *, rate: str | None = None, dry_run: bool = False, **where: Unpack[FilterFields]
    ) -> BulkResult:
        """Send every dead message that matches again; `rate` paces them ("100/s")."""
        return await self._send(matching("redrive", filter_of(**where), rate=rate, dry_run=dry_run))

    async def delete(self, message_id: str, *, version: int | None = None) -> Message:
        """Delete a dead message and return it. AlreadyReleased if it is not dead."""
        return await self._send(about("cancel", message_id, version=version, query=ONLY_DELETE))

    async def delete_dead(
        self, *, dry_run: bool = False, **where: Unpack[FilterFields]
    ) -> BulkResult:
        """Delete every dead message that matches, with all its data; `dry_run` only counts."""
        return await self._send(matching("deleteDead", filter_of(**where), dry_run=dry_run))

    async def forget(self, key: str) -> Erased:
        """Erase every message and counter of a key; a message being sent is erased after its send.

        Suppression lists keep the key, so that an opt-out outlives the erasure.
        """
        wanted = {"key": key}
        erased: Erased = await self._send(call("forget", content=wanted))
        while erased.next is not None:
            wanted["cursor"] = erased.next
            erased = erased.and_then(await self._send(call("forget", content=wanted)))
        return erased

    async def routes(self) -> builtins.list[RouteStatus]:
        """Every route, with the store's figures for it."""
        return await self._send(call("routes"))

    async def pause(self, route: str) -> None:
        """Pause a route: no process sends its messages until it is resumed."""
        await self._send(call("pause", route))

    async def resume(self, route: str) -> None:
        """Resume a paused route."""
        await self._send(call("resume", route))

    async def policies(self) -> dict[str, Policy]:
        """Every policy in force, by id."""
        return await self._send(call("policies"))

    async def put_policy(self, policy_id: str, policy: PolicyLike) -> None:
        """Store a policy; it binds every later decision in every process."""
        await self._send(call("putPolicy", policy_id, content=policy))

    async def drop_policy(self, policy_id: str) -> None:
        """Delete a policy and its counters."""
        await self._send(call("dropPolicy", policy_id))

    async def suppressions(self) -> dict[str, Suppression]:
        """Every suppression list, by id, without its keys."""
        return await self._send(call("suppressions"))

    async def suppression(self, list_id: str) -> Suppression:
        """One list with its keys."""
        return await self._send(call("suppression", list_id))

    async def put_suppression(self, list_id: str, suppression: SuppressionLike) -> None:
        """Create or replace a list: it has exactly these keys."""
        await self._send(call("putSuppression", list_id, content=suppression))

    async def drop_suppression(self, list_id: str) -> None:
        """Delete a list: its keys get messages again."""
        await self._send(call("dropSuppression", list_id))

    async def suppress(self, list_id: str, *keys: str) -> None:
        """Add keys to a list."""
        for key in keys:
            await self._send(call("suppress", list_id, key))

    async def unsuppress(self, list_id: str, *keys: str) -> None:
        """Take keys off a list."""
        for key in keys:
            await self._send(call("unsuppress", list_id, key))

    async def explain(self, **asked: Unpack[QuestionFields]) -> Decision:
        """The decision about such a message now, and the reasons; writes nothing."""
        return await self._send(call("explain", content=asked))

    async def counters(self, key: str) -> builtins.list[CounterFigure]:
        """The counters of the caps for a key."""
        return await self._send(call("counters", key))

    async def stats(self) -> Stats:
        """The figures of the store and of the server."""
        return await self._send(call("stats"))

    async def health(self) -> Readiness:
        """Whether the server accepts messages now."""
        return await self._send(call("readyz", good=EITHER))

    async def _send(self, call: Call[T]) -> T:
        tries = self._wiring.tries()
        while True:
            try:
                reply = await self._link.carry(call)
            except NoReply as exc:
                tries.failed(call, exc)
            else:
                if not tries.busy(call, reply):
                    return call.answer(reply.body)
            await asyncio.sleep(tries.pause())
