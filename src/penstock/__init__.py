"""Hold it, pace it, let it through: messages that go out later, slower or in turn."""

from importlib import import_module
from typing import TYPE_CHECKING

from penstock.version import __version__

if TYPE_CHECKING:
    from penstock.model.draft import Draft
    from penstock.model.errors import (
        AlreadyReleased,
        ConfigError,
        Forbidden,
        InvalidMessage,
        InvalidToken,
        Malformed,
        NoRoom,
        Overloaded,
        PenstockError,
        RoomClosed,
        ServerFault,
        SinkUnavailable,
        StoreCorrupt,
        StoreFailed,
        StoreUnavailable,
        TicketTaken,
        TokenUsed,
        TooLarge,
        Unauthorized,
        UnknownMessage,
        UnknownRoute,
        UnknownThing,
        Unreachable,
        VersionConflict,
    )
    from penstock.model.message import Event, Labels, Message, OnConflict
    from penstock.model.outcome import Dead, Delivered, Receipt, Reject, Retry, RetryLater
    from penstock.model.state import State
    from penstock.sdk.asked import draft
    from penstock.sdk.async_client import AsyncClient
    from penstock.sdk.client import Client
    from penstock.sdk.embedded import Engine
    from penstock.sdk.embedded import open_engine as open  # noqa: A004 - penstock.open(…) it is
    from penstock.sdk.grpc_client import GrpcClient
    from penstock.sdk.summary import Refusal, StreamSummary
    from penstock.settings import RouteSettings

_HOMES = {
    "penstock.model.draft": ("Draft",),
    "penstock.model.errors": (
        "AlreadyReleased",
        "ConfigError",
        "Forbidden",
        "InvalidMessage",
        "InvalidToken",
        "Malformed",
        "NoRoom",
        "Overloaded",
        "PenstockError",
        "RoomClosed",
        "ServerFault",
        "SinkUnavailable",
        "StoreCorrupt",
        "StoreFailed",
        "StoreUnavailable",
        "TicketTaken",
        "TokenUsed",
        "TooLarge",
        "Unauthorized",
        "UnknownMessage",
        "UnknownRoute",
        "UnknownThing",
        "Unreachable",
        "VersionConflict",
    ),
    "penstock.model.message": ("Event", "Labels", "Message", "OnConflict"),
    "penstock.model.outcome": ("Dead", "Delivered", "Receipt", "Reject", "Retry", "RetryLater"),
    "penstock.model.state": ("State",),
    "penstock.sdk.asked": ("draft",),
    "penstock.sdk.async_client": ("AsyncClient",),
    "penstock.sdk.client": ("Client",),
    "penstock.sdk.embedded": ("Engine", "open"),
    "penstock.sdk.grpc_client": ("GrpcClient",),
    "penstock.sdk.summary": ("Refusal", "StreamSummary"),
    "penstock.settings": ("RouteSettings",),
}
"""The module of each public name: imported on first use, since a command line or a client must not
load pydantic and a worker, nor a worker the clients' libraries.
"""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    module = _HOME_OF.get(name)
    if module is None:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    value: object = getattr(import_module(module), "open_engine" if name == "open" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


__all__ = [
    "AlreadyReleased",
    "AsyncClient",
    "Client",
    "ConfigError",
    "Dead",
    "Delivered",
    "Draft",
    "Engine",
    "Event",
    "Forbidden",
    "GrpcClient",
    "InvalidMessage",
    "InvalidToken",
    "Labels",
    "Malformed",
    "Message",
    "NoRoom",
    "OnConflict",
    "Overloaded",
    "PenstockError",
    "Receipt",
    "Refusal",
    "Reject",
    "Retry",
    "RetryLater",
    "RoomClosed",
    "RouteSettings",
    "ServerFault",
    "SinkUnavailable",
    "State",
    "StoreCorrupt",
    "StoreFailed",
    "StoreUnavailable",
    "StreamSummary",
    "TicketTaken",
    "TokenUsed",
    "TooLarge",
    "Unauthorized",
    "UnknownMessage",
    "UnknownRoute",
    "UnknownThing",
    "Unreachable",
    "VersionConflict",
    "__version__",
    "draft",
    "open",
]
