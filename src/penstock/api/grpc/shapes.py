"""Converts messages of the proto to the model's values and back; an empty field counts as
absent.
"""

from __future__ import annotations

import base64

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from penstock.model.draft import BinaryDraft
from penstock.model.errors import InvalidMessage
from penstock.model.message import DEFAULT_PRIORITY, DEFAULT_ROUTE, Event, Labels, Message
from penstock.model.message import OnConflict as Conflict
from penstock.model.outcome import Receipt
from penstock.model.patch import Patch
from penstock.model.query import Filter
from penstock.model.times import format_moment
from penstock.v1 import scheduler_pb2 as pb
from penstock.v1.values import (
    CONFLICTS,
    MAX_NANOS,
    STATES,
    labels_of,
    labels_out,
    millis,
    moment,
)

_CONFLICTS = {
    pb.ON_CONFLICT_UNSPECIFIED: Conflict.KEEP,
    **{number: word for word, number in CONFLICTS.items()},
}
_SAYS_NO_CHANGE = {"id", "version"}
"""Fields of a RescheduleRequest that identify the message."""
_MAX_SECONDS = 315_576_000_000
"""The largest Duration: ten thousand years, by its own definition."""


def draft_of(asked: pb.ScheduleRequest) -> BinaryDraft:
    """The draft of a request; InvalidMessage names a field whose value is impossible."""
    conflict = _CONFLICTS.get(asked.on_conflict)
    if conflict is None:
        raise InvalidMessage("on_conflict", f"{asked.on_conflict} is not one of {_words()}")
    return BinaryDraft(
        id=asked.id or None,
        route=asked.route or DEFAULT_ROUTE,
        key=asked.key or None,
        body=asked.payload,
        content_type=asked.content_type or None,
        headers=dict(asked.headers) if asked.headers else None,
        at_ms=millis(asked.at, "at") if asked.HasField("at") else None,
        delay=seconds(asked.delay) if asked.HasField("delay") else None,
        expires_ms=millis(asked.expires, "expires") if asked.HasField("expires") else None,
        priority=asked.priority if asked.HasField("priority") else DEFAULT_PRIORITY,
        labels=labels_of(asked.labels) if asked.HasField("labels") else None,
        topic=asked.topic or None,
        on_conflict=conflict,
    )


def filter_of(asked: pb.DeleteDeadRequest) -> Filter:
    return Filter(
        route=asked.route or None,
        key=asked.key or None,
        due_from=millis(asked.due_from, "due_from") if asked.HasField("due_from") else None,
        due_to=millis(asked.due_to, "due_to") if asked.HasField("due_to") else None,
        error=asked.error or None,
    )


def patch_of(asked: pb.RescheduleRequest) -> Patch:
    """The changes that a request makes to a waiting message."""
    if {field.name for field, _ in asked.ListFields()} <= _SAYS_NO_CHANGE:
        # Named as a caller of gRPC knows it; the model's own word is of HTTP's body.
        raise InvalidMessage("at", "nothing is changed; give at, delay, payload, headers …")
    _check_clear("headers", asked.clear_headers, bool(asked.headers))
    _check_clear("expires", asked.clear_expires, asked.HasField("expires"))
    payload = asked.payload if asked.HasField("payload") else None
    change = Patch(
        at=_text(asked.at, "at") if asked.HasField("at") else None,
        delay=seconds(asked.delay) if asked.HasField("delay") else None,
        payload_base64=None if payload is None else base64.b64encode(payload).decode(),
        content_type=asked.content_type or None,
        headers={} if asked.clear_headers else dict(asked.headers) or None,
        priority=asked.priority if asked.HasField("priority") else None,
        labels=(labels_of(asked.labels) or Labels()) if asked.HasField("labels") else None,
    )
    if asked.clear_expires:
        change.expires = None
    elif asked.HasField("expires"):
        change.expires = _text(asked.expires, "expires")
    return change


def response_of(receipt: Receipt) -> pb.ScheduleResponse:
    return pb.ScheduleResponse(
        id=receipt.id,
        state=STATES[receipt.state],
        due=moment(receipt.due),
        duplicate=receipt.duplicate,
    )


def message_of(message: Message, timeline: list[Event] | None = None) -> pb.Message:
    """The message as it is stored; moments that have not occurred are unset."""
    return pb.Message(
        id=message.id,
        route=message.route,
        key=message.key,
        payload=message.payload,
        content_type=message.content_type,
        headers=message.headers,
        due=moment(message.due),
        expires=_moment(message.expires),
        priority=message.priority,
        labels=None if message.labels is None else labels_out(message.labels),
        topic=message.topic,
        state=STATES[message.state],
        version=message.version,
        attempt=message.attempt,
        last_error=message.last_error,
        created=moment(message.created),
        claimed=_moment(message.claimed),
        settled=_moment(message.settled),
        cancel_pending=message.cancel_pending,
        timeline=[_event(event) for event in timeline or ()],
    )


def seconds(span: Duration) -> float:
    """A Duration → seconds that round up to the same millisecond."""
    whole, nanos = span.seconds, span.nanos
    if whole < 0 or nanos < 0:
        raise InvalidMessage("delay", "must not be negative")
    if whole > _MAX_SECONDS or nanos > MAX_NANOS:
        raise InvalidMessage("delay", "is outside what a Duration can be")
    return (whole * 1000 - (-nanos // 1_000_000)) / 1000


def _moment(at: int | None) -> Timestamp | None:
    return None if at is None else moment(at)


def _text(at: Timestamp, field: str) -> str:
    return format_moment(millis(at, field))


def _event(event: Event) -> pb.Event:
    return pb.Event(
        at=moment(event.at), event=event.event, detail=event.detail, attempt=event.attempt
    )


def _check_clear(field: str, clear: bool, given: bool) -> None:
    if clear and given:
        raise InvalidMessage(field, f"give either {field} or clear_{field}")


def _words() -> str:
    return ", ".join(pb.OnConflict.keys())
