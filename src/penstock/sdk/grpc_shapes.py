"""Converts a program's arguments to requests of the proto, and its answers to the SDK's values."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration

from penstock.model.draft import Draft, payload_bytes
from penstock.model.errors import InvalidMessage, PenstockError
from penstock.model.message import JSON, Event, Message
from penstock.model.outcome import Receipt
from penstock.model.patch import Patch
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.model.times import parse_duration, parse_moment
from penstock.sdk.faults import Told, told
from penstock.v1 import scheduler_pb2 as pb
from penstock.v1.values import CONFLICTS, STATES, labels_of, labels_out, millis, moment

_STATES: dict[int, State] = {number: state for state, number in STATES.items()}


def request_of(draft: Draft) -> pb.ScheduleRequest:
    """A draft with its moments read here, under the rules the server has; InvalidMessage if not."""
    body = payload_bytes(draft.payload, draft.payload_base64, draft.content_type)
    payload, content_type = (b"null", draft.content_type or JSON) if body is None else body
    return pb.ScheduleRequest(
        id=draft.id,
        route=draft.route,
        key=draft.key,
        payload=payload,
        content_type=content_type,
        headers=draft.headers,
        at=None if draft.at is None else moment(parse_moment(draft.at)),
        delay=None if draft.delay is None else _duration(draft.delay),
        expires=None if draft.expires is None else moment(parse_moment(draft.expires, "expires")),
        priority=draft.priority,
        labels=None if draft.labels is None else labels_out(draft.labels),
        topic=draft.topic,
        on_conflict=CONFLICTS[draft.on_conflict],
    )


def change_request(message_id: str, change: Patch, version: int | None) -> pb.RescheduleRequest:
    """The request for these changes; the SDK's Patch never removes an expiry."""
    body = payload_bytes(change.payload, change.payload_base64, change.content_type)
    payload, content_type = (None, None) if body is None else body
    expires = change.expires if isinstance(change.expires, str) else None
    return pb.RescheduleRequest(
        id=message_id,
        version=version,
        at=None if change.at is None else moment(parse_moment(change.at)),
        delay=None if change.delay is None else _duration(change.delay),
        payload=payload,
        content_type=content_type,
        headers=change.headers,
        clear_headers=change.headers == {},
        expires=None if expires is None else moment(parse_moment(expires, "expires")),
        priority=change.priority,
        labels=None if change.labels is None else labels_out(change.labels),
    )


def dead_request(where: Filter, *, dry_run: bool) -> pb.DeleteDeadRequest:
    if where.state not in (None, State.DEAD):
        raise InvalidMessage("filter.state", "only dead messages can be deleted")
    return pb.DeleteDeadRequest(
        route=where.route,
        key=where.key,
        due_from=None if where.due_from is None else moment(where.due_from),
        due_to=None if where.due_to is None else moment(where.due_to),
        error=where.error,
        dry_run=dry_run,
    )


def receipt_from(answer: pb.ScheduleResponse) -> Receipt:
    return Receipt(answer.id, _STATES[answer.state], millis(answer.due, "due"), answer.duplicate)


def outcome_from(outcome: pb.Outcome) -> Receipt | PenstockError:
    if outcome.HasField("accepted"):
        return receipt_from(outcome.accepted)
    return error_from(outcome.refused)


def error_from(refused: pb.Refused) -> PenstockError:
    said = Told(refused.code, refused.message, refused.field or None)
    return told(said, refused.status)


def message_from(shown: pb.Message) -> Message:
    return Message(
        id=shown.id,
        route=shown.route,
        key=shown.key,
        payload=shown.payload,
        due=millis(shown.due, "due"),
        content_type=shown.content_type,
        headers=dict(shown.headers) or None,
        expires=millis(shown.expires, "expires") if shown.HasField("expires") else None,
        priority=shown.priority,
        labels=labels_of(shown.labels),
        topic=shown.topic or None,
        state=_STATES[shown.state],
        version=shown.version,
        attempt=shown.attempt,
        created=millis(shown.created, "created"),
        claimed=millis(shown.claimed, "claimed") if shown.HasField("claimed") else None,
        settled=millis(shown.settled, "settled") if shown.HasField("settled") else None,
        last_error=shown.last_error or None,
        cancel_pending=shown.cancel_pending,
    )


def timeline_from(shown: pb.Message) -> list[Event]:
    return [
        Event(
            at=millis(event.at, "at"),
            event=event.event,
            detail=event.detail or None,
            attempt=event.attempt if event.HasField("attempt") else None,
        )
        for event in shown.timeline
    ]


def _duration(delay: float | str) -> Duration:
    made = Duration()
    made.FromMilliseconds(parse_duration(delay))
    return made
