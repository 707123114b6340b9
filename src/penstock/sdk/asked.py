"""Converts a program's arguments to a Draft, for the embedded engine and the clients alike."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from typing import Any, TypeAlias

import msgspec

from penstock.model.draft import OCTETS, Draft, check_utf8
from penstock.model.errors import InvalidMessage, PenstockError
from penstock.model.message import DEFAULT_PRIORITY, DEFAULT_ROUTE, Labels, OnConflict
from penstock.model.patch import Patch
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.model.times import NAIVE, parse_moment
from penstock.model.wire import read_value

Moment: TypeAlias = datetime | str
"""An aware datetime, or RFC 3339 text with an offset."""
Delay: TypeAlias = timedelta | float | str
"""A timedelta, seconds, or text such as "15m"."""
LabelsLike: TypeAlias = Labels | Mapping[str, Any]
MessageLike: TypeAlias = Draft | Mapping[str, Any]
"""A draft, or the arguments of one: {"payload": …, "route": …, "delay": …}."""

MAX_PAGE = 1_000
"""Messages of one page at most."""

_encode = msgspec.json.Encoder().encode
BYTES = (bytes, bytearray, memoryview)
_DELAYS = (str, float, int)
_FIELDS = frozenset(Draft.__struct_fields__) - {"payload_base64"}


def draft(
    payload: object = None,
    *,
    route: str = DEFAULT_ROUTE,
    at: Moment | None = None,
    delay: Delay | None = None,
    id: str | None = None,  # noqa: A002 - the field's name everywhere else
    key: str | None = None,
    headers: Mapping[str, str] | None = None,
    expires: Moment | None = None,
    priority: int = DEFAULT_PRIORITY,
    labels: LabelsLike | None = None,
    topic: str | None = None,
    content_type: str | None = None,
    on_conflict: OnConflict | str = OnConflict.KEEP,
) -> Draft:
    """One message to schedule. `bytes` are sent as they are, anything else as JSON."""
    _check_kinds(route, id, key, topic, content_type, priority)
    raw, base64_text, content_type = _body(payload, content_type)
    return Draft(
        id=id,
        route=route,
        key=key,
        payload=raw,
        payload_base64=base64_text,
        content_type=content_type,
        headers=None if headers is None else headers_value(headers),
        at=None if at is None else moment_text(at, "at"),
        delay=None if delay is None else delay_value(delay),
        expires=None if expires is None else moment_text(expires, "expires"),
        priority=priority,
        labels=None if labels is None else labels_value(labels),
        topic=topic,
        on_conflict=conflict_value(on_conflict),
    )


def _check_kinds(
    route: object, id_: object, key: object, topic: object, content_type: object, priority: object
) -> None:
    """Check the types of these arguments, with a fast path since every message is checked."""
    if (
        isinstance(route, str)
        and (id_ is None or isinstance(id_, str))
        and (key is None or isinstance(key, str))
        and (topic is None or isinstance(topic, str))
        and (content_type is None or isinstance(content_type, str))
        and isinstance(priority, int)
    ):
        return
    texts = {"route": route, "id": id_, "key": key, "topic": topic, "content_type": content_type}
    for name, value in {**texts, "priority": priority}.items():
        check_kind(name, value)


def check_kind(name: str, value: object) -> None:
    """The same of one field."""
    if name == "priority":
        if not isinstance(value, int):
            raise InvalidMessage(name, f"must be a number from 0 to 9, not {_kind(value)}")
    elif not isinstance(value, str) and (value is not None or name == "route"):
        raise InvalidMessage(name, f"must be text, not {_kind(value)}")


def draft_for(verb: str, payload: object, fields: Mapping[str, Any]) -> Draft:
    """`draft` on behalf of a verb, whose own name appears in the error of a wrong argument."""
    check_names(verb, fields)
    return draft(payload, **fields)


def check_names(verb: str, fields: Mapping[str, Any]) -> None:
    """TypeError, as Python's own, if a verb was given an argument that it does not know."""
    if not _FIELDS.issuperset(fields):
        name = next(name for name in fields if name not in _FIELDS)
        close = get_close_matches(name, _FIELDS, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise TypeError(f"{verb}() got an unexpected keyword argument {name!r}{hint}")


def draft_of(_: object, message: Mapping[str, Any]) -> Draft:
    """`draft` of its arguments, the payload among them."""
    return draft(**message)


def drafted(
    message: object, make: Callable[[object, Mapping[str, Any]], Draft] = draft_of
) -> Draft | PenstockError:
    """A message of a batch, or its error: a bad one must not stop the good ones."""
    if type(message) is not dict:  # nearly all of them are: a faster check than for a Mapping
        if isinstance(message, Draft):
            return message
        if not isinstance(message, Mapping):
            return InvalidMessage(
                "message", f"must be a draft or a mapping of its fields, not {_kind(message)}"
            )
    if not _FIELDS.issuperset(message):
        unknown = min(set(message) - _FIELDS, key=str)
        return InvalidMessage(str(unknown), "no such field of a message")
    try:
        return make(message.get("payload"), message)
    except PenstockError as exc:
        return exc


def change_of(
    *,
    at: Moment | None = None,
    delay: Delay | None = None,
    payload: object = msgspec.UNSET,
    headers: Mapping[str, str] | None = None,
    expires: Moment | None = None,
    priority: int | None = None,
    labels: LabelsLike | None = None,
) -> Patch:
    """The changes to make to a waiting message."""
    change = Patch(
        at=None if at is None else moment_text(at, "at"),
        delay=None if delay is None else delay_value(delay),
        headers=None if headers is None else headers_value(headers),
        expires=msgspec.UNSET if expires is None else moment_text(expires, "expires"),
        priority=priority,
        labels=None if labels is None else labels_value(labels),
    )
    if payload is not msgspec.UNSET:
        change.payload, change.payload_base64, change.content_type = _body(payload, None)
    return change


def filter_of(
    *,
    state: State | str | None = None,
    route: str | None = None,
    key: str | None = None,
    due_from: Moment | None = None,
    due_to: Moment | None = None,
    error: str | None = None,
) -> Filter:
    """Words and moments as people give them → a Filter."""
    try:
        wanted = None if state is None else State(state)
    except ValueError as exc:
        known = ", ".join(State)
        raise InvalidMessage("state", f"{state!r} is not one of {known}") from exc
    return Filter(
        state=wanted,
        route=route,
        key=key,
        due_from=_millis(due_from, "due_from"),
        due_to=_millis(due_to, "due_to"),
        error=error,
    )


def page_size(limit: int) -> int:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidMessage("limit", f"must be 1-{MAX_PAGE}")
    return limit


def _body(
    payload: object, content_type: str | None
) -> tuple[msgspec.Raw | msgspec.UnsetType, str | None, str | None]:
    """(JSON, base64, content type): the two forms of payload the wire knows, and no third."""
    if isinstance(payload, BYTES):
        encoded = base64.b64encode(payload).decode()
        return msgspec.UNSET, encoded, content_type or OCTETS
    return msgspec.Raw(json_text(payload)), None, content_type


def json_text(payload: object) -> bytes:
    """Encode a payload that is not bytes as JSON."""
    try:
        text = _encode(payload)
        no_number = (
            b"null" in text and type(payload) is not str and _holds_no_number(_plain(payload))
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as exc:
        raise InvalidMessage("payload", f"cannot be written as JSON ({exc})") from exc
    if no_number:
        raise InvalidMessage("payload", "nan and infinity cannot be written as JSON")
    if not text.isascii():  # the caller's own JSON (msgspec.Raw) may be in it
        check_utf8(text)
    return text


def _holds_no_number(value: object) -> bool:
    """True if it contains a float that JSON cannot express; it would be encoded as null."""
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        return any(map(_holds_no_number, value.values()))
    return isinstance(value, list | tuple) and any(map(_holds_no_number, value))


def _plain(payload: object) -> object:
    """Convert the caller's own classes to plain values; encoded JSON (Raw) may contain null."""
    return msgspec.to_builtins(payload, enc_hook=lambda _: None)


def _millis(value: Moment | None, field: str) -> int | None:
    return None if value is None else parse_moment(moment_text(value, field), field)


def moment_text(value: Moment, field: str) -> str:
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidMessage(field, NAIVE)
        return value.isoformat()
    if not isinstance(value, str):
        raise InvalidMessage(field, f"must be a datetime or RFC 3339 text, not {_kind(value)}")
    return value


def delay_value(value: object, field: str = "delay") -> float | str:
    if isinstance(value, timedelta):
        return value / timedelta(seconds=1)
    if isinstance(value, float) and not math.isfinite(value):  # JSON would encode null: now
        raise InvalidMessage(field, "must be a finite number of seconds, not negative")
    if not isinstance(value, _DELAYS) or isinstance(value, bool):
        raise InvalidMessage(field, f"must be a timedelta, seconds or text, not {_kind(value)}")
    return value


def headers_value(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise InvalidMessage("headers", f"must be a mapping, not {_kind(value)}")
    for name, text in value.items():
        if not isinstance(name, str) or not isinstance(text, str):
            raise InvalidMessage("headers", "must have names and values that are text")
    return dict(value)


def labels_value(value: LabelsLike) -> Labels:
    if isinstance(value, Labels):
        return value
    if not isinstance(value, Mapping):
        raise InvalidMessage("labels", f"must be Labels or a mapping, not {_kind(value)}")
    try:
        return read_value(dict(value), Labels)
    except InvalidMessage as exc:
        raise InvalidMessage(f"labels.{exc.field}", exc.reason) from exc


def _kind(value: object) -> str:
    return type(value).__name__


def conflict_value(value: OnConflict | str) -> OnConflict:
    try:
        return OnConflict(value)
    except ValueError as exc:
        raise InvalidMessage("on_conflict", "must be keep, replace or earliest") from exc
