"""Converts an error answer to the exception that the embedded engine raises."""

from __future__ import annotations

import msgspec

from penstock.model.errors import (
    AlreadyReleased,
    Forbidden,
    InvalidMessage,
    InvalidToken,
    Malformed,
    NoRoom,
    Overloaded,
    PenstockError,
    RoomClosed,
    ServerFault,
    StoreCorrupt,
    StoreUnavailable,
    TicketTaken,
    TokenUsed,
    TooLarge,
    Unauthorized,
    UnknownMessage,
    UnknownRoute,
    UnknownThing,
    VersionConflict,
)


class Told(msgspec.Struct, frozen=True):
    """The error of a server's answer."""

    code: str
    message: str
    field: str | None = None


class Fault(msgspec.Struct, frozen=True):
    """The body of an error, with the facts that stand beside it."""

    error: Told
    state: str = ""
    cancel_pending: bool = False
    version: int = 0


_decode = msgspec.json.Decoder(Fault).decode
_PLAIN: dict[str, type[PenstockError]] = {
    kind.code: kind
    for kind in (
        *(Forbidden, InvalidToken, Malformed, NoRoom, RoomClosed, StoreCorrupt),
        *(TicketTaken, TokenUsed, TooLarge, Unauthorized),
    )
}


def fault_of(
    status: int,
    body: bytes,
    about_id: str | None = None,
    retry_after: float | None = None,
    kind: str = "message",
) -> PenstockError:
    """The error of an answer; `about_id` is the message, or the rule, of the request."""
    try:
        fault = _decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError):
        said = body[:200].decode(errors="replace").strip()
        return ServerFault(
            f"HTTP {status} from something that is not Penstock: {said!r}", status=status
        )
    return known_fault(fault, status, about_id, retry_after, kind)


def known_fault(
    fault: Fault,
    status: int,
    about_id: str | None,
    retry_after: float | None,
    kind: str = "message",
) -> PenstockError:
    """The error of a Penstock server's answer, on HTTP or gRPC."""
    match fault.error.code:
        case AlreadyReleased.code:
            return AlreadyReleased(about_id or "", fault.state, cancel_pending=fault.cancel_pending)
        case VersionConflict.code:
            return VersionConflict(about_id or "", fault.version, kind=kind)
        case UnknownMessage.code if about_id is not None and kind == "message":
            return UnknownMessage(about_id)
    return told(fault.error, status, retry_after)


def told(error: Told, status: int = 500, retry_after: float | None = None) -> PenstockError:
    """The error in words alone: also that of one item of a batch."""
    wait = 1.0 if retry_after is None else retry_after
    match error.code:
        case UnknownRoute.code | InvalidMessage.code:
            field = error.field or "body"
            kind = UnknownRoute if error.code == UnknownRoute.code else InvalidMessage
            invalid = kind.__new__(kind)
            InvalidMessage.__init__(invalid, field, error.message.removeprefix(f"{field}: "))
            return invalid
        case Overloaded.code:
            return Overloaded(error.message, retry_after=wait)
        case StoreUnavailable.code:
            return StoreUnavailable(error.message, retry_after=wait)
        case UnknownThing.code:
            return UnknownThing(error.message, field=error.field)
    plain = _PLAIN.get(error.code)
    if plain is not None:
        return plain(error.message, field=error.field)
    return ServerFault(error.message, status=status, field=error.field)
