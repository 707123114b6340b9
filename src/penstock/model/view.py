"""A message as shown to callers: the JSON of the HTTP API and of `--json`."""

from __future__ import annotations

from typing import Literal

import msgspec

from penstock.model.decision import Reason, reason_of, verdict_of
from penstock.model.message import JSON, Event, Labels, Message
from penstock.model.outcome import Receipt
from penstock.model.state import State
from penstock.model.times import format_moment, parse_moment
from penstock.model.verdict import Decided, Verdict
from penstock.model.wire import WIRE_ERRORS


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The answer to a put: the message is durable."""

    id: str
    state: State
    due: str
    duplicate: bool


class EventOut(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a timeline."""

    at: str
    event: str
    detail: str | None
    attempt: int | None


class MessageOut(msgspec.Struct, frozen=True, kw_only=True):
    """A message with its moments as RFC 3339 in UTC."""

    id: str
    route: str
    key: str
    payload: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    payload_base64: bytes | msgspec.UnsetType = msgspec.UNSET
    content_type: str
    headers: dict[str, str]
    due: str
    expires: str | None
    priority: int
    labels: Labels
    topic: str | None
    state: State
    version: int
    attempt: int
    last_error: str | None
    created: str
    claimed: str | None
    settled: str | None
    cancel_pending: bool | msgspec.UnsetType = msgspec.UNSET
    deleted: bool | msgspec.UnsetType = msgspec.UNSET
    """True in the answer to deleting a dead message: the fields show its last state."""
    verdict: Verdict | msgspec.UnsetType = msgspec.UNSET
    """The last verdict; absent before the first."""
    reason: Reason | msgspec.UnsetType | None = msgspec.UNSET
    timeline: list[EventOut] | msgspec.UnsetType = msgspec.UNSET


class PageOut(msgspec.Struct, frozen=True):
    """Messages in order of due; `next` is the cursor of the following page."""

    items: list[MessageOut]
    next: str | None
    short: Literal["work", "size"] | msgspec.UnsetType = msgspec.UNSET
    """Why the page has fewer than `limit` although more may follow: `work`, the search read as many
    messages as one page may and few of them matched; `size`, the page has about 4 MB of payload."""


_NO_LABELS = Labels()


class BulkResult(msgspec.Struct, frozen=True):
    """How many messages matched the filter, and how many were changed."""

    matched: int
    done: int


class Erased(msgspec.Struct, frozen=True, kw_only=True):
    """How many messages of a key were removed, and how many are left."""

    key: str
    messages: int
    counters: int
    pending: int
    """Messages being sent: a worker removes them when their leases have ended."""
    next: str | None = None
    """The cursor of the next call; None if everything was searched."""

    def and_then(self, following: Erased) -> Erased:
        """The sum of both calls, with the later one's cursor."""
        return Erased(
            key=self.key,
            messages=self.messages + following.messages,
            counters=self.counters + following.counters,
            pending=self.pending + following.pending,
            next=following.next,
        )


def accepted(receipt: Receipt) -> Accepted:
    return Accepted(receipt.id, receipt.state, format_moment(receipt.due), receipt.duplicate)


def receipt_of(answer: Accepted) -> Receipt:
    return Receipt(answer.id, answer.state, parse_moment(answer.due, "due"), answer.duplicate)


def message_out(message: Message, timeline: list[Event] | None = None) -> MessageOut:
    payload, payload_base64 = _payload(message)
    verdict = verdict_of(message)
    return MessageOut(
        id=message.id,
        route=message.route,
        key=message.key,
        payload=payload,
        payload_base64=payload_base64,
        content_type=message.content_type,
        headers=message.headers or {},
        due=format_moment(message.due),
        expires=_text(message.expires),
        priority=message.priority,
        labels=message.labels or _NO_LABELS,
        topic=message.topic,
        state=message.state,
        version=message.version,
        attempt=message.attempt,
        last_error=message.last_error,
        created=format_moment(message.created),
        claimed=_text(message.claimed),
        settled=_text(message.settled),
        cancel_pending=message.cancel_pending or msgspec.UNSET,
        verdict=verdict or msgspec.UNSET,
        reason=reason_of(message) if verdict else msgspec.UNSET,
        timeline=msgspec.UNSET if timeline is None else [_event_out(event) for event in timeline],
    )


def message_of(shown: MessageOut) -> Message:
    """The Message that a client returns, from its JSON form."""
    return Message(
        id=shown.id,
        route=shown.route,
        key=shown.key,
        payload=_bytes(shown),
        due=parse_moment(shown.due, "due"),
        content_type=shown.content_type,
        headers=shown.headers or None,
        expires=_millis(shown.expires),
        priority=shown.priority,
        labels=None if shown.labels == _NO_LABELS else shown.labels,
        topic=shown.topic,
        state=shown.state,
        version=shown.version,
        attempt=shown.attempt,
        created=parse_moment(shown.created, "created"),
        claimed=_millis(shown.claimed),
        settled=_millis(shown.settled),
        last_error=shown.last_error,
        cancel_pending=shown.cancel_pending is True,
        decided=_decided(shown),
    )


def page_of(shown: PageOut) -> tuple[list[Message], str | None]:
    return [message_of(item) for item in shown.items], shown.next


def _decided(shown: MessageOut) -> Decided | None:
    """The last refusal; None if the message's last decision allowed it."""
    if not isinstance(shown.verdict, Verdict) or not isinstance(shown.reason, Reason):
        return None
    until = parse_moment(shown.due, "due") if shown.verdict is Verdict.DEFER else None
    return Decided(shown.verdict, shown.reason.policy, shown.reason.detail, until)


def timeline_of(shown: MessageOut) -> list[Event]:
    if shown.timeline is msgspec.UNSET:
        return []
    return [
        Event(
            at=parse_moment(event.at, "at"),
            event=event.event,
            detail=event.detail,
            attempt=event.attempt,
        )
        for event in shown.timeline
    ]


def _event_out(event: Event) -> EventOut:
    return EventOut(
        at=format_moment(event.at), event=event.event, detail=event.detail, attempt=event.attempt
    )


def _payload(message: Message) -> tuple[msgspec.Raw | msgspec.UnsetType, bytes | msgspec.UnsetType]:
    """The caller's own JSON text if the payload is JSON; anything else as base64.

    A settled message that lost its payload shows neither.
    """
    if not message.payload and message.state is not State.SCHEDULED:
        return msgspec.UNSET, msgspec.UNSET
    if message.content_type.partition(";")[0].strip().lower() == JSON and _is_json(message.payload):
        return msgspec.Raw(message.payload), msgspec.UNSET
    return msgspec.UNSET, message.payload


def _bytes(shown: MessageOut) -> bytes:
    if shown.payload is not msgspec.UNSET:
        return bytes(shown.payload)
    return b"" if shown.payload_base64 is msgspec.UNSET else shown.payload_base64


def _is_json(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)  # syntax only: any number will do
        payload.decode()
    except WIRE_ERRORS:
        return False
    return True


def _text(moment: int | None) -> str | None:
    return None if moment is None else format_moment(moment)


def _millis(text: str | None) -> int | None:
    return None if text is None else parse_moment(text)
