"""penstock.v1.Scheduler: read the request, call the flow, answer."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeAlias, TypeVar

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as Proto

from penstock.api.access import Scope, Tokens
from penstock.api.grpc.crowd import Crowd
from penstock.api.grpc.errors import Context, fail, refuse, refused, unreadable
from penstock.api.grpc.shapes import draft_of, message_of, patch_of, response_of
from penstock.api.grpc.stream import Inflow
from penstock.flow.intake import Outcome, schedule_through
from penstock.model.draft import Draft
from penstock.model.errors import (
    InvalidMessage,
    Overloaded,
    PenstockError,
    StoreUnavailable,
    UnknownMessage,
)
from penstock.model.identity import is_id
from penstock.model.outcome import Receipt
from penstock.model.trace import TRACEPARENT, give_trace
from penstock.v1 import scheduler_pb2 as pb
from penstock.wiring import Parts

SERVICE = "penstock.v1.Scheduler"
MAX_IN_FLIGHT = 20_000
"""Single puts waiting for the store at most; more are answered RESOURCE_EXHAUSTED."""

Asked = TypeVar("Asked", bound=Proto)
Handler: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"
Act: TypeAlias = Callable[[Asked, str | None], Awaitable[Proto]]
"""A verb: what is asked, and the trace the caller is part of."""


@dataclass(slots=True)
class Scheduler:
    """The verbs. Bytes come in and go out, so that what cannot be read has our words too."""

    parts: Parts
    tokens: Tokens
    max_in_flight: int = MAX_IN_FLIGHT
    in_flight: int = 0
    """Single puts that came in and are not answered."""
    reading: set[asyncio.Task[None]] = field(default_factory=set)
    """Streams that are being read."""
    stopping: bool = False
    crowd: Crowd = field(init=False)

    def __post_init__(self) -> None:
        self.crowd = Crowd(self.parts.intake)

    def handlers(self) -> dict[str, Handler]:
        unary = grpc.unary_unary_rpc_method_handler
        return {
            "Schedule": unary(self._unary(pb.ScheduleRequest, self.schedule, Scope.WRITE)),
            "ScheduleBatch": unary(
                self._unary(pb.ScheduleBatchRequest, self.schedule_batch, Scope.WRITE)
            ),
            "ScheduleStream": grpc.stream_unary_rpc_method_handler(self._stream),
            "Get": unary(self._unary(pb.GetRequest, _traceless(self.get), Scope.READ)),
            "Cancel": unary(self._unary(pb.CancelRequest, _traceless(self.cancel), Scope.WRITE)),
            "Reschedule": unary(
                self._unary(pb.RescheduleRequest, _traceless(self.reschedule), Scope.WRITE)
            ),
        }

    def stop(self) -> None:
        """Read no more of any stream: what was read is stored, then their clients are told."""
        self.stopping = True
        for task in self.reading:
            task.cancel()

    async def schedule(self, asked: pb.ScheduleRequest, trace: str | None) -> pb.ScheduleResponse:
        if self.in_flight >= self.max_in_flight:
            raise Overloaded(f"{self.in_flight:,} messages are waiting for the store already")
        draft = draft_of(asked)
        give_trace(draft, trace)
        self.in_flight += 1
        try:
            return response_of(await schedule_through(self.crowd, draft))
        finally:
            self.in_flight -= 1

    async def schedule_batch(
        self, asked: pb.ScheduleBatchRequest, trace: str | None
    ) -> pb.ScheduleBatchResponse:
        items = [_item(one, trace) for one in asked.messages]
        drafts = [item for item in items if isinstance(item, Draft)]
        outcomes = iter(await self.parts.intake.schedule(drafts) if drafts else ())
        answer = pb.ScheduleBatchResponse()
        for index, (one, item) in enumerate(zip(asked.messages, items, strict=True)):
            outcome = item if isinstance(item, PenstockError) else next(outcomes)
            answer.outcomes.append(_outcome(outcome, index, one.id))
        return answer

    async def get(self, asked: pb.GetRequest) -> pb.Message:
        return message_of(*await self.parts.control.get(_id(asked.id)))

    async def cancel(self, asked: pb.CancelRequest) -> pb.Message:
        version = asked.version if asked.HasField("version") else None
        return message_of(await self.parts.control.cancel(_id(asked.id), version))

    async def reschedule(self, asked: pb.RescheduleRequest) -> pb.Message:
        version = asked.version if asked.HasField("version") else None
        amendment = self.parts.intake.change(_id(asked.id), patch_of(asked), version)
        return message_of(await self.parts.control.reschedule(amendment))

    async def schedule_stream(self, context: Context) -> pb.ScheduleStreamResponse:
        """Read and store beside each other; both end when either fails or the caller leaves."""
        inflow = Inflow(self.parts.intake, _metadata(context, TRACEPARENT))
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

    def _unary(
        self, kind: type[Asked], act: Act[Asked], scope: Scope
    ) -> Callable[[bytes, Context], Awaitable[bytes]]:
        async def behave(body: bytes, context: Context) -> bytes:
            try:
                self._check(context, scope)
                trace = _metadata(context, TRACEPARENT)
                return (await act(_decoded(kind, body), trace)).SerializeToString()
            except PenstockError as exc:
                await refuse(context, exc)
            except Exception as exc:  # noqa: BLE001 - told to the log, not to the caller
                await fail(context, exc)

        return behave

    async def _stream(self, _: object, context: Context) -> bytes:
        try:
            self._check(context, Scope.WRITE)
            return (await self.schedule_stream(context)).SerializeToString()
        except PenstockError as exc:
            await refuse(context, exc)
        except Exception as exc:  # noqa: BLE001 - as above
            await fail(context, exc)

    def _check(self, context: Context, scope: Scope) -> None:
        if self.tokens:
            given = _metadata(context, "authorization")
            self.tokens.check(None if given is None else given.encode(), scope)


async def _read(context: Context, inflow: Inflow) -> None:
    """Every message of the stream, as fast as there is room."""
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


def _traceless(act: Callable[[Asked], Awaitable[Proto]]) -> Act[Asked]:
    """Of a verb that makes no message: the caller's trace has nothing to go on with."""
    return lambda asked, _: act(asked)


def _id(given: str) -> str:
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
