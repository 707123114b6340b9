"""penstock.v1.Scheduler: read the request, call the flow, answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Proto

from penstock.api.access import Tokens
from penstock.api.audit import Audit, filter_text
from penstock.api.grants import ANYONE, Grant, Scope, check_change, check_drafts, schedule_as
from penstock.api.grpc.errors import Context, fail, refuse, refused, unreadable
from penstock.api.grpc.linger import CallTime
from penstock.api.grpc.recurring import put_of, recurring_of, rule_of
from penstock.api.grpc.shapes import draft_of, filter_of, message_of, patch_of, response_of
from penstock.api.grpc.stream import Inflow
from penstock.flow.coalesce import Coalescer
from penstock.flow.intake import GROUP, Outcome
from penstock.flow.recurring import Recurring
from penstock.model.draft import Draft, is_id
from penstock.model.errors import (
    InvalidMessage,
    Overloaded,
    PenstockError,
    StoreUnavailable,
    UnknownMessage,
    UnknownThing,
)
from penstock.model.message import Message
from penstock.model.outcome import Receipt
from penstock.model.trace import TRACEPARENT, give_trace
from penstock.v1 import scheduler_pb2 as pb
from penstock.wiring import Parts

SERVICE = "penstock.v1.Scheduler"
PAGE = 100
MAX_PAGE = 1_000
"""Rules of a page, usually and at most."""
MAX_IN_FLIGHT = 20_000
"""Single puts waiting for the store at most; more are answered RESOURCE_EXHAUSTED."""

Asked = TypeVar("Asked", bound=Proto)
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"


class Caller(NamedTuple):
    """The caller's grant, and the trace that the call is part of."""

    grant: Grant
    trace: str | None


Act: TypeAlias = Callable[[Asked, Caller], Awaitable[Proto]]
"""A verb: takes the request and the caller."""


class Beside(Protocol):
    """Another service on the same port."""

    name: str
    """The full name, with its package."""

    def handlers(self) -> dict[str, Handler]:
        """Its calls by name."""
        ...


