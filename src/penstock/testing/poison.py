"""The poison catalogue: hostile messages and records that every check lets through.

Each of them passed intake, or a broker. A sink or a source may deliver it or refuse it for good,
but no other message may suffer: innocents beside it arrive once, at their first attempt. The suites
of sinks and sources run the whole catalogue; a driver with limits of its own adds to it.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.model.draft import MAX_HEADER_NAME, MAX_HEADER_VALUE, MAX_HEADERS, MAX_ID, MAX_KEY
from penstock.model.message import JSON, MAX_PAYLOAD, Message

DUE = 1_893_456_000_123
"""2030-01-01T00:00:00.123Z"""
INNOCENTS = 50
"""Innocent messages sent beside each poisoned one."""
OCTETS = "application/octet-stream"


def poisoned(
    name: str,
    *,
    payload: bytes = b'{"n":1}',
    headers: dict[str, str] | None = None,
    content_type: str = JSON,
    message_id: str | None = None,
    key: str = "key",
    topic: str | None = None,
) -> Message:
    """A message as the flow hands it to a sink."""
    return Message(
        id=message_id or f"poison {name}",
        route="suite",
        key=key,
        payload=payload,
        due=DUE,
        attempt=1,
        headers=headers,
        content_type=content_type,
        topic=topic,
        claimed=DUE + 3,
    )


_WIDE = "é" * MAX_HEADER_VALUE
_LONG_NAME = "n" * MAX_HEADER_NAME

MESSAGES: Mapping[str, Message] = {
    one.id.removeprefix("poison "): one
    for one in (
        # Headers that control a broker or a connection.
        poisoned("CC", headers={"CC": "elsewhere"}),
        poisoned("BCC", headers={"BCC": "elsewhere"}),
        poisoned("Nats-Rollup", headers={"Nats-Rollup": "all"}),
        poisoned("nats-rollup", headers={"nats-rollup": "all"}),
        poisoned("Nats-Msg-Id", headers={"Nats-Msg-Id": "m-1"}),
        poisoned("Nats-Expected-Last-Sequence", headers={"Nats-Expected-Last-Sequence": "9999"}),
        poisoned("Nats-TTL", headers={"Nats-TTL": "1s"}),
        poisoned("Nats-Schedule", headers={"Nats-Schedule": "@every 1s"}),
        poisoned("content-length", headers={"Content-Length": "1"}),
        poisoned("transfer-encoding", headers={"Transfer-Encoding": "chunked"}),
        poisoned("host", headers={"Host": "elsewhere", "Connection": "close", "Expect": "200-ok"}),
        poisoned("field names", headers={"payload": "x", "key": "y", "x-death": "z"}),
        # Texts at and beyond the limits of wire formats.
        poisoned("content-type of 4 kB", headers={"content-type": "a" * MAX_HEADER_VALUE}),
        poisoned("content-type of 300", headers={"Content-Type": "a" * 300}),
        poisoned("content-type, wide", headers={"content-type": "é" * 200}),
        poisoned("content type of 200", content_type="a" * 200),
        poisoned("a header of 4 kB", headers={_LONG_NAME: _WIDE}),
        poisoned("empty header", headers={"x-empty": "", "x-blank": "   ", "!#$%&'*+-.^_`|~": "x"}),
        poisoned("160 kB of headers", headers={f"x-{n}": "v" * 4_000 for n in range(40)}),
        poisoned("512 kB of headers", headers={f"x-{n}": _WIDE for n in range(MAX_HEADERS)}),
        poisoned("non-ASCII", headers={"x-town": "Zürich 🚰 مرحبا 你好"}, key="клиент 🚰"),
        poisoned("a key of 2 kB", key="🚰" * MAX_KEY),
        poisoned("an id of 200", message_id="i" * MAX_ID),
        poisoned("an id with blanks", message_id="  m-1  "),
        # Payloads at the limits.
        poisoned("empty payload", payload=b""),
        poisoned("every byte", payload=bytes(range(256)) * 16, content_type=OCTETS),
        poisoned("largest payload", payload=b"x" * MAX_PAYLOAD, content_type=OCTETS),
        poisoned(
            "largest of all",
            payload=b"x" * MAX_PAYLOAD,
            headers={f"x-{n}": _WIDE for n in range(MAX_HEADERS)},
            key="🚰" * MAX_KEY,
        ),
        # Destinations, on a route that allows any.
        poisoned("a topic of 512", topic="t" * 512),
        poisoned("a topic of 2 kB", topic="🚰" * 512),
        poisoned("a topic with blanks", topic="two words"),
        poisoned("a topic with wildcards", topic="orders.*.>"),
        poisoned("JetStream's own topic", topic="$JS.API.STREAM.DELETE.orders"),
        poisoned("the server's own topic", topic="$SYS.REQ.SERVER.PING"),
        poisoned("WRONGTYPE", topic="WRONGTYPE of a name"),
    )
}
"""Name → message: hostile, and valid as far as intake can tell."""

HEADERS: Mapping[str, bytes] = {
    "": b"a header without a name",
    "x-binary": bytes(range(256)),
    "x-not-utf8": b"\xff\xfe\x00",
    "x-empty": b"",
    "x-long": b"v" * 10_000,
    "n" * 250: b"a long name",
    "CC": b"elsewhere",
    "Nats-Rollup": b"all",
    "content-type": b"a" * 4096,
    "penstock-id": b"forged",
    "traceparent": b"not a trace",
    "imię": b"a name that is not ASCII",
}
"""Name → value: headers of records, where the broker accepts them at all."""

VALUES: tuple[bytes, ...] = (
    b"",
    b"not json",
    b"\xff\xfe",
    b"[" * 10_000,
    b'{"id": "' + b"i" * 10_000 + b'"}',
    b'{"id": "\\ud800"}',
    b'{"headers": {"x": 1}}',
    b'{"route": "nowhere"}',
    b'{"at": "yesterday"}',
    b'{"delay": 1e400}',
    b"null",
    b'{"payload": "' + b"x" * 400_000 + b'"}',
)
"""Records that no format accepts: each becomes a dead letter, and none stops its source."""
