"""Decodes the answers of the waiting rooms' scripts."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, pairwise
from typing import Any, overload

import msgspec

from penstock.model.room import Room, RoomFigures, RoomPast, RoomSettings, RoomState
from penstock.model.room_admission import Flow
from penstock.model.ticket import Outlook, Promotion, Ticket, TicketState
from penstock.redis_kit.connect import Reply
from penstock.stores.redis.rooms.keys import decode

_STATES = {
    b"W": TicketState.WAITING,
    b"A": TicketState.ADMITTED,
    b"E": TicketState.ENTERED,
    b"L": TicketState.LEFT,
    b"X": TicketState.EXPIRED,
    b"R": TicketState.REVOKED,
}


@lru_cache(maxsize=1024)
def _settings(raw: bytes) -> RoomSettings:
    return msgspec.json.decode(raw, type=RoomSettings)


def room_of_reply(name: str, reply: Reply) -> Room:
    return Room(
        name=name,
        settings=_settings(reply[0]),
        state=RoomState(reply[1].decode()),
        epoch=int(reply[2]),
    )


def outlook_of(name: str, reply: Reply, now: int) -> Outlook:
    raw, state, epoch, slots, lanes, since, count, before, stored = reply
    return Outlook(
        room=room_of_reply(name, (raw, stored, epoch)),
        state=RoomState(state.decode()),
        in_use=slots,
        waiting={
            lane.decode(): number for lane, number in zip(lanes[::2], lanes[1::2], strict=True)
        },
        a_minute=Flow(since, count, before).a_minute(now),
    )


def figures_of(name: str, reply: Reply, now: int) -> RoomFigures:
    outlook = outlook_of(name, reply[0], now)
    waiting, admitted, entered, left, expired, revoked, joined, promoted = reply[1:9]
    return RoomFigures(
        room=outlook.room,
        state=outlook.state,
        in_use=outlook.in_use,
        waiting=waiting,
        admitted=admitted,
        entered=entered,
        left=left,
        expired=expired,
        revoked=revoked,
        joined=joined,
        promoted=promoted,
        a_minute=outlook.a_minute,
        before=RoomPast(*reply[9:]),
    )


def ticket_of(user: str, reply: Reply) -> Ticket:
    state, lane, number, joined, promoted, until, entered, pass_id, instance = reply[:9]
    waiting = len(reply) > 10
    seen = int(reply[11]) if waiting else -1
    return Ticket(
        user=user,
        state=_STATES[state],
        lane=lane.decode(),
        number=number,
        joined=joined,
        ahead=reply[10] if waiting else None,
        seen=None if seen < 0 else seen,
        promoted=None if promoted < 0 else promoted,
        until=None if until < 0 else until,
        entered=None if entered < 0 else entered,
        pass_id=decode(pass_id),
        instance=decode(instance),
    )


class Admitted(Sequence[Ticket]):
    """The tickets of a promotion, decoded when first read: most callers only count them."""

    def __init__(self, number: int, lengths: bytes, texts: bytes) -> None:
        self._number = number
        self._lengths = lengths
        self._texts = texts
        """User and packed ticket, alternating."""

    def __len__(self) -> int:
        return self._number

    @overload
    def __getitem__(self, index: int) -> Ticket: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Ticket]: ...

    def __getitem__(self, index: int | slice) -> Ticket | Sequence[Ticket]:
        return self._tickets[index]

    def __iter__(self) -> Iterator[Ticket]:
        return iter(self._tickets)

    @cached_property
    def _tickets(self) -> list[Ticket]:
        ends = [0, *accumulate(struct.unpack(f"<{2 * self._number}I", self._lengths))]
        parts = [self._texts[begin:end] for begin, end in pairwise(ends)]
        return list(map(_unpacked, parts[::2], parts[1::2]))


def _unpacked(user: bytes, packed: bytes) -> Ticket:
    """The ticket of a fresh admission as promote.lua writes it."""
    lane, promoted, until, _, pass_id, score, raw = packed[1:].split(b"\0", 6)
    record = _record(raw)
    place = math.floor(float(score) * 1_000_000 + 0.5) if score else int(record.get("place", 0))
    joined = record.get("joinedAt")
    ends = int(until)
    return Ticket(
        user=decode(user),
        state=TicketState.ADMITTED,
        lane=lane.decode(),
        number=place,
        joined=_moment(joined, place // 1000),
        promoted=int(promoted),
        until=None if ends < 0 else ends,
        pass_id=pass_id.decode(),
        instance=str(record.get("instanceId") or "unknown"),
    )


def _record(raw: bytes) -> dict[str, Any]:
    """The record of a waiting visitor, which another program may have written."""
    try:
        record = json.loads(decode(raw))
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _moment(joined: object, unknown: int) -> int:
    """`joinedAt`, in seconds or milliseconds, as common.lua reads it."""
    try:
        at = float(str(joined))
    except ValueError:
        return unknown
    return math.floor(at * 1000 + 0.5) if at < 100_000_000_000 else int(at)


def promotion_of(name: str, reply: Reply) -> Promotion:
    if reply is None:
        return Promotion(room=name)
    ended, more, look_at, number, *admitted = reply
    return Promotion(
        room=name,
        admitted=Admitted(number, *admitted) if number else (),
        expired=ended,
        more=bool(more),
        look_at=None if look_at < 0 else look_at,
    )
