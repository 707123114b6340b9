"""Waiting rooms on Redis, in the keys of the Dispatcher."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from penstock.model.admission import Flow
from penstock.model.clock import Clock
from penstock.model.room import (
    DEFAULT_CAPACITY,
    Room,
    RoomFigures,
    RoomSettings,
    RoomState,
    first_state,
)
from penstock.model.ticket import (
    EnterAnswer,
    JoinAnswer,
    Joined,
    JoinedAll,
    Joining,
    Looked,
    Outlook,
    Promotion,
    Redeemed,
    Ticket,
    TicketState,
)
from penstock.ports.rooms import RoomListener
from penstock.stores.redis.connect import Argument, Reply
from penstock.stores.redis.rooms_keys import (
    ROOMS,
    SCANNED,
    SECRET,
    WAITING,
    WAKE,
    decode,
    encode,
    room_keys,
    room_of,
)
from penstock.stores.redis.rooms_link import Link

log = logging.getLogger("penstock.rooms.redis")

LOOK_EVERY_MS = 1_000
SCAN_EVERY_MS = 700
"""Less than a second, so that a room is found and promoted within one."""
SCAN_COUNT = 2_000
ROOMS_A_CALL = 50
"""Rooms promoted in one call: a longer one would hold up the server."""
MAX_LIMIT = 500
"""Promotions in one step: a script's arguments are limited."""

_STATES = {
    b"W": TicketState.WAITING,
    b"A": TicketState.ADMITTED,
    b"E": TicketState.ENTERED,
    b"L": TicketState.LEFT,
    b"X": TicketState.EXPIRED,
    b"R": TicketState.REVOKED,
}
_ENDS = {TicketState.LEFT: "L", TicketState.REVOKED: "R"}


