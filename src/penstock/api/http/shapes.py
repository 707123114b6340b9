"""The wire: what goes out and what comes in, beside the Draft and the Patch of the model."""

from __future__ import annotations

import re

import msgspec

from penstock.api.http.errors import ErrorInfo
from penstock.model.draft import WIRE_ERRORS, wire_error
from penstock.model.errors import InvalidMessage
from penstock.model.message import JSON, Event, Labels, Message
from penstock.model.outcome import Receipt
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.model.times import format_moment, parse_moment

_RATE = re.compile(r"(\d{1,9}(?:\.\d{1,6})?)/(s|m|h)", re.ASCII)
_PER = {"s": 1, "m": 60, "h": 3600}


class Accepted(msgspec.Struct, frozen=True, gc=False):
    """The answer to a put: it is durable."""

    id: str
    state: State
    due: str
    duplicate: bool


class Refused(msgspec.Struct, frozen=True):
    """The outcome of one item of a batch that was not taken."""

    id: str | None
    error: ErrorInfo


class EventOut(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a timeline."""

    at: str
    event: str
    detail: str | None
    attempt: int | None


class MessageOut(msgspec.Struct, frozen=True, kw_only=True):
    """A message as people and programs read it."""

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
    timeline: list[EventOut] | msgspec.UnsetType = msgspec.UNSET


class PageOut(msgspec.Struct, frozen=True):
    items: list[MessageOut]
    next: str | None


class FilterIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All that are given must match."""

    state: State | None = None
    route: str | None = None
    key: str | None = None
    due_from: str | None = None
    due_to: str | None = None
    error: str | None = None

    def as_filter(self, prefix: str = "filter.") -> Filter:
        return Filter(
            state=self.state,
            route=self.route,
            key=self.key,
            due_from=_moment(self.due_from, f"{prefix}due_from"),
            due_to=_moment(self.due_to, f"{prefix}due_to"),
            error=self.error,
        )


class BulkIn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which messages, how fast (redrive only), and whether only to count them."""

    filter: FilterIn
    rate: str | None = None
    dry_run: bool = False

    def per_second(self) -> float | None:
        return None if self.rate is None else parse_rate(self.rate)


class BulkOut(msgspec.Struct, frozen=True):
    matched: int
    done: int


_NO_LABELS = Labels()
_bulk_decoder = msgspec.json.Decoder(BulkIn)


def decode_bulk(body: bytes) -> BulkIn:
    try:
        bulk = _bulk_decoder.decode(body)
    except WIRE_ERRORS as exc:
        raise wire_error(exc) from exc
    bulk.per_second()  # a rate that is none is an error for a cancel, too
    return bulk


def parse_rate(text: str) -> float:
    """ "100/s", "90/m" or "10/h" → messages a second."""
    match = _RATE.fullmatch(text)
    rate = 0.0 if match is None else float(match[1]) / _PER[match[2]]
    if rate <= 0:
        raise InvalidMessage("rate", 'must be more than 0 a time, such as "100/s" or "30/m"')
    return rate


def accepted(receipt: Receipt) -> Accepted:
    return Accepted(receipt.id, receipt.state, format_moment(receipt.due), receipt.duplicate)


def message_out(message: Message, timeline: list[Event] | None = None) -> MessageOut:
    payload, payload_base64 = _payload(message)
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
        timeline=msgspec.UNSET if timeline is None else [_event(event) for event in timeline],
    )


def _event(event: Event) -> EventOut:
    return EventOut(
        at=format_moment(event.at), event=event.event, detail=event.detail, attempt=event.attempt
    )


def _payload(message: Message) -> tuple[msgspec.Raw | msgspec.UnsetType, bytes | msgspec.UnsetType]:
    """The caller's own JSON text where it is JSON; anything else as base64.

    A settled message that lost its payload shows neither.
    """
    if not message.payload and message.state is not State.SCHEDULED:
        return msgspec.UNSET, msgspec.UNSET
    if message.content_type.partition(";")[0].strip().lower() == JSON and _is_json(message.payload):
        return msgspec.Raw(message.payload), msgspec.UNSET
    return msgspec.UNSET, message.payload


def _is_json(payload: bytes) -> bool:
    try:
        msgspec.json.decode(payload, type=msgspec.Raw)  # syntax only: any number will do
        payload.decode()
    except WIRE_ERRORS:
        return False
    return True


def _text(moment: int | None) -> str | None:
    return None if moment is None else format_moment(moment)


def _moment(text: str | None, field: str) -> int | None:
    return None if text is None else parse_moment(text, field)
