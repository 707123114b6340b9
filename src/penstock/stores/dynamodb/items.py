"""Items ↔ messages: the only place that knows the names of attributes.

Of a message (`pk` = "m:" + id) what is usual is left out, so that it costs nothing:
  o    when it is due and its id, the order of every index        n    revision: + 1 a write
  b    bucket and shard, while it waits or is leased (index "due")  r    route
  l    class, route and shard (index "list")                      k    key, if not the id ("key")
  p ct h lb tp x pr     content: payload, type, headers, labels, topic, expires, priority
  s v a af c cl se er cp de     state, version, attempts and times, last error, cancel asked …
  tk   token of the lease under way      ev   timeline (msgpack)      ttl  when DynamoDB deletes it
Of a lease (`pk` = "t:" + token): l, o (its end), r, ids.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeAlias
from zlib import crc32

import msgspec
from msgspec.structs import replace

from penstock.model.lifecycle import Record, Step, accepted
from penstock.model.message import DEFAULT_PRIORITY, JSON, Event, Labels, Message, NewMessage
from penstock.model.state import PURGEABLE, State
from penstock.model.verdict import Decided

Value: TypeAlias = dict[str, Any]
"""An attribute value: {"S": text}, {"N": digits}, {"B": bytes}, {"BOOL": true}."""
Item: TypeAlias = dict[str, Value]

OPEN = "open"
"""The class of waiting and leased messages: a claim leaves every index unchanged."""
LEASE_SHARDS = 4
MAX_EVENTS = 100
"""Most lines of one message's timeline; the oldest are dropped first."""
MAX_LINES = 32 * 1024
"""Approximate bytes of a stored timeline."""
MAX_DETAIL = 200
"""Most characters stored of a line's detail; the last error is stored whole."""
MAX_CONTENT = 320 * 1024
"""Most bytes of a message: an item may have 400 KB, and its names, indexes, timeline and error need
room too."""

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
_headers: Final = msgspec.json.Decoder(dict[str, str])
_labels: Final = msgspec.json.Decoder(Labels)
_decided: Final = msgspec.json.Decoder(Decided)


class Line(msgspec.Struct, frozen=True, array_like=True, omit_defaults=True):
    """An event as stored."""

    at: int
    event: str
    detail: str | None = None
    attempt: int | None = None


_lines: Final = msgspec.msgpack.Decoder(tuple[Line, ...])


class Shape(msgspec.Struct, frozen=True):
    """The settings that place index entries: the same for every process of a table."""

    width: int
    """Milliseconds of a bucket."""
    shards: int

    def bucket(self, due: int) -> int:
        return due // self.width

    def shard(self, message_id: str) -> int:
        return crc32(message_id.encode()) % self.shards


def message_pk(message_id: str) -> str:
    return "m:" + message_id


def order(due: int, message_id: str) -> str:
    """A text that sorts by due, then id."""
    return f"{max(0, due):015d}#{message_id}"


def before(moment: int) -> str:
    """A text after every `order` due earlier than the moment, and before all others."""
    return f"{max(0, moment):015d}"


def read_order(text: str) -> tuple[int, str]:
    """(due, id) of an `order` text."""
    return int(text[:15]), text[16:]


def bucket_key(width: int, bucket: int, shard: int) -> str:
    return f"{width // 1000}.{bucket}#{shard}"


def list_key(kind: str, route: str, shard: int) -> str:
    return f"{kind}#{route}#{shard}"


def kind_of(state: State) -> str:
    """The index class of a state."""
    return OPEN if state in (State.SCHEDULED, State.LEASED) else state.value


def _add_content(item: Item, message: Message) -> None:
    if message.key != message.id:
        item["k"] = {"S": message.key}
    if message.content_type != JSON:
        item["ct"] = {"S": message.content_type}
    if message.headers:
        item["h"] = {"S": _encode(message.headers).decode()}
    if message.labels is not None:
        item["lb"] = {"S": _encode(message.labels).decode()}
    if message.topic is not None:
        item["tp"] = {"S": message.topic}
    if message.expires is not None:
        item["x"] = {"N": str(message.expires)}
    if message.priority != DEFAULT_PRIORITY:
        item["pr"] = {"N": str(message.priority)}


def first_record(new: NewMessage, now: int) -> Record:
    """A message put under a new id, in its first revision."""
    return Record(replace(accepted(new, now), ref=1))


def next_record(old: Record, step: Step[Any]) -> Record | None:
    """A step's record, one revision later and with its lines noted."""
    if step.record is None:
        return None
    message = replace(step.record.message, ref=old.message.ref + 1)
    noted = _bounded(step.record.noted + step.events)
    return replace(step.record, message=message, noted=noted)


def _bounded(lines: tuple[Event, ...]) -> tuple[Event, ...]:
    """The last lines, limited in number and bytes: retries must not outgrow an item."""
    kept: list[Event] = []
    size = 0
    for line in reversed(lines[-MAX_EVENTS:]):
        detail = None if line.detail is None else line.detail[:MAX_DETAIL]
        size += 32 + len((detail or "").encode())
        if size > MAX_LINES:
            break
        kept.append(replace(line, detail=detail))
    return tuple(reversed(kept))


