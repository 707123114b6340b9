"""A change to a waiting message as sent over the wire: the JSON of `PATCH`."""

from __future__ import annotations

import msgspec

from penstock.model.draft import (
    check_headers,
    check_labels,
    due_from,
    payload_bytes,
)
from penstock.model.errors import InvalidMessage, TooLarge
from penstock.model.message import MAX_PAYLOAD, Labels
from penstock.model.outcome import Action, Amendment
from penstock.model.times import parse_moment
from penstock.model.wire import read_json


class Patch(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields to change; absent (or null) fields stay. A null `expires` removes the expiry."""

    at: str | None = None
    delay: float | str | None = None
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload_base64: str | None = None
    content_type: str | None = None
    headers: dict[str, str] | None = None
    expires: str | msgspec.UnsetType | None = msgspec.UNSET
    priority: int | None = None
    labels: Labels | None = None


_decoder = msgspec.json.Decoder(Patch)


def decode_patch(body: bytes) -> Patch:
    """JSON → Patch, or an error that names the field."""
    return read_json(_decoder, body)


def check_patch(
    patch: Patch,
    message_id: str,
    version: int | None,
    now: int,
    *,
    max_payload: int = MAX_PAYLOAD,
) -> Amendment:
    """A Patch → an amendment the store may apply, or InvalidMessage / TooLarge with the field."""
    moved = patch.at is not None or patch.delay is not None
    body = payload_bytes(patch.payload, patch.payload_base64, patch.content_type)
    if body is not None and len(body[0]) > max_payload:
        raise TooLarge(
            f"payload: {len(body[0]):,} bytes, the limit is {max_payload:,}", field="payload"
        )
    if body is None and patch.content_type is not None:
        raise InvalidMessage("content_type", "changes only together with a payload")
    if patch.priority is not None and not 0 <= patch.priority <= 9:
        raise InvalidMessage("priority", "must be 0-9 (9 leaves first)")
    if patch.headers:
        check_headers(patch.headers)
    if patch.labels is not None:
        check_labels(patch.labels)
    amendment = Amendment(
        action=Action.RESCHEDULE,
        id=message_id,
        version=version,
        due=due_from(patch.at, patch.delay, now) if moved else None,
        payload=None if body is None else body[0],
        content_type=None if body is None else body[1],
        headers=patch.headers,
        expires=_expires(patch.expires),
        priority=patch.priority,
        labels=patch.labels,
    )
    if amendment == Amendment(action=Action.RESCHEDULE, id=message_id, version=version):
        raise InvalidMessage("body", "changes nothing; give at, delay, payload, headers …")
    return amendment


def _expires(asked: str | msgspec.UnsetType | None) -> int | None:
    if isinstance(asked, msgspec.UnsetType):
        return None
    return 0 if asked is None else parse_moment(asked, "expires")
