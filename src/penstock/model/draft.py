"""A caller's message as sent over the wire: the JSON of `POST /v1/messages`."""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec

from penstock.model.errors import InvalidMessage, Malformed, TooLarge
from penstock.model.identity import IdMaker
from penstock.model.message import (
    DEFAULT_PRIORITY,
    DEFAULT_ROUTE,
    JSON,
    MAX_PAYLOAD,
    Labels,
    NewMessage,
    OnConflict,
)
from penstock.model.times import MAX_TIME, parse_duration, parse_moment
from penstock.model.wire import WIRE_ERRORS, wire_error
from penstock.model.zone import is_zone

MAX_ID = 200
MAX_KEY = 512
MAX_HEADERS = 64
MAX_HEADER_NAME = 128
MAX_HEADER_VALUE = 4096
MAX_LABEL = 200
MAX_TAGS = 32
MAX_KEYS = 1_000
"""Most further keys of one message."""
RESERVED_HEADERS = ("penstock-", "webhook-")
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_NULL = b"null"
_KEEP = OnConflict.KEEP  # a global is faster to read than an attribute of an enumeration
OCTETS = "application/octet-stream"
"""The content type of bytes for which the caller names none."""


class Draft(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, gc=False):
    """A message before it is checked. `payload` keeps the caller's own bytes."""

    id: str | None = None
    route: str = DEFAULT_ROUTE
    key: str | None = None
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload_base64: str | None = None
    content_type: str | None = None
    headers: dict[str, str] | None = None
    at: str | None = None
    delay: float | str | None = None
    expires: str | None = None
    priority: int = DEFAULT_PRIORITY
    labels: Labels | None = None
    topic: str | None = None
    on_conflict: OnConflict = OnConflict.KEEP


class BlockedDraft(Draft, kw_only=True, gc=False):
    """A message that the caller has decided against: recorded with the reason, never sent.

    Not part of the wire format: a JSON draft cannot set this.
    """

    blocked: str


class DeferredDraft(Draft, kw_only=True, gc=False):
    """A message that the caller has deferred: it may expire before it is due, and is decided then.

    Not part of the wire format either: a JSON draft with such an expiry is a mistake.
    """


class BinaryDraft(Draft, kw_only=True, gc=False):
    """A message whose payload and times are already bytes and milliseconds: nothing to decode.

    `body` stands for `payload`, which stays unset; `at_ms` and `expires_ms` win over `at` and
    `expires`. Not part of the JSON wire format either.
    """

    body: bytes
    at_ms: int | None = None
    expires_ms: int | None = None


def block(draft: Draft, reason: str) -> BlockedDraft:
    """A copy of the draft that is recorded as blocked and never sent."""
    fields: Any = {name: getattr(draft, name) for name in Draft.__struct_fields__}
    return BlockedDraft(**fields, blocked=reason)


_decoder = msgspec.json.Decoder(Draft)
_list_decoder = msgspec.json.Decoder(list[Draft])


def decode_draft(body: bytes | memoryview) -> Draft:
    """JSON → Draft, or an error that names the field."""
    try:
        return _decoder.decode(body)
    except WIRE_ERRORS as exc:
        raise wire_error(exc, Draft) from exc


def decode_drafts(body: bytes | bytearray, *, lines: bool) -> list[Draft] | None:
    """Decode many drafts, a JSON array or lines of JSON; None if any of them is invalid."""
    try:
        return _decoder.decode_lines(body) if lines else _list_decoder.decode(body)
    except WIRE_ERRORS:
        return None


def is_id(text: str) -> bool:
    """Whether the text is 1–200 printable ASCII characters."""
    return 1 <= len(text) <= MAX_ID and text.isascii() and text.isprintable()


def is_key(text: str) -> bool:
    """Whether the text is 1–512 printable characters of any script."""
    return 1 <= len(text) <= MAX_KEY and text.isprintable()


def check_draft(
    draft: Draft, now: int, ids: IdMaker, *, max_payload: int = MAX_PAYLOAD
) -> NewMessage:
    """A Draft → a message that may be stored, or InvalidMessage / TooLarge naming the field.

    `now` is the store's: a delay counts from it, and a past moment becomes `now`.
    """
    if type(draft) is BinaryDraft and draft.content_type is JSON and draft.at_ms is not None:
        message = _validate_plain(draft, draft.at_ms, now, ids, max_payload)
        if message is not None:
            return message
    return _validate(draft, now, ids, max_payload)


