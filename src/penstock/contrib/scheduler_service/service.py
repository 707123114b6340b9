"""scheduler.v1.SchedulerService, over the verbs of penstock.v1.Scheduler.

What a client of the scheduler service decides by is in the answer's own status. What is not about
the event (no token, too many calls, the store is away, a fault) ends the call with a gRPC status.

| call     | what happened                              | status       |
|----------|--------------------------------------------|--------------|
| Schedule | stored                                     | SUCCESS      |
|          | an event with this id is known             | RECORD_FOUND |
|          | a field cannot be accepted                 | BAD_REQUEST  |
| Cancel   | cancelled, now or before                   | SUCCESS      |
|          | no event with this id is known             | NOT_FOUND    |
|          | it has left, or is leaving now             | CONFLICT     |
|          | no id was given                            | BAD_REQUEST  |
"""

from __future__ import annotations

import grpc

from penstock.api.grants import Scope
from penstock.api.grpc.service import Caller, Handler, Scheduler, check_id
from penstock.contrib.scheduler_service import EVENTS
from penstock.contrib.scheduler_service import common_pb2 as common
from penstock.contrib.scheduler_service import scheduler_pb2 as pb
from penstock.model.draft import BinaryDraft
from penstock.model.errors import (
    AlreadyReleased,
    InvalidMessage,
    PenstockError,
    TooLarge,
    UnknownMessage,
)
from penstock.model.times import check_range

SERVICE = "scheduler.v1.SchedulerService"
NAMES = {"id": "event_id", "at": "execute_at"}
"""The fields that these requests name differently."""


class SchedulerService:
    """Serves scheduler.v1; its events are messages of the route `events`."""

    name = SERVICE

    def __init__(self, verbs: Scheduler) -> None:
        self._verbs = verbs

    def handlers(self) -> dict[str, Handler]:
        unary, verbs = grpc.unary_unary_rpc_method_handler, self._verbs
        return {
            "Schedule": unary(verbs.unary(pb.ScheduleRequest, self.schedule, Scope.WRITE)),
            "Cancel": unary(verbs.unary(pb.CancelRequest, self.cancel, Scope.WRITE)),
        }

    async def schedule(self, request: pb.ScheduleRequest, caller: Caller) -> pb.ScheduleResponse:
        try:
            receipt = await self._verbs.put(_draft(request), caller)
        except (InvalidMessage, TooLarge) as exc:
            return pb.ScheduleResponse(status=_bad_request(exc))
        if receipt.duplicate:
            said = f"event {receipt.id!r} is known and is {receipt.state}; nothing was changed"
            return pb.ScheduleResponse(status=_status(common.RECORD_FOUND, said))
        return pb.ScheduleResponse(status=_status(common.SUCCESS, "scheduled"))

    async def cancel(self, request: pb.CancelRequest, caller: Caller) -> pb.CancelResponse:
        try:
            await self._verbs.cancel_message(check_id(request.event_id), caller)
        except InvalidMessage as exc:
            return pb.CancelResponse(status=_bad_request(exc))
        except UnknownMessage as exc:
            said = f"no event with id {exc.message_id!r}"
            return pb.CancelResponse(status=_status(common.NOT_FOUND, said))
        except AlreadyReleased as exc:
            return pb.CancelResponse(status=_status(common.CONFLICT, exc.message))
        return pb.CancelResponse(status=_status(common.SUCCESS, "cancelled"))


def _draft(request: pb.ScheduleRequest) -> BinaryDraft:
    """The draft of a request; InvalidMessage if a required field is missing or invalid."""
    if not request.event_id:
        raise InvalidMessage("event_id", "must be given")
    if request.execute_at <= 0:
        raise InvalidMessage("execute_at", "must be given, in epoch seconds")
    return BinaryDraft(
        id=request.event_id,
        route=EVENTS,
        body=request.payload,
        at_ms=check_range(request.execute_at * 1000, "execute_at"),
        topic=request.topic or None,
    )


def _bad_request(exc: PenstockError) -> common.Status:
    field = exc.field or ""
    reason = exc.message.removeprefix(f"{field}: ")
    return _status(common.BAD_REQUEST, f"{NAMES.get(field, field)}: {reason}")


def _status(code: common.StatusCode, message: str) -> common.Status:
    return common.Status(code=code, message=message)
