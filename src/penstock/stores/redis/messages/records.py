"""How a message is packed into one string, and read back.

  state B · flags B · priority B · generation B · edition I2 · version I3 · due I6 · created I6
  [TOUCHED attempt I2 · attempt_floor I2 · claimed I6 · settled I6 · nonce 4]
  route (B length) · [KEY key (I2)] · [EVENTS (I2)] · [ERROR last_error (I2)]
  [DECIDED the last refusal (I2)] · [EXTRAS (I4)] · [HEADERS (I4)] · payload

All little-endian. Lua (record.lua) reads records, and writes those of the delivered. Events are
packed each with its length before it, the last MAX_EVENTS kept. `edition` is drawn again with every
write: two equal strings are the same write, so a call that is repeated because its answer was lost
recognizes its own work. A message is leased when it is in the partition's leases; the record itself
is not touched by a claim.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

import msgspec

from penstock.model.errors import StoreCorrupt
from penstock.model.message import JSON, Event, Labels, Message, NewMessage
from penstock.model.state import State
from penstock.model.verdict import Decided

STATES = (
    State.SCHEDULED,
    State.LEASED,
    State.DELIVERED,
    State.DEAD,
    State.BLOCKED,
    State.EXPIRED,
    State.CANCELLED,
)
NUMBERS = {state: number for number, state in enumerate(STATES)}
TOUCHED, KEY, EVENTS, ERROR, EXTRAS, HEADERS, DECIDED = 1, 2, 4, 8, 16, 32, 64
NO_NONCE = b"\0\0\0\0"
_HEAD = Struct("<BBBBHHBIHIH")
_BEGIN = Struct("<BBBBHHB")
"""The head up to its due time."""
_TOUCHED = Struct("<HHIHIH4s")
_LEASE = Struct("<8sIHB")
_SHORT = Struct("<H")
_LONG = Struct("<I")
_headers = msgspec.msgpack.Decoder(dict[str, str])
_decided = msgspec.msgpack.Decoder(Decided)
_encoder = msgspec.msgpack.Encoder()
_DUE = Struct("<IH")
_DASHES = (8, 13, 18, 23)
MAX_EVENTS = 20
MAX_DETAIL = 200
_LENGTH = Struct("<H")
_encode = msgspec.msgpack.Encoder().encode
_decoder = msgspec.msgpack.Decoder(tuple[int, str, str | bool | None, int | bool | None])
AWAY = 128
"""The flag of a message whose id has a pointer in its own partition."""
ELSEWHERE = 7
"""The state of a record that is such a pointer, and no message."""


class _Extras(msgspec.Struct, array_like=True, omit_defaults=True):
    """Fields that few messages have."""

    expires: int | None = None
    content_type: str | None = None
    topic: str | None = None
    labels: Labels | None = None


_extras = msgspec.msgpack.Decoder(_Extras)


class Held(NamedTuple):
    """A record, its partition and its lease."""

    partition: int
    record: bytes
    lease: bytes | None


class NewPacker:
    """Packs messages just accepted of one route and priority, all in one put.

    Nearly all of them have nothing but a payload, and perhaps a key: then little differs.
    """

    def __init__(
        self, route: str, priority: int, *, now: int, generation: int, edition: int
    ) -> None:
        self._about = priority, generation, edition, 1, 0
        self._end = now.to_bytes(6, "little") + _encode_route(route)

    def pack(self, messages: Iterable[NewMessage]) -> list[bytes]:
        """Their records, in order."""
        plain = _BEGIN.pack(0, 0, *self._about)
        keyed = b""  # made when the first has a key of its own
        end, join = self._end, b"".join
        records = []
        for message in messages:
            begin, key, packed = plain, b"", b""
            if message.key != message.id:
                begin = keyed = keyed or _BEGIN.pack(0, KEY, *self._about)
                name = message.key.encode()
                key = len(name).to_bytes(2, "little") + name
            if (
                message.expires is not None
                or message.content_type != JSON
                or message.labels is not None
                or message.topic is not None
                or message.headers
            ):
                flags, packed = _pack_extras(message)
                begin = _BEGIN.pack(0, flags | (KEY if key else 0), *self._about)
            due = message.due.to_bytes(6, "little")
            records.append(join((begin, due, end, key, packed, message.payload)))
        return records


def pack(message: Message, *, generation: int, edition: int, nonce: bytes, events: bytes) -> bytes:
    """Pack a message as it is stored; its state is the record's own (never leased)."""
    flags = 0
    touched = b""
    times = message.claimed or message.settled
    if message.attempt or message.attempt_floor or times or nonce != NO_NONCE:
        flags |= TOUCHED
        claimed, settled = message.claimed or 0, message.settled or 0
        touched = _TOUCHED.pack(
            min(message.attempt, 0xFFFF),
            min(message.attempt_floor, 0xFFFF),
            claimed & 0xFFFFFFFF,
            claimed >> 32,
            settled & 0xFFFFFFFF,
            settled >> 32,
            nonce,
        )
    route = message.route.encode()
    sections = [len(route).to_bytes(1, "little"), route]
    if message.key != message.id:
        flags |= KEY
        sections.append(_short(message.key.encode()))
    if events:
        flags |= EVENTS
        sections.append(_short(events))
    if message.last_error is not None:
        flags |= ERROR
        sections.append(_short(message.last_error.encode()))
    if message.decided is not None:
        flags |= DECIDED
        sections.append(_short(pack_decided(message.decided)))
    more, packed = _pack_extras(message)
    head = _HEAD.pack(
        NUMBERS[message.state],
        flags | more,
        message.priority,
        generation,
        edition,
        message.version & 0xFFFF,
        message.version >> 16 & 0xFF,
        message.due & 0xFFFFFFFF,
        message.due >> 32,
        message.created & 0xFFFFFFFF,
        message.created >> 32,
    )
    return b"".join((head, touched, *sections, packed, message.payload))


