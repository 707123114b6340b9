"""An error → its status, with details a program can act on."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Never, TypeAlias

import grpc
from google.protobuf.any_pb2 import Any as Packed
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message as Proto
from google.rpc import error_details_pb2 as details
from google.rpc.status_pb2 import Status

from penstock.api.statuses import status_of
from penstock.model.errors import (
    AlreadyReleased,
    Malformed,
    Overloaded,
    PenstockError,
    StoreUnavailable,
    VersionConflict,
)
from penstock.v1 import scheduler_pb2 as pb

log = logging.getLogger("penstock.grpc")

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"
"""Requests and answers are bytes: encoding them is our work, not the library's."""

DOMAIN = "penstock"
"""The domain of every ErrorInfo."""
DETAILS = "grpc-status-details-bin"
_RETRY_AFTER = (Overloaded, StoreUnavailable)


def code_of(exc: PenstockError) -> grpc.StatusCode:
    return grpc.StatusCode[status_of(type(exc)).grpc]


async def refuse(context: Context, exc: PenstockError) -> Never:
    """End the call with the error's status and details."""
    code = code_of(exc)
    status = Status(code=code.value[0], message=exc.message)
    for detail in _details(exc, code):
        packed = Packed()
        packed.Pack(detail)
        status.details.append(packed)
    await context.abort(code, exc.message, ((DETAILS, status.SerializeToString()),))


async def fail(context: Context, exc: BaseException, call: str) -> Never:
    """End the call with the error's status; an unexpected fault is logged and its text not sent."""
    log.error(
        "gRPC %s failed with an unexpected error and was answered INTERNAL", call, exc_info=exc
    )
    await context.abort(
        grpc.StatusCode.INTERNAL, "an unexpected fault; the server's log has it", ()
    )


def refused(exc: PenstockError, index: int, given_id: str) -> pb.Refused:
    """The same for one message of many."""
    return pb.Refused(
        index=index,
        id=given_id,
        status=code_of(exc).value[0],
        code=exc.code,
        message=exc.message,
        field=exc.field,
    )


def unreadable() -> Malformed:
    return Malformed("not a message of this call: the bytes cannot be decoded")


def _details(exc: PenstockError, code: grpc.StatusCode) -> Iterator[Proto]:
    yield details.ErrorInfo(reason=exc.code.upper(), domain=DOMAIN, metadata=_facts(exc))
    if code is grpc.StatusCode.INVALID_ARGUMENT and exc.field is not None:
        reason = exc.message.removeprefix(f"{exc.field}: ")
        violation = details.BadRequest.FieldViolation(field=exc.field, description=reason)
        yield details.BadRequest(field_violations=[violation])
    if isinstance(exc, _RETRY_AFTER):
        wait = Duration()
        wait.FromMilliseconds(int(exc.retry_after * 1000))
        yield details.RetryInfo(retry_delay=wait)


def _facts(exc: PenstockError) -> dict[str, str]:
    facts = {} if exc.field is None else {"field": exc.field}
    if isinstance(exc, AlreadyReleased):
        facts["state"] = str(exc.state)
        facts["cancel_pending"] = str(exc.cancel_pending).lower()
    elif isinstance(exc, VersionConflict):
        facts["version"] = str(exc.version)
    return facts