class RedisRooms:
    """A RoomStore. Each room is one script's atomic step at a time, whoever calls it."""

    def __init__(self, link: Link, clock: Clock, capacity: int = DEFAULT_CAPACITY) -> None:
        self.link = link
        self._clock = clock
        self._default = msgspec.json.encode(RoomSettings(capacity=capacity))
        self._listeners: list[RoomListener] = []

    @property
    def clock(self) -> Clock:
        return self._clock

    # --- rooms ---

    async def put_room(
        self, name: str, settings: RoomSettings, state: RoomState | None, now: int
    ) -> Room:
        arguments = (
            now,
            msgspec.json.encode(settings),
            "" if state is None else state.value,
            first_state(None, settings, now).value,
        )
        reply = await self.link.run("room_put", self._keys(name), arguments)
        await self._look_now(name, now)
        return _room(name, reply)

    async def rooms(self, names: Sequence[str]) -> list[Room | None]:
        return [await self._room(name) for name in names]

    async def _room(self, name: str) -> Room | None:
        keys = self._keys(name)
        found = await self.link.call("HMGET", keys[0], "settings", "state", "epoch")
        if found[2] is None:
            if not await self.link.call("EXISTS", keys[2]):
                return None
            found = [None, b"open", b"1"]
        return _room(name, [found[0] or self._default, found[1], found[2]])

    async def list_rooms(self, after: str, limit: int) -> list[str]:
        names = sorted(decode(name) for name in await self.link.call("ZRANGE", ROOMS, 0, -1))
        return [name for name in names if name > after][:limit]

    async def set_state(self, name: str, state: RoomState, now: int) -> Room | None:
        return await self._set(name, state.value, now)

    async def reset(self, name: str, now: int) -> Room | None:
        return await self._set(name, "reset", now)

    async def _set(self, name: str, what: str, now: int) -> Room | None:
        reply = await self.link.run("room_state", self._keys(name), (now, self._default, what))
        if reply is None:
            return None
        await self._look_now(name, now)
        return _room(name, reply)

    # --- visitors ---

    async def join(self, name: str, joining: Sequence[Joining], now: int) -> JoinedAll | None:
        arguments: list[Argument] = [now, self._default, WAKE, encode(name)]
        for one in joining:
            arguments += (encode(one.user), one.lane, encode(one.instance))
        reply = await self.link.run("room_join", self._keys(name), arguments)
        if reply is None:
            return None
        outlook = _outlook(name, reply[0], now)
        answers = [
            Joined(
                JoinAnswer(answer[0].decode()),
                None if answer[1] is None else _ticket(one.user, answer[1]),
            )
            for one, answer in zip(joining, reply[1], strict=True)
        ]
        if outlook.free > 0:
            self._tell(name)
        return JoinedAll(answers, outlook)

    async def look(
        self, name: str, users: Sequence[str], now: int, *, alive: bool = False
    ) -> Looked | None:
        return await self._look(name, users, now, "alive" if alive else "look")

    async def heartbeat(self, name: str, users: Sequence[str], now: int) -> Looked | None:
        return await self._look(name, users, now, "heartbeat")

    async def _look(self, name: str, users: Sequence[str], now: int, how: str) -> Looked | None:
        arguments: list[Argument] = [now, self._default, how, *map(encode, users)]
        reply = await self.link.run("room_look", self._keys(name), arguments)
        if reply is None:
            return None
        tickets = [
            None if found is None else _ticket(user, found)
            for user, found in zip(users, reply[1], strict=True)
        ]
        return Looked(tickets, _outlook(name, reply[0], now))

    async def enter(
        self, name: str, passes: Sequence[tuple[str, str]], now: int
    ) -> list[Redeemed] | None:
        arguments: list[Argument] = [now, self._default]
        for user, pass_id in passes:
            arguments += (encode(user), encode(pass_id))
        # A redemption whose answer was lost must not be repeated: it would be told "used".
        reply = await self.link.run("room_enter", self._keys(name), arguments, retry=False)
        if reply is None:
            return None
        return [
            Redeemed(
                EnterAnswer(answer[0].decode()),
                _ticket(user, answer[1]) if len(answer) > 1 else None,
            )
            for (user, _), answer in zip(passes, reply, strict=True)
        ]

    async def leave(
        self, name: str, users: Sequence[str], now: int, state: TicketState = TicketState.LEFT
    ) -> list[Ticket | None] | None:
        arguments: list[Argument] = [now, self._default, WAKE, encode(name), _ENDS[state]]
        arguments += map(encode, users)
        reply = await self.link.run("room_leave", self._keys(name), arguments)
        if reply is None:
            return None
        self._tell(name)
        return [
            None if found is None else _ticket(user, found)
            for user, found in zip(users, reply, strict=True)
        ]

    async def promote(self, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
        size = 1 if self.link.cluster else ROOMS_A_CALL
        done: list[Promotion] = []
        for start in range(0, len(names), size):
            part = names[start : start + size]
            keys = [key for name in part for key in self._keys(name)]
            arguments: list[Argument] = [now, self._default, min(limit, MAX_LIMIT)]
            arguments += map(encode, part)
            replies = await self.link.run("room_promote", keys, arguments)
            done += map(_promotion, part, replies)
        return done

    # --- figures and wake-ups ---

    async def figures(self, name: str, now: int) -> RoomFigures | None:
        reply = await self.link.run("room_figures", self._keys(name), (now, self._default))
        if reply is None:
            return None
        outlook = _outlook(name, reply[0], now)
        waiting, admitted, entered, left, expired, revoked, joined, promoted = reply[1:]
        return RoomFigures(
            state=outlook.state,
            epoch=outlook.room.epoch,
            capacity=outlook.room.settings.capacity,
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
        )

    async def take_due(self, now: int, limit: int) -> list[str]:
        arguments = (now, limit, now + LOOK_EVERY_MS)
        names = await self.link.run("room_due", (ROOMS.encode(),), arguments)
        return [decode(name) for name in names]

    async def discover(self, now: int) -> int:
        if not await self.link.call("SET", SCANNED, now, "NX", "PX", SCAN_EVERY_MS):
            return 0
        found = 0
        for waiting in await self.link.scan(f"{WAITING}*", SCAN_COUNT):
            room = room_of(waiting, cluster=self.link.cluster)
            if room is not None:
                added = int(await self.link.call("ZADD", ROOMS, "NX", now, encode(room)))
                found += added
                if added:
                    self._tell(room)
        return found

    def listen_rooms(self, listener: RoomListener) -> None:
        self._listeners.append(listener)

    async def secret(self, proposed: bytes) -> bytes:
        await self.link.call("SET", SECRET, proposed, "NX")
        kept: bytes = await self.link.call("GET", SECRET)
        return kept

    def heard(self, news: bytes) -> None:
        """Another process says that there is something to do in a room."""
        self._tell(decode(news))

    def _keys(self, name: str) -> tuple[bytes, ...]:
        return room_keys(name, cluster=self.link.cluster)

    async def _look_now(self, name: str, now: int) -> None:
        await self.link.call("ZADD", ROOMS, now, encode(name))
        self._tell(name)

    def _tell(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)


# --- replies → values ---


@lru_cache(maxsize=1024)
def _settings(raw: bytes) -> RoomSettings:
    return msgspec.json.decode(raw, type=RoomSettings)


def _room(name: str, reply: Reply) -> Room:
    return Room(
        name=name,
        settings=_settings(reply[0]),
        state=RoomState(reply[1].decode()),
        epoch=int(reply[2]),
    )


def _outlook(name: str, reply: Reply, now: int) -> Outlook:
    raw, state, epoch, slots, lanes, since, count, before, stored = reply
    return Outlook(
        room=_room(name, (raw, stored, epoch)),
        state=RoomState(state.decode()),
        in_use=slots,
        waiting={
            lane.decode(): number for lane, number in zip(lanes[::2], lanes[1::2], strict=True)
        },
        a_minute=Flow(since, count, before).a_minute(now),
    )


def _ticket(user: str, reply: Reply) -> Ticket:
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


def _promotion(name: str, reply: Reply) -> Promotion:
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
