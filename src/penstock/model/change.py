"""What a caller wants changed of a waiting message: the JSON of `PATCH /v1/messages/{id}`."""

from __future__ import annotations

import msgspec

from penstock.model.draft import (
    check_headers,
    check_labels,
    check_priority,
    check_size,
    due_from,
    payload_bytes,
    wire_error,
)
from penstock.model.errors import InvalidMessage
from penstock.model.message import MAX_PAYLOAD, Labels
from penstock.model.outcome import Action, Amendment
from penstock.model.times import parse_moment


class Change(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields that are absent stay as they are."""

    at: str | None = None
    delay: float | str | None = None
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload_base64: str | None = None
    content_type: str | None = None
    headers: dict[str, str] | None = None
    expires: str | None = None
    priority: int | None = None
    labels: Labels | None = None


_decoder = msgspec.json.Decoder(Change)


def decode_change(body: bytes) -> Change:
    """JSON → Change, or an error that names the field."""
    try:
        return _decoder.decode(body)
    except (msgspec.ValidationError, msgspec.DecodeError, RecursionError) as exc:
        raise wire_error(exc) from exc


def check_change(
    message_id: str,
    change: Change,
    now: int,
    *,
    version: int | None = None,
    max_payload: int = MAX_PAYLOAD,
) -> Amendment:
    """A Change → what to ask of the store, or an error naming the field."""
    if change == Change():
        raise InvalidMessage("body", "nothing to change: give at, delay, payload, expires …")
    body = payload_bytes(change.payload, change.payload_base64, change.content_type)
    payload, content_type = (None, change.content_type) if body is None else body
    if payload is not None:
        check_size(payload, max_payload)
    if change.priority is not None:
        check_priority(change.priority)
    if change.headers is not None:
        check_headers(change.headers)
    if change.labels is not None:
        check_labels(change.labels)
    moved = change.at is not None or change.delay is not None
    return Amendment(
        action=Action.RESCHEDULE,
        id=message_id,
        version=version,
        due=due_from(change.at, change.delay, now) if moved else None,
        payload=payload,
        content_type=content_type,
        headers=change.headers,
        expires=None if change.expires is None else parse_moment(change.expires, "expires"),
        priority=change.priority,
        labels=change.labels,
    )
