"""What a status says beside its code."""

from __future__ import annotations

from typing import Any

import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status


async def refusal(call: Any) -> grpc.aio.AioRpcError:
    """The error a call ends with; it must."""
    try:
        answer = await call
    except grpc.aio.AioRpcError as exc:
        return exc
    raise AssertionError(f"it was answered: {answer}")


def detail(error: grpc.aio.AioRpcError, name: str) -> Any:
    """The detail of that kind (google.rpc); it must be there once."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type] # it has what is asked of it
    assert status is not None
    assert status.code == error.code().value[0]
    found = [one for one in status.details if one.type_url.endswith(f"/google.rpc.{name}")]
    assert len(found) == 1, status
    unpacked = getattr(error_details_pb2, name)()
    assert found[0].Unpack(unpacked)
    return unpacked


def field_of(error: grpc.aio.AioRpcError) -> str:
    """The field INVALID_ARGUMENT names."""
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error
    (violation,) = detail(error, "BadRequest").field_violations
    assert violation.description
    return str(violation.field)