def _validate(draft: Draft, now: int, ids: IdMaker, max_payload: int) -> NewMessage:
    """Validate every field."""
    message_id = draft.id
    if message_id is None:
        message_id = ids.make(now)
    elif not is_id(message_id):
        raise InvalidMessage("id", "must be 1-200 printable ASCII characters")
    key = draft.key
    if key is None:
        key = message_id
    elif not is_key(key):
        raise InvalidMessage("key", "must be 1-512 printable characters")
    at: str | int | None = draft.at
    expires = None
    if type(draft) is BinaryDraft:
        payload, expires = draft.body, draft.expires_ms
        content_type = OCTETS if draft.content_type is None else draft.content_type
        if content_type is not JSON:  # the JSON constant needs no check
            _check_content_type(content_type)
        if draft.at_ms is not None:
            at = draft.at_ms
    else:
        payload, content_type = _body(draft)
    if len(payload) > max_payload:
        check_size(payload, max_payload)
    if expires is None and draft.expires is not None:
        expires = parse_moment(draft.expires, "expires")
    due = (
        max(now, at)
        if isinstance(at, int) and draft.delay is None
        else due_from(at, draft.delay, now)
    )
    if expires is not None and expires <= due and type(draft) is not DeferredDraft:
        raise InvalidMessage("expires", "must be after the moment the message is due")
    if (
        draft.headers
        or draft.labels is not None
        or draft.topic is not None
        or not 0 <= draft.priority <= 9
    ):
        _check_rare(draft)
    return NewMessage(  # in the order of its fields: this runs once for every message accepted
        message_id,
        draft.route,
        key,
        payload,
        due,
        content_type,
        draft.headers or None,
        expires,
        draft.priority,
        draft.labels,
        draft.topic,
        draft.on_conflict,
        draft.blocked if type(draft) is BlockedDraft else None,
    )


def _validate_plain(
    draft: BinaryDraft, at: int, now: int, ids: IdMaker, max_payload: int
) -> NewMessage | None:
    """Fast path: only payload, key and due, as JSON; None if anything else is set."""
    payload, key = draft.body, draft.key
    if (
        draft.id is not None
        or len(payload) > max_payload
        or draft.delay is not None
        or draft.expires is not None
        or draft.expires_ms is not None
        or draft.headers
        or draft.labels is not None
        or draft.topic is not None
        or draft.priority != DEFAULT_PRIORITY
        or draft.on_conflict is not _KEEP
        or not (key is None or is_key(key))
    ):
        return None
    message_id = ids.make(now)
    due = at if at > now else now  # noqa: FURB136 - a call of max takes longer
    return NewMessage(message_id, draft.route, key or message_id, payload, due)


def _check_rare(draft: Draft) -> None:
    """Validate the fields that few messages set."""
    check_priority(draft.priority)
    if draft.headers:
        check_headers(draft.headers)
    if draft.labels is not None:
        check_labels(draft.labels)
    if draft.topic is not None and not is_key(draft.topic):
        raise InvalidMessage("topic", "must be 1-512 printable characters")


def due_from(at: str | int | None, delay: float | str | None, now: int) -> int:
    """`at` (text or epoch ms) or `delay` → epoch ms; `now` if neither is given or `at` is past."""
    if delay is not None:
        if at is not None:
            raise InvalidMessage("delay", "give either at or delay, not both")
        due = now + parse_duration(delay)
        if due > MAX_TIME:
            raise InvalidMessage("delay", "is outside 1970-01-01 … 9999-12-31")
        return due
    if at is None:
        return now
    return max(now, parse_moment(at) if isinstance(at, str) else at)


