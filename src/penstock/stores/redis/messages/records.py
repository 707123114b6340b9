"""How a message is packed into one string, and read back.

  state B · flags B · priority B · generation B · edition I2 · version I3 · due I6 · created I6
  [TOUCHED attempt I2 · attempt_floor I2 · claimed I6 · settled I6 · nonce 4]
  route (B length) · [KEY key (I2)] · [EVENTS (I2)] · [ERROR last_error (I2)]
  [DECIDED the last refusal (I2)] · [EXTRAS (I4)] · [HEADERS (I4)] · payload

All little-endian. Lua reads and rewrites the head and the sections up to DECIDED (record.lua);
the rest it copies. `edition` is drawn anew with every write: two equal strings are the same write,
so a call that is repeated because its answer was lost recognizes its own work. A message is leased
when it is in the partition's leases; the record itself is not touched by a claim.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

import msgspec

from penstock.model.errors import StoreCorrupt
from penstock.model.message import JSON, Labels, Message, NewMessage
from penstock.model.state import State
from penstock.model.verdict import Decided
from penstock.stores.redis.messages.ids import unpack_id

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


class _Extras(msgspec.Struct, array_like=True, omit_defaults=True):
    """What few messages have."""

    expires: int | None = None
    content_type: str | None = None
    topic: str | None = None
    labels: Labels | None = None


_extras = msgspec.msgpack.Decoder(_Extras)
_headers = msgspec.msgpack.Decoder(dict[str, str])
_decided = msgspec.msgpack.Decoder(Decided)
_encoder = msgspec.msgpack.Encoder()


class Held(NamedTuple):
    """A record with what stands beside it."""

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
    """A message as it is held; its state is the record's own (never leased)."""
    flags = 0
    touched = b""
    if message.attempt or message.attempt_floor or message.claimed or message.settled:
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
    """What one partition gave to a claim: ids and records in turn, all under one lease.

    Nearly all of them are sent for the first time and have nothing but a payload and perhaps a
    key: those are read here without looking for the rest.
    """
    _, low, high, _ = _LEASE.unpack(lease)
    claimed = low | high << 32
    head, leased, ref = _HEAD.unpack_from, State.LEASED, partition + 1
    messages = []
    for member, record in zip(taken[::2], taken[1::2], strict=True):
        flags = record[1]
        if flags and flags != KEY:
            messages.append(unpack(member, Held(partition, record, lease)))
            continue
        _, _, priority, _, _, version, more, due, due_high, made, made_high = head(record)
        end = body = 22 + record[21]
        key = message_id = unpack_id(member)
        if flags:
            body = end + 2 + (record[end] | record[end + 1] << 8)
            key = record[end + 2 : body].decode()
        messages.append(
            Message(  # in the order of its fields: this runs once for every message released
                message_id,
                _decode_route(record[22:end]),
                key,
                record[body:],
                due | due_high << 32,
                JSON,
                None,
                None,
                priority,
                None,
                None,
                leased,
                version | more << 16,
                1,
                0,
                made | made_high << 32,
                claimed,
                ref=ref,
            )
        )
    return messages


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
    """With its length."""
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
    """Without reading all of it."""
    low, high = _DUE.unpack_from(record, 9)
    return STATES[record[0]] if lease is None else State.LEASED, low | high << 32


_DUE = Struct("<IH")


def generation_of(record: bytes) -> int:
    return record[3]


def ask_cancel(lease: bytes) -> bytes:
    """The lease, with the mark that a cancel was asked."""
    return lease[:-1] + b"\1"


def pack_decided(decided: Decided) -> bytes:
    return _encoder.encode(decided)


def pack_token(token: int) -> bytes:
    return token.to_bytes(8, "big")
