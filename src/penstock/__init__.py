"""Hold it, pace it, let it through: messages that go out later, slower or in turn."""

from penstock.model.draft import Draft
from penstock.model.errors import (
    AlreadyReleased,
    ConfigError,
    Forbidden,
    InvalidMessage,
    Malformed,
    Overloaded,
    PenstockError,
    StoreCorrupt,
    StoreUnavailable,
    TooLarge,
    Unauthorized,
    UnknownMessage,
    UnknownRoute,
    UnknownThing,
    VersionConflict,
)
from penstock.model.message import Event, Labels, Message, OnConflict
from penstock.model.outcome import Dead, Delivered, Receipt, Retry
from penstock.model.state import State
from penstock.sdk.asked import draft
from penstock.sdk.embedded import Engine
from penstock.sdk.embedded import open_engine as open  # noqa: A004 - penstock.open(…) it is
from penstock.settings import RouteSettings

__all__ = [
    "AlreadyReleased",
    "ConfigError",
    "Dead",
    "Delivered",
    "Draft",
    "Engine",
    "Event",
    "Forbidden",
    "InvalidMessage",
    "Labels",
    "Malformed",
    "Message",
    "OnConflict",
    "Overloaded",
    "PenstockError",
    "Receipt",
    "Retry",
    "RouteSettings",
    "State",
    "StoreCorrupt",
    "StoreUnavailable",
    "TooLarge",
    "Unauthorized",
    "UnknownMessage",
    "UnknownRoute",
    "UnknownThing",
    "VersionConflict",
    "draft",
    "open",
]