def payload_bytes(
    payload: msgspec.Raw | msgspec.UnsetType, payload_base64: str | None, content_type: str | None
) -> tuple[bytes, str] | None:
    """The body and its content type, or None if neither form of payload was given."""
    _check_content_type(content_type)
    if payload_base64 is not None:
        if payload is not msgspec.UNSET:
            raise InvalidMessage("payload_base64", "give either payload or payload_base64")
        try:
            raw = base64.b64decode(payload_base64, validate=True)
        except (binascii.Error, ValueError) as exc:
            raise InvalidMessage("payload_base64", f"is not base64 ({exc})") from exc
        return raw, content_type or OCTETS
    if payload is msgspec.UNSET:
        return None
    raw = bytes(payload)
    if not raw.isascii():
        check_utf8(raw)
    return raw, content_type or JSON


def is_content_type(text: str) -> bool:
    """Whether the text is 1-200 printable ASCII characters."""
    return 1 <= len(text) <= 200 and text.isascii() and text.isprintable()


def _check_content_type(content_type: str | None) -> None:
    if content_type is not None and not is_content_type(content_type):
        raise InvalidMessage("content_type", "must be 1-200 printable ASCII characters")


def check_utf8(raw: bytes) -> None:
    """Check that raw JSON is UTF-8: decoding skipped the insides of its strings."""
    try:
        raw.decode()
    except UnicodeDecodeError as exc:
        raise Malformed("payload: not valid JSON: not UTF-8", field="payload") from exc


def _body(draft: Draft) -> tuple[bytes, str]:
    if draft.content_type is None and draft.payload_base64 is None and draft.payload:
        raw = bytes(draft.payload)  # nearly every draft: JSON without a content type
        if raw.isascii():
            return raw, JSON
    body = payload_bytes(draft.payload, draft.payload_base64, draft.content_type)
    return (_NULL, draft.content_type or JSON) if body is None else body


def check_size(payload: bytes, max_payload: int) -> None:
    if len(payload) > max_payload:
        raise TooLarge(
            f"payload: {len(payload):,} bytes, the limit is {max_payload:,}", field="payload"
        )


def check_priority(priority: int) -> None:
    if not 0 <= priority <= 9:
        raise InvalidMessage("priority", "must be 0-9 (9 leaves first)")


def check_headers(headers: dict[str, str]) -> None:
    if len(headers) > MAX_HEADERS:
        raise InvalidMessage("headers", f"has {len(headers)} entries, the limit is {MAX_HEADERS}")
    for name, value in headers.items():
        check_header(name, value)


def check_header(name: str, value: str) -> None:
    if not 1 <= len(name) <= MAX_HEADER_NAME or not _TOKEN.issuperset(name):
        raise InvalidMessage(
            "headers", f"the name {name[:50]!r} must be 1-{MAX_HEADER_NAME} token characters"
        )
    if name.lower().startswith(RESERVED_HEADERS):
        raise InvalidMessage("headers", f"the name {name!r} is reserved")
    if len(value) > MAX_HEADER_VALUE:
        raise InvalidMessage(f"headers.{name}", f"is longer than {MAX_HEADER_VALUE} characters")
    if not value.isprintable():
        raise InvalidMessage(f"headers.{name}", "must not contain control characters")


def check_labels(labels: Labels) -> None:
    named = (("channel", labels.channel), ("campaign", labels.campaign), ("class", labels.class_))
    for name, value in named:
        if value is not None:
            _check_label(f"labels.{name}", value)
    if len(labels.tags) > MAX_TAGS:
        raise InvalidMessage("labels.tags", f"has more than {MAX_TAGS} entries")
    for tag in labels.tags:
        _check_label("labels.tags", tag)
    if labels.tz is not None and not is_zone(labels.tz):
        raise InvalidMessage("labels.tz", f"{labels.tz[:50]!r} is not an IANA time zone")
    if labels.keys:
        _check_keys(labels.keys)


def _check_keys(keys: tuple[str, ...]) -> None:
    if len(keys) > MAX_KEYS:
        raise InvalidMessage("labels.keys", f"has {len(keys):,} entries, the limit is {MAX_KEYS:,}")
    if not all(map(is_key, keys)):
        raise InvalidMessage("labels.keys", "must be texts of 1-512 printable characters")


def _check_label(field: str, value: str) -> None:
    if not 1 <= len(value) <= MAX_LABEL or not value.isprintable():
        raise InvalidMessage(field, f"must be 1-{MAX_LABEL} printable characters")
