"""Converts rows to messages and back: usual values are stored as NULL, which costs no space or
time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any, Final

import msgspec

from penstock.model.lifecycle import Record
from penstock.model.message import JSON, Event, Labels, Message, NewMessage
from penstock.model.state import State
from penstock.model.verdict import Decided
from penstock.stores.sql.tx import Row

STATES: Final = (
    State.SCHEDULED,
    State.LEASED,
    State.DELIVERED,
    State.DEAD,
    State.BLOCKED,
    State.EXPIRED,
    State.CANCELLED,
)
"""State ↔ number in the table; the order may never change."""
NUMBERS: Final = {state: number for number, state in enumerate(STATES)}

EXTRAS: Final = {"labels": "TEXT", "topic": "TEXT"}
"""Columns that few messages use, with their types on PostgreSQL."""
WORDS: Final = {
    "extras": ", ".join(EXTRAS),
    "extra_values": ", ".join("?" for _ in EXTRAS),
    "extra_arrays": ", ".join(f"CAST(? AS {kind}[])" for kind in EXTRAS.values()),
    "set_extras": ", ".join(f"{name} = :{name}" for name in EXTRAS),
}
"""Field → its name in statements."""

_encode = msgspec.json.Encoder().encode
_headers: Final = msgspec.json.Decoder(dict[str, str])
_labels: Final = msgspec.json.Decoder(Labels)
_decided: Final = msgspec.json.Decoder(Decided)
_seqs: Final = msgspec.json.Decoder(list[int])


@lru_cache(maxsize=4096)
def _labels_of(text: str) -> Labels:
    """Shared by all messages that have the same, which are mostly many."""
    return _labels.decode(text)


def to_message(row: Row) -> Message:
    """A row of the block `columns` → the message."""
    # fmt: off
    (
        seq, message_id, route, key, payload, content_type, headers, labels, topic, due, expires,
        priority, state, version, attempt, attempt_floor, created, claimed, settled, last_error,
        cancel_pending, decided,
    ) = row
    # fmt: on
    return Message(  # in the order of its fields: this runs once for every message released
        message_id,
        route,
        message_id if key is None else key,
        b"" if payload is None else payload,
        due,
        JSON if content_type is None else content_type,
        None if headers is None else _headers.decode(headers),
        expires,
        priority,
        None if labels is None else _labels_of(labels),
        topic,
        STATES[state],
        version,
        attempt,
        attempt_floor,
        created,
        claimed,
        settled,
        last_error,
        cancel_pending == 1,
        None if decided is None else _decided.decode(decided),
        seq,
    )


def event_of(row: Row) -> Event:
    """A row of the statement `events` → the line of the timeline."""
    at, event, detail, attempt = row
    return Event(at=at, event=event, detail=detail, attempt=attempt)


def to_record(row: Row) -> Record:
    """A row of the block `columns` and the token of its lease → the record."""
    return Record(to_message(row[:-1]), row[-1])


def put_rows(messages: Iterable[NewMessage], now: int) -> list[Row]:
    """The values of `put` for each message."""
    return [
        (m.id, m.route, None if m.key == m.id else m.key, m.payload, None, None, None, None, m.due,
         m.expires, m.priority, now)
        if m.headers is None and m.labels is None and m.topic is None and m.content_type == JSON
        else (
            m.id, m.route, None if m.key == m.id else m.key, m.payload,
            _content_type_column(m.content_type), _headers_column(m.headers),
            _labels_column(m.labels), m.topic, m.due, m.expires, m.priority, now,
        )
        for m in messages
    ]  # fmt: skip


def plain_values(messages: Iterable[NewMessage], now: int, *, keyed: bool) -> list[Any] | None:
    """The values of `put_plain` or `put_keyed`, row after row; None: not all are as plain as that.

    The payload goes as a bytearray: sqlite3 looks for an adapter of bytes and of None, each time.
    """
    values: list[Any] = []
    for m in messages:
        if (
            m.headers is not None
            or m.labels is not None
            or m.topic is not None
            or m.expires is not None
            or m.content_type != JSON
            or (m.key != m.id) is not keyed
        ):
            return None
        values += (m.id, m.route, bytearray(m.payload), m.due, m.priority, now)
        if keyed:
            values.append(m.key)
    return values


def progress_values(record: Record) -> dict[str, Any]:
    """The values of `write`."""
    m = record.message
    return {
        "seq": m.ref,
        "due": m.due,
        "state": NUMBERS[m.state],
        "version": m.version,
        "attempt": m.attempt,
        "attempt_floor": m.attempt_floor,
        "claimed": m.claimed,
        "settled": m.settled,
        "lease": record.token,
        "last_error": m.last_error,
        "cancel_pending": int(m.cancel_pending),
        "decided": decided_column(m.decided),
    }


def content_values(message: Message) -> dict[str, Any]:
    """The values of `write_content` besides those of `write`."""
    return {
        "route": message.route,
        "key": None if message.key == message.id else message.key,
        "payload": message.payload,
        "content_type": _content_type_column(message.content_type),
        "headers": _headers_column(message.headers),
        "labels": _labels_column(message.labels),
        "topic": message.topic,
        "expires": message.expires,
        "priority": message.priority,
    }


def _content_type_column(content_type: str) -> str | None:
    return None if content_type == JSON else content_type


def _headers_column(headers: dict[str, str] | None) -> str | None:
    return _encode(headers).decode() if headers else None


def _labels_column(labels: Labels | None) -> str | None:
    return None if labels is None else _encode(labels).decode()


def decided_column(decided: Decided | None) -> str | None:
    return None if decided is None else _encode(decided).decode()


def json_array(values: Sequence[int] | Sequence[str]) -> str:
    """A list as a column keeps it."""
    return _encode(values).decode()


def from_json_array(text: str) -> list[int]:
    return _seqs.decode(text)
