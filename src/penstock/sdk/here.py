"""What a program passes in, for the engine in the same program.

As `asked.draft`, but nothing is written as text only to be read again: bytes stay bytes, and a
datetime becomes the moment it stands for.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from penstock.model.draft import OCTETS, BinaryDraft, check_utf8
from penstock.model.message import DEFAULT_PRIORITY, DEFAULT_ROUTE, JSON, OnConflict
from penstock.model.times import moment_millis
from penstock.sdk.asked import (
    BYTES,
    Delay,
    LabelsLike,
    Moment,
    check_kinds,
    conflict_value,
    delay_value,
    headers_value,
    json_text,
    labels_value,
    moment_text,
)


def local_draft(
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
) -> BinaryDraft:
    """One message to schedule here. `bytes` are sent as they are, anything else as JSON."""
    check_kinds(route, id, key, topic, content_type, priority)
    if isinstance(payload, BYTES):
        body, content_type = bytes(payload), content_type or OCTETS
    else:
        body, content_type = json_text(payload), JSON if content_type is None else content_type
        if not body.isascii():  # it may be somebody's own JSON (msgspec.Raw)
            check_utf8(body)
    at_ms = expires_ms = None
    if isinstance(at, datetime):
        at_ms, at = moment_millis(at, "at"), None
    elif at is not None:  # text is read where every text is
        at = moment_text(at, "at")
    if isinstance(expires, datetime):
        expires_ms, expires = moment_millis(expires, "expires"), None
    elif expires is not None:
        expires = moment_text(expires, "expires")
    return BinaryDraft(
        body=body,
        content_type=content_type,
        at=at,
        at_ms=at_ms,
        expires=expires,
        expires_ms=expires_ms,
        id=id,
        route=route,
        key=key,
        headers=None if headers is None else headers_value(headers),
        delay=None if delay is None else delay_value(delay),
        priority=priority,
        labels=None if labels is None else labels_value(labels),
        topic=topic,
        on_conflict=(
            on_conflict if type(on_conflict) is OnConflict else conflict_value(on_conflict)
        ),
    )