@dataclass(slots=True)
class Scheduler:
    """The verbs. They take and return bytes, so that decoding errors have our texts too."""

    parts: Parts
    tokens: Tokens
    max_in_flight: int = MAX_IN_FLIGHT
    in_flight: int = 0
    """Single puts received and not answered yet."""
    reading: set[asyncio.Task[None]] = field(default_factory=set)
    """Streams that are being read."""
    stopping: bool = False
    audit: Audit = field(default_factory=Audit)
    singles: Coalescer[Draft, Receipt] = field(init=False)
    """Single puts share store calls, though gRPC hands them over one by one: further apart than
    the turns of the loop that the intake waits for."""

    def __post_init__(self) -> None:
        self.singles = self.parts.intake.singles(CallTime(GROUP))

    def handlers(self) -> dict[str, Handler]:
        unary = grpc.unary_unary_rpc_method_handler
        return {
            "Schedule": unary(self.unary(pb.ScheduleRequest, self.schedule, Scope.WRITE)),
            "ScheduleBatch": unary(
                self.unary(pb.ScheduleBatchRequest, self.schedule_batch, Scope.WRITE)
            ),
            "ScheduleStream": grpc.stream_unary_rpc_method_handler(self._stream),
            "Get": unary(self.unary(pb.GetRequest, self.get, Scope.READ)),
            "Cancel": unary(self.unary(pb.CancelRequest, self.cancel, Scope.WRITE)),
            "Reschedule": unary(self.unary(pb.RescheduleRequest, self.reschedule, Scope.WRITE)),
            "Delete": unary(self.unary(pb.DeleteRequest, self.delete, Scope.WRITE)),
            "DeleteDead": unary(self.unary(pb.DeleteDeadRequest, self.delete_dead, Scope.WRITE)),
            "PutRecurring": unary(
                self.unary(pb.PutRecurringRequest, self.put_recurring, Scope.WRITE)
            ),
            "GetRecurring": unary(
                self.unary(pb.GetRecurringRequest, self.get_recurring, Scope.READ)
            ),
            "ListRecurring": unary(
                self.unary(pb.ListRecurringRequest, self.list_recurring, Scope.READ)
            ),
            "DeleteRecurring": unary(
                self.unary(pb.DeleteRecurringRequest, self.delete_recurring, Scope.WRITE)
            ),
        }

    def stop(self) -> None:
        """Read no more of any stream: store the messages read, then answer their clients."""
        self.stopping = True
        for task in self.reading:
            task.cancel()

    async def schedule(self, asked: pb.ScheduleRequest, caller: Caller) -> pb.ScheduleResponse:
        return response_of(await self.put(draft_of(asked), caller))

    async def put(self, draft: Draft, caller: Caller) -> Receipt:
        """Store one message for this caller; Overloaded while too many wait for the store."""
        if self.in_flight >= self.max_in_flight:
            raise Overloaded(f"{self.in_flight:,} messages are waiting for the store already")
        give_trace(draft, caller.trace)
        if caller.grant.is_limited:
            (refusal,) = await check_drafts(caller.grant, self.parts.control, [draft])
            if refusal is not None:
                raise refusal
        self.in_flight += 1
        try:
            receipt = await self.singles.ask(draft)
        finally:
            self.in_flight -= 1
        self.audit.count(caller.grant, "schedule", draft.route)
        return receipt

    async def schedule_batch(
        self, asked: pb.ScheduleBatchRequest, caller: Caller
    ) -> pb.ScheduleBatchResponse:
        items = [_item(one, caller.trace) for one in asked.messages]
        drafts = [item for item in items if isinstance(item, Draft)]
        outcomes = iter(await self._put(caller.grant, drafts) if drafts else ())
        answer = pb.ScheduleBatchResponse()
        for index, (one, item) in enumerate(zip(asked.messages, items, strict=True)):
            outcome = item if isinstance(item, PenstockError) else next(outcomes)
            answer.outcomes.append(_outcome(outcome, index, one.id))
        return answer

    async def _put(self, grant: Grant, drafts: list[Draft]) -> list[Outcome]:
        outcomes = await schedule_as(grant, self.parts.intake, self.parts.control, drafts)
        self.audit.scheduled(grant, drafts, outcomes)
        return outcomes

    async def get(self, asked: pb.GetRequest, caller: Caller) -> pb.Message:
        message, timeline = await self.parts.control.get(check_id(asked.id))
        caller.grant.check_route(message.route)
        return message_of(message, timeline)

    async def cancel(self, asked: pb.CancelRequest, caller: Caller) -> pb.Message:
        version = asked.version if asked.HasField("version") else None
        return message_of(await self.cancel_message(check_id(asked.id), caller, version))

    async def cancel_message(
        self, message_id: str, caller: Caller, version: int | None = None
    ) -> Message:
        """Cancel it for this caller; the message as it is then."""
        await check_change(caller.grant, self.parts.control, message_id)
        message = await self.parts.control.cancel(message_id, version)
        self.audit.record(caller.grant, "cancel", message_id)
        return message

    async def reschedule(self, asked: pb.RescheduleRequest, caller: Caller) -> pb.Message:
        version = asked.version if asked.HasField("version") else None
        message_id, patch = check_id(asked.id), patch_of(asked)
        if patch.labels is not None:
            caller.grant.check_labels(patch.labels)
        await check_change(caller.grant, self.parts.control, message_id)
        amendment = self.parts.intake.change(message_id, patch, version)
        message = await self.parts.control.reschedule(amendment)
        self.audit.record(caller.grant, "change", message_id)
        return message_of(message)

    async def delete(self, asked: pb.DeleteRequest, caller: Caller) -> pb.Message:
        version = asked.version if asked.HasField("version") else None
        message_id = check_id(asked.id)
        await check_change(caller.grant, self.parts.control, message_id)
        message = await self.parts.control.delete(message_id, version)
        self.audit.record(caller.grant, "delete", message_id)
        return message_of(message)

    async def delete_dead(self, asked: pb.DeleteDeadRequest, caller: Caller) -> pb.BulkResponse:
        where = caller.grant.narrowed(filter_of(asked), "")
        result = await self.parts.control.delete_where(
            where, dry_run=asked.dry_run, only=caller.grant.covers
        )
        if not asked.dry_run:
            self.audit.record(caller.grant, "delete", filter_text(where), result.done)
        return pb.BulkResponse(matched=result.matched, done=result.done)

    async def put_recurring(
        self, asked: pb.PutRecurringRequest, caller: Caller
    ) -> pb.PutRecurringResponse:
        version = asked.version if asked.HasField("version") else None
        caller.grant.check_unlimited(reading=False)
        put, made = await self._rules().put(asked.id, rule_of(asked.rule), version=version)
        self.audit.record(caller.grant, "put", f"recurring {asked.id}")
        return put_of(put, made=made)

    async def get_recurring(self, asked: pb.GetRecurringRequest, caller: Caller) -> pb.Recurring:
        caller.grant.check_unlimited(reading=True)
        return recurring_of(await self._rules().get(asked.id))

    async def list_recurring(
        self, asked: pb.ListRecurringRequest, caller: Caller
    ) -> pb.ListRecurringResponse:
        caller.grant.check_unlimited(reading=True)
        if not 0 <= asked.limit <= MAX_PAGE:
            raise InvalidMessage("limit", f"must be 1-{MAX_PAGE}")
        page = await self._rules().list(asked.cursor or None, asked.limit or PAGE)
        items = [recurring_of(rule) for rule in page.items]
        return pb.ListRecurringResponse(items=items, next=page.next)

    async def delete_recurring(
        self, asked: pb.DeleteRecurringRequest, caller: Caller
    ) -> pb.DeleteRecurringResponse:
        caller.grant.check_unlimited(reading=False)
        await self._rules().delete(asked.id, asked.version if asked.HasField("version") else None)
        self.audit.record(caller.grant, "delete", f"recurring {asked.id}")
        return pb.DeleteRecurringResponse(id=asked.id)

    def _rules(self) -> Recurring:
        if self.parts.recurring is None:
            raise UnknownThing(f"the store {self.parts.store.name} keeps no recurring rules")
        return self.parts.recurring

    async def schedule_stream(self, context: Context, grant: Grant) -> pb.ScheduleStreamResponse:
        """Read and store beside each other; both end when either fails or the caller leaves."""
        inflow = Inflow(partial(self._put, grant), _metadata(context, TRACEPARENT))
        loop = asyncio.get_running_loop()
        reading = loop.create_task(_read(context, inflow))
        storing = loop.create_task(inflow.store())
        self.reading.add(reading)
        reading.add_done_callback(lambda _: inflow.end())
        if self.stopping:
            reading.cancel()
        try:
            await storing
            if self.stopping and reading.cancelled():
                durable = inflow.summary.accepted
                raise StoreUnavailable(
                    f"this server is stopping; {durable} messages of the stream are durable"
                )
            await reading
        finally:
            self.reading.discard(reading)
            reading.cancel()
            storing.cancel()
            await asyncio.gather(reading, storing, return_exceptions=True)
        return inflow.summary

    def unary(
        self, kind: type[Asked], act: Act[Asked], scope: Scope
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        """A call with one request and one answer, for callers whose token covers `scope`."""

        async def behave(body: bytes, context: Context) -> bytes:
            try:
                caller = Caller(self._grant(context, scope), _metadata(context, TRACEPARENT))
                return (await act(_decoded(kind, body), caller)).SerializeToString()
            except PenstockError as exc:
                await refuse(context, exc)
            except Exception as exc:  # noqa: BLE001 - told to the log, not to the caller
                await fail(context, exc, kind.__name__.removesuffix("Request"))

        return behave

    async def _stream(self, _: object, context: Context) -> bytes:
        try:
            grant = self._grant(context, Scope.WRITE)
            return (await self.schedule_stream(context, grant)).SerializeToString()
        except PenstockError as exc:
            await refuse(context, exc)
        except Exception as exc:  # noqa: BLE001 - as above
            await fail(context, exc, "ScheduleStream")

    def _grant(self, context: Context, scope: Scope) -> Grant:
        """The grant of the token of the call; refuse one that does not cover `scope`."""
        if not self.tokens:
            return ANYONE
        given = _metadata(context, "authorization")
        return self.tokens.check(None if given is None else given.encode(), scope)


async def _read(context: Context, inflow: Inflow) -> None:
    """Read every message of the stream, as fast as the inflow has room."""
    while True:
        body = await context.read()
        if body is grpc.aio.EOF:
            return
        if not inflow.add(body):
            await inflow.room()


def _decoded(kind: type[Asked], body: bytes) -> Asked:
    try:
        return kind.FromString(body)
    except DecodeError as exc:
        raise unreadable() from exc


def _metadata(context: Context, wanted: str) -> str | None:
    for name, value in context.invocation_metadata() or ():
        if name == wanted:
            return value.decode("latin-1") if isinstance(value, bytes) else value
    return None


def check_id(given: str) -> str:
    """The id of a message that may exist; UnknownMessage for one that could not."""
    if not given:
        raise InvalidMessage("id", "must be given")
    if not is_id(given):  # such an id was never accepted
        raise UnknownMessage(given[:200])
    return given


def _item(asked: pb.ScheduleRequest, trace: str | None) -> Draft | PenstockError:
    try:
        draft = draft_of(asked)
    except PenstockError as exc:
        return exc
    give_trace(draft, trace)
    return draft


def _outcome(outcome: Outcome, index: int, given_id: str) -> pb.Outcome:
    if isinstance(outcome, Receipt):
        return pb.Outcome(accepted=response_of(outcome))
    return pb.Outcome(refused=refused(outcome, index, given_id))