def _pack_extras(message: NewMessage | Message) -> tuple[int, bytes]:
    flags, packed = 0, b""
    content_type = None if message.content_type == JSON else message.content_type
    extras = _Extras(message.expires, content_type, message.topic, message.labels)
    if extras != _NO_EXTRAS:
        flags |= EXTRAS
        packed = _long(_encoder.encode(extras))
    if message.headers:
        flags |= HEADERS
        packed += _long(_encoder.encode(message.headers))
    return flags, packed


_NO_EXTRAS = _Extras()


def _short(section: bytes) -> bytes:
    return _SHORT.pack(len(section)) + section


def _long(section: bytes) -> bytes:
    return _LONG.pack(len(section)) + section


def unpack(member: bytes, held: Held) -> Message:
    """The message as callers see it."""
    return read(member, held)[0]


def unpack_claimed(partition: int, lease: bytes, taken: list[bytes]) -> list[Message]:
    """The messages that one partition gave to a claim: ids and records in turn, under one lease."""
    return [
        unpack(member, Held(partition, record, lease))
        for member, record in zip(taken[::2], taken[1::2], strict=True)
    ]


def read(member: bytes, held: Held) -> tuple[Message, bytes]:
    """The message, and its packed events."""
    partition, record, lease = held
    try:
        return _read(member, record, lease, partition)
    except (ValueError, IndexError, KeyError, msgspec.MsgspecError, struct.error) as exc:
        raise StoreCorrupt(f"the record of {unpack_id(member)!r} cannot be read") from exc


def _read(
    member: bytes, record: bytes, lease: bytes | None, partition: int
) -> tuple[Message, bytes]:
    state, flags, priority, _, _, low, high, due, due_high, made, made_high = _HEAD.unpack_from(
        record
    )
    at = _HEAD.size
    attempt = floor = claimed = settled = 0
    if flags & TOUCHED:
        attempt, floor, c_low, c_high, s_low, s_high, _ = _TOUCHED.unpack_from(record, at)
        claimed, settled = c_low | c_high << 32, s_low | s_high << 32
        at += _TOUCHED.size
    end = at + 1 + record[at]
    route = _decode_route(record[at + 1 : end])
    message_id = unpack_id(member)
    key, error, headers, events = message_id, None, None, b""
    decided: Decided | None = None
    extras = _NO_EXTRAS
    if flags & ~TOUCHED:
        at = end
        if flags & KEY:
            section, end = _read_short(record, end)
            key = section.decode()
        if flags & EVENTS:
            events, end = _read_short(record, end)
        if flags & ERROR:
            section, end = _read_short(record, end)
            error = section.decode()
        if flags & DECIDED:
            section, end = _read_short(record, end)
            decided = _decided.decode(section)
        if flags & EXTRAS:
            section, end = _read_long(record, end)
            extras = _extras_of(section)
        if flags & HEADERS:
            section, end = _read_long(record, end)
            headers = _headers.decode(section)
    shown = STATES[state]
    cancel_pending = False
    if lease is not None:
        _, c_low, c_high, asked = _LEASE.unpack(lease)
        claimed = c_low | c_high << 32
        attempt += 1
        shown = State.LEASED
        cancel_pending = bool(asked)
    message = Message(
        id=message_id,
        route=route,
        key=key,
        payload=record[end:],
        due=due | due_high << 32,
        content_type=extras.content_type or JSON,
        headers=headers,
        expires=extras.expires,
        priority=priority,
        labels=extras.labels,
        topic=extras.topic,
        state=shown,
        version=low | high << 16,
        attempt=attempt,
        attempt_floor=floor,
        created=made | made_high << 32,
        claimed=claimed or None,
        settled=settled or None,
        last_error=error,
        cancel_pending=cancel_pending,
        decided=decided,
        ref=partition + 1,
    )
    return message, events


@lru_cache(maxsize=4096)
def _extras_of(packed: bytes) -> _Extras:
    """Shared by all messages that have the same, which are mostly many."""
    return _extras.decode(packed)


@lru_cache(maxsize=1024)
def _encode_route(route: str) -> bytes:
    """The route, with its length before it."""
    name = route.encode()
    return len(name).to_bytes(1, "little") + name


@lru_cache(maxsize=1024)
def _decode_route(route: bytes) -> str:
    return route.decode()


