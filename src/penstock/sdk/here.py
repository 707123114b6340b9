"""Converts a program's arguments for the engine in the same program.

Like `asked.draft`, but nothing is encoded as text only to be decoded again: bytes stay bytes, and a
datetime becomes its moment. Only fields that are given are read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, TypeAlias

from penstock.model.draft import OCTETS, BinaryDraft
from penstock.model.message import JSON
from penstock.model.times import moment_millis
from penstock.sdk.asked import (
    BYTES,
    check_kind,
    conflict_value,
    delay_value,
    headers_value,
    json_text,
    labels_value,
    moment_text,
)


def local_draft(payload: object, fields: Mapping[str, Any]) -> BinaryDraft:
    """One message to schedule in this program. `bytes` are sent as they are, anything else as JSON.

    `fields` are those of MessageFields, and may include the payload.
    """
    at = fields.get("at")
    millis = moment_millis(at) if type(at) is datetime else None  # the usual form
    if type(payload) not in JSON_ONLY and isinstance(payload, BYTES):
        wanted = BinaryDraft(body=bytes(payload), content_type=OCTETS, at_ms=millis)
    else:
        wanted = BinaryDraft(body=json_text(payload), content_type=JSON, at_ms=millis)
    for name, value in fields.items():
        if name != "payload" and (name != "at" or millis is None):
            _SET[name](wanted, value)
    return wanted


def _moment(name: str) -> _Set:
    """Its milliseconds where they are known; text is read where every text is."""
    millis = f"{name}_ms"

    def put(wanted: BinaryDraft, value: Any) -> None:
        if isinstance(value, datetime):
            setattr(wanted, millis, moment_millis(value, name))
        elif value is not None:
            setattr(wanted, name, moment_text(value, name))

    return put


def _content_type(wanted: BinaryDraft, value: Any) -> None:
    check_kind("content_type", value)
    if value is not None and (value or wanted.content_type == JSON):
        wanted.content_type = value


def _plain(name: str) -> _Set:
    """Take the value unchanged, if it is of the right type."""

    def put(wanted: BinaryDraft, value: Any) -> None:
        check_kind(name, value)
        setattr(wanted, name, value)

    return put


def _read(name: str, read: Callable[[Any], object]) -> _Set:
    """Convert the value if it is given."""

    def put(wanted: BinaryDraft, value: Any) -> None:
        if value is not None:
            setattr(wanted, name, read(value))

    return put


def _on_conflict(wanted: BinaryDraft, value: Any) -> None:
    wanted.on_conflict = conflict_value(value)


JSON_ONLY = frozenset({str, dict, list, tuple, int, float, bool, type(None)})
"""Types that are certainly not bytes: a faster check than for those that are."""
_Set: TypeAlias = Callable[[BinaryDraft, Any], None]
_SET: dict[str, _Set] = {
    "at": _moment("at"),
    "expires": _moment("expires"),
    "content_type": _content_type,
    "delay": _read("delay", delay_value),
    "headers": _read("headers", headers_value),
    "labels": _read("labels", labels_value),
    "on_conflict": _on_conflict,
    **{name: _plain(name) for name in ("route", "id", "key", "topic", "priority")},
}
"""Field → the function that sets it."""
