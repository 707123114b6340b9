"""The three ways to schedule an event, from a client's side."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping
from enum import Enum, auto
from functools import partial
from typing import Any, Protocol

import grpc
import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.contrib.scheduler_service import EVENTS
from penstock.contrib.scheduler_service import common_pb2 as common
from penstock.contrib.scheduler_service import scheduler_pb2 as original
from penstock.contrib.scheduler_service.scheduler_pb2_grpc import SchedulerServiceStub
from penstock.v1 import scheduler_pb2 as pb
from penstock.v1.scheduler_pb2_grpc import SchedulerStub
from penstock.v1.values import moment

CALL_SECONDS = 10.0
"""Time limit of one call before it is repeated."""
_AGAIN = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        grpc.StatusCode.CANCELLED,
    }
)


class Event(msgspec.Struct, frozen=True):
    """An event to schedule. Its payload repeats all fields, for the receiver's checks."""

    id: str
    due: int
    """Epoch milliseconds; the original service and the topic take whole seconds."""
    topic: str
    """The topic on which it must appear."""

    @property
    def payload(self) -> bytes:
        return msgspec.json.encode(self)


class Scheduled(Enum):
    """The answer of a way."""

    NEW = auto()
    KNOWN = auto()
    TAKEN = auto()
    """The topic accepted it; whether the id is new is unknown."""
    REFUSED = auto()


class Cancelled(Enum):
    DONE = auto()
    LATE = auto()
    UNKNOWN = auto()


class TryAgain(Exception):
    """No definite answer: the call may be repeated."""


class Way(Protocol):
    """A way to schedule an event."""

    name: str

    async def schedule(self, event: Event) -> Scheduled:
        """Schedule the event; raises TryAgain without a definite answer."""
        ...


class Canceller(Protocol):
    """A way that can also cancel."""

    async def cancel(self, event_id: str) -> Cancelled:
        """Cancel the event; raises TryAgain without a definite answer."""
        ...


class OurWay:
    """penstock.v1.Scheduler: outcomes are gRPC statuses."""

    name = "penstock.v1"

    def __init__(self, channel: grpc.aio.Channel, options: Mapping[str, Any]) -> None:
        self._stub: Any = SchedulerStub(channel)
        self._options = options

    async def schedule(self, event: Event) -> Scheduled:
        request = pb.ScheduleRequest(
            id=event.id,
            route=EVENTS,
            topic=event.topic,
            payload=event.payload,
            at=moment(event.due),
        )
        try:
            answer = await self._stub.Schedule(request, **self._options)
        except grpc.aio.AioRpcError as exc:
            if exc.code() is grpc.StatusCode.INVALID_ARGUMENT:
                return Scheduled.REFUSED
            raise _again(exc) from exc
        return Scheduled.KNOWN if answer.duplicate else Scheduled.NEW

    async def cancel(self, event_id: str) -> Cancelled:
        try:
            await self._stub.Cancel(pb.CancelRequest(id=event_id), **self._options)
        except grpc.aio.AioRpcError as exc:
            if exc.code() is grpc.StatusCode.FAILED_PRECONDITION:
                return Cancelled.LATE
            if exc.code() is grpc.StatusCode.NOT_FOUND:
                return Cancelled.UNKNOWN
            raise _again(exc) from exc
        return Cancelled.DONE


class OriginalWay:
    """scheduler.v1.SchedulerService: outcomes are in the answer's own status."""

    name = "scheduler.v1"
    _SCHEDULED: Mapping[int, Scheduled] = {
        common.SUCCESS: Scheduled.NEW,
        common.RECORD_FOUND: Scheduled.KNOWN,
        common.BAD_REQUEST: Scheduled.REFUSED,
    }
    _CANCELLED: Mapping[int, Cancelled] = {
        common.SUCCESS: Cancelled.DONE,
        common.CONFLICT: Cancelled.LATE,
        common.NOT_FOUND: Cancelled.UNKNOWN,
    }

    def __init__(self, channel: grpc.aio.Channel, options: Mapping[str, Any]) -> None:
        self._stub: Any = SchedulerServiceStub(channel)
        self._options = options

    async def schedule(self, event: Event) -> Scheduled:
        request = original.ScheduleRequest(
            event_id=event.id,
            execute_at=event.due // 1000,
            payload=event.payload,
            topic=event.topic,
        )
        try:
            answer = await self._stub.Schedule(request, **self._options)
        except grpc.aio.AioRpcError as exc:
            raise _again(exc) from exc
        return self._SCHEDULED[answer.status.code]

    async def cancel(self, event_id: str) -> Cancelled:
        request = original.CancelRequest(event_id=event_id)
        try:
            answer = await self._stub.Cancel(request, **self._options)
        except grpc.aio.AioRpcError as exc:
            raise _again(exc) from exc
        return self._CANCELLED[answer.status.code]


class TopicWay:
    """A record on the topic `schedule_events`; its id is called `event_id` and `id` in turn."""

    name = "topic"

    def __init__(self, config: Mapping[str, Any], topic: str) -> None:
        self._producer = Producer({**config, "enable.idempotence": True, "linger.ms": 5})
        self._topic = topic
        self._names = ("event_id", "id")

    async def schedule(self, event: Event) -> Scheduled:
        loop = asyncio.get_running_loop()
        confirmed: asyncio.Future[KafkaError | None] = loop.create_future()
        self._names = self._names[::-1]
        record = {
            self._names[0]: event.id,
            "execute_at": event.due // 1000,
            "payload": base64.b64encode(event.payload).decode(),
            "topic": event.topic,
        }
        try:
            self._producer.produce(
                self._topic, json.dumps(record), on_delivery=partial(_confirm, confirmed)
            )
        except (BufferError, KafkaException) as exc:
            raise TryAgain(str(exc)) from exc
        error = await confirmed
        if error is not None:
            raise TryAgain(error.str())
        return Scheduled.TAKEN

    async def serve(self) -> None:
        """Receive the broker's confirmations until cancelled."""
        while True:
            self._producer.poll(0)
            await asyncio.sleep(0.01)

    def close(self) -> None:
        self._producer.purge()
        self._producer.poll(0)


def _confirm(
    confirmed: asyncio.Future[KafkaError | None], error: KafkaError | None, _message: object
) -> None:
    if not confirmed.done():
        confirmed.set_result(error)


def _again(exc: grpc.aio.AioRpcError) -> Exception:
    """TryAgain if repeating may help, else the error itself."""
    if exc.code() in _AGAIN:
        return TryAgain(f"{exc.code().name}: {exc.details()}")
    return exc