def _read_short(record: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _SHORT.unpack_from(record, at)
    return record[at + 2 : at + 2 + length], at + 2 + length


def _read_long(record: bytes, at: int) -> tuple[bytes, int]:
    (length,) = _LONG.unpack_from(record, at)
    return record[at + 4 : at + 4 + length], at + 4 + length


def head_length(record: bytes) -> int:
    return _HEAD.size + (_TOUCHED.size if record[1] & TOUCHED else 0)


def state_and_due(record: bytes, lease: bytes | None) -> tuple[State, int]:
    """State and due, without reading the rest of the record."""
    low, high = _DUE.unpack_from(record, 9)
    return STATES[record[0]] if lease is None else State.LEASED, low | high << 32


def generation_of(record: bytes) -> int:
    return record[3]


def ask_cancel(lease: bytes) -> bytes:
    """The lease with the mark of a requested cancel."""
    return lease[:-1] + b"\1"


def pack_decided(decided: Decided) -> bytes:
    return _encoder.encode(decided)


def new_token() -> int:
    """A lease token: never 0, and never one used before."""
    return secrets.randbits(62) + 1


def pack_token(token: int) -> bytes:
    return token.to_bytes(8, "big")


def token_of(lease: bytes) -> int:
    return int.from_bytes(lease[:8], "big")


def nonce_of(record: bytes) -> bytes:
    """The nonce of the settlement that wrote the record."""
    return (
        record[head_length(record) - 4 : head_length(record)] if record[1] & TOUCHED else NO_NONCE
    )


def pack_id(text: str) -> bytes:
    """The id as a field: a UUID in 16 bytes, any other as its text.

    A text of 16 characters gets a zero byte, which no text contains, so that it cannot be taken for
    a UUID. Both orders are those of the texts.
    """
    if len(text) == 36 and text[8:24:5] == "----" and text == text.lower():
        try:
            packed = bytes.fromhex(text.replace("-", ""))
        except ValueError:
            return text.encode()
        if len(packed) == 16:  # no blanks, which fromhex passes over, and no fifth dash
            return packed
    return text.encode() + b"\0" if len(text) == 16 else text.encode()


def pack_ids(texts: Sequence[str]) -> list[bytes]:
    """`pack_id` of many. UUIDs, which nearly all are, are read all at once."""
    packed = _joined_uuids(texts)
    if packed is None:
        return [pack_id(text) for text in texts]
    return [packed[at : at + 16] for at in range(0, len(packed), 16)]


def joined_ids(texts: Sequence[str]) -> tuple[bytes, int | list[int]]:
    """The same, one after the other, and how long each is; one number: all of them."""
    packed = _joined_uuids(texts)
    if packed is not None:
        return packed, 16
    members = [pack_id(text) for text in texts]
    return b"".join(members), [*map(len, members)]


def _joined_uuids(texts: Sequence[str]) -> bytes | None:
    """The ids as joined UUIDs; None: some are not UUIDs."""
    number, joined = len(texts), "".join(texts)
    if len(joined) == 36 * number and all(joined[at::36] == "-" * number for at in _DASHES):
        try:
            packed = bytes.fromhex(joined.replace("-", ""))
        except ValueError:
            return None
        # No blanks, capitals or more dashes, and no long text that makes up for a short one.
        if len(packed) == 16 * number and joined == joined.lower() and {*map(len, texts)} <= {36}:
            return packed
    return None


def unpack_id(member: bytes) -> str:
    if len(member) == 16:
        text = member.hex()
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
    return member.rstrip(b"\0").decode()


def pack_event(at: int, event: str, detail: str | None = None, attempt: int | None = None) -> bytes:
    if detail is not None:
        detail = detail[:MAX_DETAIL]
    return _piece(_encode((at, event, detail, attempt)))


def add_events(events: bytes, *more: bytes) -> bytes:
    """The last MAX_EVENTS of all."""
    pieces = [*_pieces(events), *more]
    return b"".join(pieces[-MAX_EVENTS:])


def read_events(events: bytes) -> list[Event]:
    lines = []
    for piece in _pieces(events):
        at, event, detail, attempt = _decoder.decode(piece[2:])
        lines.append(
            Event(
                at=at,
                event=event,
                detail=detail if isinstance(detail, str) else None,
                attempt=None if isinstance(attempt, bool) else attempt,
            )
        )
    return lines


def _pieces(events: bytes) -> list[bytes]:
    pieces: list[bytes] = []
    at = 0
    while at < len(events):
        end = at + 2 + _LENGTH.unpack_from(events, at)[0]
        pieces.append(events[at:end])
        at = end
    return pieces


def _piece(packed: bytes) -> bytes:
    return _LENGTH.pack(len(packed)) + packed


def as_away(record: bytes) -> bytes:
    """The record of a message, with the mark that a pointer leads to it."""
    return record[:1] + bytes((record[1] | AWAY,)) + record[2:]


def is_away(record: bytes) -> bool:
    return record[1] & AWAY != 0


def target_of(record: bytes) -> int | None:
    """The partition a pointer leads to; None: it is a message."""
    return int.from_bytes(record[6:9], "little") if record[0] == ELSEWHERE else None
