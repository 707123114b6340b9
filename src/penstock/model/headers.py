"""Headers that control a broker or a connection, and headers of records from foreign systems.

A control header makes the receiving broker do something: publish to other queues, delete a stream's
entries, expire the message. No caller's message carries one to the broker it would control.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from penstock.model.draft import MAX_HEADER_VALUE, MAX_HEADERS, check_header
from penstock.model.errors import InvalidMessage

HEADERS = "penstock-headers"
"""Header of a dead letter: the record's headers that are invalid here, as one JSON object."""
MAX_CARRIED = MAX_HEADERS - 16
"""Most headers that a dead letter copies unchanged: others are added to them."""
MAX_SHOWN = 500
"""Most characters kept of a value in `HEADERS`."""

RABBITMQ_CONTROL = frozenset({"CC", "BCC"})
"""Further routing keys of a message, for RabbitMQ: arrays, never text."""
CONNECTION = frozenset(
    {
        *("connection", "content-length", "expect", "host", "keep-alive", "te", "trailer"),
        *("transfer-encoding", "upgrade", "accept-encoding", "proxy-connection"),
        *("proxy-authorization", "proxy-authenticate"),
    }
)
"""Headers of an HTTP connection, in lower case."""


def is_nats_control(name: str) -> bool:
    """Whether NATS acts on it: roll-ups, expectations, time to live, schedules and ids."""
    return name.lower().startswith("nats-")


def is_rabbitmq_control(name: str) -> bool:
    """Whether RabbitMQ acts on it; RabbitMQ tells cases apart."""
    return name in RABBITMQ_CONTROL


def is_control(name: str) -> bool:
    """Whether any receiver would act on the header."""
    lower = name.lower()
    return lower in {"cc", "bcc", "content-type"} or lower in CONNECTION or is_nats_control(lower)


def carried(headers: Mapping[str, str]) -> dict[str, str]:
    """A record's headers that any sink accepts; the others as one JSON text in `HEADERS`."""
    kept: dict[str, str] = {}
    others: dict[str, str] = {}
    for name, value in headers.items():
        if len(kept) < MAX_CARRIED and _can_be_carried(name, value):
            kept[name] = value
        else:
            others[name] = value
    if others:
        kept[HEADERS] = _as_json(others)
    return kept


def _can_be_carried(name: str, value: str) -> bool:
    try:
        check_header(name, value)
    except InvalidMessage:
        return False
    return not is_control(name)


def _as_json(headers: Mapping[str, str]) -> str:
    """As many of the headers as fit, with the number of those left out."""
    shown: dict[str, str] = {}
    left_out = 0
    size = 100
    for name, value in headers.items():
        entry = {name[:MAX_SHOWN]: value[:MAX_SHOWN]}
        size += len(json.dumps(entry))
        if size > MAX_HEADER_VALUE:
            left_out += 1
        else:
            shown |= entry
    if left_out:
        shown["…"] = f"{left_out} more"
    return json.dumps(shown)
