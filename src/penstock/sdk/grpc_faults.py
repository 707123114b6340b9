"""A call that failed → the same exception the embedded engine raises."""

from __future__ import annotations

from typing import NamedTuple

import grpc
from google.rpc import error_details_pb2 as details
from grpc_status import rpc_status

from penstock.model.errors import PenstockError, ServerFault, TooLarge, Unreachable
from penstock.sdk.faults import Fault, Told, known_fault

DOMAIN = "penstock"
_CODE = grpc.StatusCode
_NOBODY = frozenset({_CODE.UNAVAILABLE, _CODE.DEADLINE_EXCEEDED, _CODE.CANCELLED})
_BUSY = frozenset({_CODE.UNAVAILABLE, _CODE.RESOURCE_EXHAUSTED})


class Failed(NamedTuple):
    """The error for the caller, and whether a retry may help."""

    fault: PenstockError
    busy: bool
    """The server said it did nothing, and that it may later."""
    unheard: bool
    """True if no server answered: the call may have been done."""
    retry_after: float | None


def failed(error: grpc.aio.AioRpcError, address: str, about_id: str | None) -> Failed:
    info, wait = _read(error)
    code, said = error.code(), error.details() or ""
    if info is not None:
        known = known_fault(_fault(info, said), code.value[0], about_id, wait)
        return Failed(known, code in _BUSY, False, wait)
    fault: PenstockError
    if code in _NOBODY:
        fault = Unreachable(_sentence(code, said, address))
        return Failed(fault, False, True, None)
    if code is _CODE.RESOURCE_EXHAUSTED:
        fault = TooLarge(f"the server refuses the request by its size ({said})")
    else:
        fault = ServerFault(f"{code.name} from {address}: {said}", status=code.value[0])
    return Failed(fault, False, False, None)


def _read(error: grpc.aio.AioRpcError) -> tuple[details.ErrorInfo | None, float | None]:
    """The reason a server of ours gives, and the seconds it asks to wait."""
    status = rpc_status.from_call(error)  # type: ignore[arg-type] # it has what is asked of it
    info, wait = details.ErrorInfo(), details.RetryInfo()
    found, asked = False, None
    for one in () if status is None else status.details:
        if one.Is(info.DESCRIPTOR):
            found = one.Unpack(info) and info.domain == DOMAIN
        elif one.Is(wait.DESCRIPTOR) and one.Unpack(wait):
            asked = wait.retry_delay.ToMilliseconds() / 1000
    return (info if found else None), asked


def _fault(info: details.ErrorInfo, said: str) -> Fault:
    facts = info.metadata
    return Fault(
        Told(info.reason.lower(), said, facts.get("field")),
        state=facts.get("state", ""),
        cancel_pending=facts.get("cancel_pending") == "true",
        version=int(facts.get("version", 0)),
    )


def _sentence(code: grpc.StatusCode, said: str, address: str) -> str:
    if code is _CODE.DEADLINE_EXCEEDED:
        return f"the server at {address} did not answer in time"
    return (
        f"no Penstock server answers at {address} ({said}): start one with `penstock serve`, or"
        " check the address"
    )
