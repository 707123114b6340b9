"""Selecting messages: the filter of lists and bulk changes, pages and figures."""

from __future__ import annotations

import base64
import binascii

import msgspec

from penstock.model.errors import Malformed
from penstock.model.message import Message
from penstock.model.state import State


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Every given field must match. `due_from` is inclusive, `due_to` exclusive."""

    state: State | None = None
    route: str | None = None
    key: str | None = None
    due_from: int | None = None
    due_to: int | None = None
    error: str | None = None
    """A substring of last_error."""

    def matches(self, message: Message) -> bool:
        return (
            self.state in (None, message.state)
            and self.route in (None, message.route)
            and self.key in (None, message.key)
            and (self.due_from is None or message.due >= self.due_from)
            and (self.due_to is None or message.due < self.due_to)
            and (self.error is None or self.error in (message.last_error or ""))
        )


class Cursor(msgspec.Struct, frozen=True, array_like=True):
    """The last message of a page; the next page starts after it."""

    due: int
    id: str


class Page(msgspec.Struct, frozen=True):
    """Messages in order of due, then id."""

    items: list[Message]
    next: Cursor | None = None
    cut: bool = False
    """True if the search reached its limit of records to read before the page was full."""


class RouteFigures(msgspec.Struct, kw_only=True):
    """The store's current figures for one route."""

    scheduled: int = 0
    overdue: int = 0
    leased: int = 0
    dead: int = 0
    next_due: int | None = None


class StoreFigures(msgspec.Struct, kw_only=True):
    """The store's current figures. Counts of settled messages are within the retention time."""

    routes: dict[str, RouteFigures]
    states: dict[State, int]


def encode_cursor(cursor: Cursor) -> str:
    return base64.urlsafe_b64encode(msgspec.msgpack.encode(cursor)).decode().rstrip("=")


def decode_cursor(text: str) -> Cursor:
    try:
        raw = base64.urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        return msgspec.msgpack.decode(raw, type=Cursor)
    except (binascii.Error, ValueError, msgspec.MsgspecError) as exc:
        raise Malformed("cursor: not one that a list returned", field="cursor") from exc
