"""What the scripts of waiting rooms answer → values."""

from __future__ import annotations

from functools import lru_cache

import msgspec

from penstock.model.admission import Flow
from penstock.model.room import Room, RoomFigures, RoomPast, RoomSettings, RoomState
from penstock.model.ticket import Outlook, Promotion, Ticket, TicketState
from penstock.stores.redis.connect import Reply
from penstock.stores.redis.rooms_keys import decode

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


def promotion_of(name: str, reply: Reply) -> Promotion:
    if reply is None:
        return Promotion(room=name)
    ended, more, look_at, now, until = reply[:5]
    admitted = tuple(
        Ticket(
            user=decode(reply[i]),
            state=TicketState.ADMITTED,
            lane=reply[i + 1].decode(),
            number=reply[i + 2],
            joined=reply[i + 3],
            promoted=now,
            until=None if until < 0 else until,
            pass_id=reply[i + 4].decode(),
            instance=decode(reply[i + 5]),
        )
        for i in range(5, len(reply), 6)
    )
    return Promotion(
        room=name,
        admitted=admitted,
        expired=ended,
        more=bool(more),
        look_at=None if look_at < 0 else look_at,
    )
