"""The status of each error on HTTP and on gRPC."""

from __future__ import annotations

from typing import NamedTuple

from penstock.model.errors import (
    AlreadyReleased,
    Forbidden,
    InvalidMessage,
    Malformed,
    NoRoom,
    Overloaded,
    PenstockError,
    RoomClosed,
    SinkUnavailable,
    StoreCorrupt,
    StoreUnavailable,
    TicketTaken,
    TokenUsed,
    TooLarge,
    Unauthorized,
    UnknownMessage,
    UnknownThing,
    VersionConflict,
)


class Status(NamedTuple):
    http: int
    grpc: str
    """The name of a gRPC status code."""


STATUSES: dict[type[PenstockError], Status] = {
    Malformed: Status(400, "INVALID_ARGUMENT"),
    Unauthorized: Status(401, "UNAUTHENTICATED"),
    Forbidden: Status(403, "PERMISSION_DENIED"),
    UnknownMessage: Status(404, "NOT_FOUND"),
    UnknownThing: Status(404, "NOT_FOUND"),
    AlreadyReleased: Status(409, "FAILED_PRECONDITION"),
    RoomClosed: Status(409, "FAILED_PRECONDITION"),
    TicketTaken: Status(409, "FAILED_PRECONDITION"),
    TokenUsed: Status(409, "FAILED_PRECONDITION"),
    # A test-and-set that failed: read again and decide again, as gRPC words it of ABORTED.
    VersionConflict: Status(412, "ABORTED"),
    TooLarge: Status(413, "INVALID_ARGUMENT"),
    InvalidMessage: Status(422, "INVALID_ARGUMENT"),  # UnknownRoute too
    Overloaded: Status(429, "RESOURCE_EXHAUSTED"),
    StoreCorrupt: Status(500, "DATA_LOSS"),
    SinkUnavailable: Status(503, "UNAVAILABLE"),
    StoreUnavailable: Status(503, "UNAVAILABLE"),
    NoRoom: Status(507, "RESOURCE_EXHAUSTED"),
}
INTERNAL = Status(500, "INTERNAL")


def status_of(kind: type[PenstockError]) -> Status:
    """The status of an error, or of its nearest base class that has one."""
    return next((STATUSES[base] for base in kind.__mro__ if base in STATUSES), INTERNAL)