def to_item(record: Record, shape: Shape, retention: int) -> Item:
    """The message's item; once settled, it expires after `retention` milliseconds."""
    m = record.message
    shard = shape.shard(m.id)
    item: Item = {
        "pk": {"S": "m:" + m.id},
        "o": {"S": order(m.due, m.id)},
        "l": {"S": list_key(kind_of(m.state), m.route, shard)},
        "r": {"S": m.route},
        "c": {"N": str(m.created)},
        "n": {"N": str(m.ref)},
    }
    if m.state in (State.SCHEDULED, State.LEASED):
        item["b"] = {"S": bucket_key(shape.width, shape.bucket(max(0, m.due)), shard)}
    if m.payload:
        item["p"] = {"B": m.payload}
    _add_content(item, m)
    _add_progress(item, record)
    if m.state in PURGEABLE and m.settled is not None:
        item["ttl"] = {"N": str(expiry(m.settled, retention))}
    return item


def next_item(old: Item, record: Record, shape: Shape, retention: int) -> Item:
    """The item after a step; unless the message moved, its index entry stays where it was."""
    item = to_item(record, shape, retention)
    if "b" in old and "b" in item and old["o"] == item["o"]:
        item["b"] = old["b"]
    return item


def _add_progress(item: Item, record: Record) -> None:
    m = record.message
    if m.state is not State.SCHEDULED:
        item["s"] = {"S": m.state.value}
    numbers = {"v": (m.version, 1), "a": (m.attempt, 0), "af": (m.attempt_floor, 0)}
    for name, (number, usual) in numbers.items():
        if number != usual:
            item[name] = {"N": str(number)}
    optional = {"cl": m.claimed, "se": m.settled, "tk": record.token}
    for name, value in optional.items():
        if value is not None:
            item[name] = {"N": str(value)}
    if m.last_error is not None:
        item["er"] = {"S": m.last_error}
    if m.cancel_pending:
        item["cp"] = {"BOOL": True}
    if m.decided is not None:
        item["de"] = decided_column(m.decided)
    if record.noted:
        lines = [Line(e.at, e.event, e.detail, e.attempt) for e in record.noted]
        item["ev"] = {"B": _pack(lines)}


def decided_column(decided: Decided) -> dict[str, str]:
    return {"S": _encode(decided).decode()}


SHORT = ("pk", "o", "r", "k", "pr", "s", "v", "a", "af", "c", "cl", "se", "de", "n", "tk")
"""Attributes without content and timeline: enough for its order and its lease."""


def to_record(item: Item) -> Record:
    return Record(to_message(item), _number(item, "tk"), _noted(item))


def _noted(item: Item) -> tuple[Event, ...]:
    lines = _lines.decode(item["ev"]["B"]) if "ev" in item else ()
    return tuple(
        Event(at=line.at, event=line.event, detail=line.detail, attempt=line.attempt)
        for line in lines
    )


def to_message(item: Item) -> Message:
    due, message_id = read_order(item["o"]["S"])
    return Message(
        id=message_id,
        route=item["r"]["S"],
        key=item["k"]["S"] if "k" in item else message_id,
        payload=item["p"]["B"] if "p" in item else b"",
        due=due,
        content_type=item["ct"]["S"] if "ct" in item else JSON,
        headers=_headers.decode(item["h"]["S"]) if "h" in item else None,
        expires=_number(item, "x"),
        priority=int(item["pr"]["N"]) if "pr" in item else DEFAULT_PRIORITY,
        labels=_labels.decode(item["lb"]["S"]) if "lb" in item else None,
        topic=item["tp"]["S"] if "tp" in item else None,
        state=State(item["s"]["S"]) if "s" in item else State.SCHEDULED,
        version=int(item["v"]["N"]) if "v" in item else 1,
        attempt=int(item["a"]["N"]) if "a" in item else 0,
        attempt_floor=int(item["af"]["N"]) if "af" in item else 0,
        created=int(item["c"]["N"]),
        claimed=_number(item, "cl"),
        settled=_number(item, "se"),
        last_error=item["er"]["S"] if "er" in item else None,
        cancel_pending="cp" in item,
        decided=_decided.decode(item["de"]["S"]) if "de" in item else None,
        ref=int(item["n"]["N"]),
    )


def _number(item: Item, name: str) -> int | None:
    return int(item[name]["N"]) if name in item else None


def expiry(now: int, retention: int) -> int:
    """Epoch seconds after which DynamoDB may delete a message settled at `now`."""
    return (now + retention) // 1000 + 1


def is_forgotten(item: Item, now: int) -> bool:
    """Whether its retention is over, though DynamoDB has not deleted it yet."""
    ttl = _number(item, "ttl")
    return ttl is not None and ttl * 1000 < now


def lease_pk(token: int) -> str:
    return f"t:{token}"


def lease_shard(shard: int) -> str:
    return f"lease#{shard}"


class Lease(msgspec.Struct, frozen=True):
    """Messages claimed together. Written before the claim, so that no leased message is lost."""

    token: int
    until: int
    ids: Sequence[str]
    again: bool = False
    """True if it has ended and is read once more for writes that came late."""


_ids: Final = msgspec.msgpack.Decoder(list[str])


def lease_item(lease: Lease) -> Item:
    item: Item = {
        "pk": {"S": lease_pk(lease.token)},
        "l": {"S": lease_shard(lease.token % LEASE_SHARDS)},
        "o": {"S": order(lease.until, str(lease.token))},
        "ids": {"B": _pack(list(lease.ids))},
    }
    if lease.again:
        item["ag"] = {"S": "1"}
    return item


def to_lease(item: Item) -> Lease:
    until, token = read_order(item["o"]["S"])
    return Lease(int(token), until, _ids.decode(item["ids"]["B"]), "ag" in item)
