"""Waiting rooms on Redis, in the Dispatcher's keys."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

import msgspec

from penstock.model.room import (
    DEFAULT_CAPACITY,
    Room,
    RoomFigures,
    RoomSettings,
    RoomState,
    first_state,
)
from penstock.model.room_admission import LOOK_EVERY_MS
from penstock.model.ticket import (
    EnterAnswer,
    JoinAnswer,
    Joined,
    JoinedAll,
    Joining,
    Looked,
    Promotion,
    Redeemed,
    Ticket,
    TicketState,
)
from penstock.ports.rooms import RoomListener, TurnListener, WaitingVisitors
from penstock.redis_kit.connect import Argument, Cursors
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.rooms.keys import TURNS, RoomRunner, decode, encode
from penstock.stores.redis.rooms.replies import (
    figures_of,
    outlook_of,
    promotion_of,
    room_of_reply,
    ticket_of,
)
from penstock.stores.redis.rooms.watch import RoomWatch
from penstock.time.clock import Clock

_PUT = Script("stores/redis/rooms/put.lua")
_STATE = Script("stores/redis/rooms/state.lua")
_JOIN = Script("stores/redis/rooms/join.lua")
_LOOK = Script("stores/redis/rooms/look.lua")
_ENTER = Script("stores/redis/rooms/enter.lua")
_LEAVE = Script("stores/redis/rooms/leave.lua")
_PROMOTE = Script("stores/redis/rooms/promote.lua")
_FIGURES = Script("stores/redis/rooms/figures.lua")
_DUE = Script("stores/redis/rooms/due.lua")

log = logging.getLogger("penstock.rooms.redis")

SCAN_EVERY_MS = 700
"""Less than a second, so that a room is found and promoted within one second."""
SCAN_TO_BE_SURE_MS = 10_000
"""Interval of a full search if the server notifies of new rooms: it finds the missed ones."""
ENDS_FOR_ALL = 2
"""Searches that must end for a full pass: the first may have begun in the middle."""
SCAN_COUNT = 1_000
SCAN_STEPS = 100
"""SCAN steps per search: a server of up to a hundred thousand keys is searched at once, one of a
million in some seconds, and a search never takes more than a sixth of its time."""
ROOMS_A_CALL = 50
"""Rooms promoted in one call: a longer one would block the server."""
MAX_LIMIT = 500
"""Most admissions in one step: a script's arguments are limited."""

_cursors = msgspec.json.Decoder(Cursors)
_ENDS = {TicketState.LEFT: "L", TicketState.REVOKED: "R"}


class RedisRooms:
    """A RoomStore: every step of a room is one atomic script."""

    def __init__(
        self,
        runner: RoomRunner,
        clock: Clock,
        capacity: int = DEFAULT_CAPACITY,
        *,
        serves_all: bool = True,
    ) -> None:
        """Without `serves_all`, only rooms that were PUT are found and promoted."""
        self.runner = runner
        self._serves_all = serves_all
        self._names = runner.names
        self._clock = clock
        self._default = msgspec.json.encode(RoomSettings(capacity=capacity))
        self._listeners: list[RoomListener] = []
        self._turn_listeners: list[TurnListener] = []
        self.watch: RoomWatch | None = None
        """Notifies of new rooms at once, if the server supports client tracking."""
        self._passes = 0
        """Searches completed while notifications were received."""
        self._search_at = 0

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
        reply = await self.runner.execute(_PUT, self._keys(name), arguments)
        await self._look_now(name, now, put=True)
        return room_of_reply(name, reply)

    async def rooms(self, names: Sequence[str]) -> list[Room | None]:
        return [await self._room(name) for name in names]

    async def _room(self, name: str) -> Room | None:
        keys = self._keys(name)
        found = await self.runner.call("HMGET", keys[0], "settings", "state", "epoch")
        if found[2] is None:
            if not await self.runner.call("EXISTS", keys[2]):
                return None
            found = [None, b"open", b"1"]
        return room_of_reply(name, [found[0] or self._default, found[1], found[2]])

    async def list_rooms(self, after: str, limit: int) -> list[str]:
        names = sorted(
            decode(name) for name in await self.runner.call("ZRANGE", self._names.rooms, 0, -1)
        )
        return [name for name in names if name > after][:limit]

    async def set_state(self, name: str, state: RoomState, now: int) -> Room | None:
        return await self._set(name, state.value, now)

    async def reset(self, name: str, now: int) -> Room | None:
        return await self._set(name, "reset", now)

    async def _set(self, name: str, what: str, now: int) -> Room | None:
        reply = await self.runner.execute(_STATE, self._keys(name), (now, self._default, what))
        if reply is None:
            return None
        await self._look_now(name, now, put=await self._was_put(name))
        return room_of_reply(name, reply)

    # --- visitors ---

    async def join(self, name: str, joining: Sequence[Joining], now: int) -> JoinedAll | None:
        arguments: list[Argument] = [now, self._default, self._names.wake, encode(name)]
        for one in joining:
            arguments += (encode(one.user), one.lane, encode(one.instance))
        reply = await self.runner.execute(_JOIN, self._keys(name), arguments)
        if reply is None:
            return None
        outlook = outlook_of(name, reply[0], now)
        answers = [
            Joined(
                JoinAnswer(answer[0].decode()),
                None if answer[1] is None else ticket_of(one.user, answer[1]),
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
        reply = await self.runner.execute(_LOOK, self._keys(name), arguments)
        if reply is None:
            return None
        tickets = [
            None if found is None else ticket_of(user, found)
            for user, found in zip(users, reply[1], strict=True)
        ]
        return Looked(tickets, outlook_of(name, reply[0], now))

    async def enter(
        self, name: str, passes: Sequence[tuple[str, str]], now: int
    ) -> list[Redeemed] | None:
        arguments: list[Argument] = [now, self._default]
        for user, pass_id in passes:
            arguments += (encode(user), encode(pass_id))
        # A redemption whose answer was lost must not be repeated: the answer would be USED.
        reply = await self.runner.execute(_ENTER, self._keys(name), arguments, retry=False)
        if reply is None:
            return None
        return [
            Redeemed(
                EnterAnswer(answer[0].decode()),
                ticket_of(user, answer[1]) if len(answer) > 1 else None,
            )
            for (user, _), answer in zip(passes, reply, strict=True)
        ]

    async def leave(
        self, name: str, users: Sequence[str], now: int, state: TicketState = TicketState.LEFT
    ) -> list[Ticket | None] | None:
        arguments: list[Argument] = [
            now,
            self._default,
            self._names.wake,
            encode(name),
            _ENDS[state],
        ]
        arguments += map(encode, users)
        reply = await self.runner.execute(_LEAVE, self._keys(name), arguments)
        if reply is None:
            return None
        self._tell(name)
        return [
            None if found is None else ticket_of(user, found)
            for user, found in zip(users, reply, strict=True)
        ]

    async def promote(self, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
        if len(names) <= self._a_call:
            return await self._promote(names, now, limit)
        # In a cluster every room is a call of its own: they are sent concurrently.
        parts = await asyncio.gather(
            *(self._promote(part, now, limit) for part in self._calls(names))
        )
        return [promotion for part in parts for promotion in part]

    async def _promote(self, names: Sequence[str], now: int, limit: int) -> list[Promotion]:
        keys = [key for name in names for key in self._keys(name)]
        default = self._default if self._serves_all else b""
        arguments: list[Argument] = [now, default, min(limit, MAX_LIMIT), self._names.wake]
        arguments += map(encode, names)
        replies = await self.runner.execute(_PROMOTE, keys, arguments)
        return list(map(promotion_of, names, replies))

    # --- figures and wake-ups ---

    async def figures(self, names: Sequence[str], now: int) -> list[RoomFigures | None]:
        found: list[RoomFigures | None] = []
        for part in self._calls(names):
            keys = [key for name in part for key in self._keys(name)]
            replies = await self.runner.execute(_FIGURES, keys, (now, self._default))
            found += [
                None if reply is None else figures_of(name, reply, now)
                for name, reply in zip(part, replies, strict=True)
            ]
        return found

    async def take_due(self, now: int, limit: int) -> list[str]:
        arguments = (now, limit, now + LOOK_EVERY_MS)
        rooms = self._names.rooms if self._serves_all else self._names.put
        names = await self.runner.execute(_DUE, (rooms.encode(),), arguments)
        return [decode(name) for name in names]

    async def discover(self, now: int) -> int | None:
        if not self._serves_all:
            return None
        if self.watch is not None:
            self.watch.wanted.set()
        if not self._must_search(now):
            return 0
        if not await self.runner.call("SET", self._names.scanned, now, "NX", "PX", SCAN_EVERY_MS):
            return 0
        heard = self._hears
        kept = await self.runner.call("GET", self._names.cursor)
        cursors = _cursors.decode(kept) if kept else {}
        found = 0
        for _ in range(SCAN_STEPS):
            keys, cursors = await self.runner.scan(cursors, self._names.lines, SCAN_COUNT)
            found += await self._know(keys, now)
            if not cursors:
                self._passes += heard
                break
        await self.runner.call("SET", self._names.cursor, msgspec.json.encode(cursors))
        return found

    @property
    def _hears(self) -> bool:
        return self.watch is not None and self.watch.hears

    def _must_search(self, now: int) -> bool:
        """Search until a full pass was made while notified; from then on every 10 s."""
        if not self._hears:
            self._passes = 0
        elif self._passes >= ENDS_FOR_ALL and now < self._search_at:
            return False
        self._search_at = now + SCAN_TO_BE_SURE_MS
        return True

    async def learn(self, keys: Sequence[bytes]) -> None:
        """Register the new rooms among keys that another program wrote."""
        new = await self._unknown(keys)
        lines = [key for key in new if await self.runner.call("TYPE", key) == b"zset"]
        await self._know(lines, self._clock.now())

    def written(self, name: str) -> None:
        """Promote a room that another program changed."""
        self._tell(name)

    async def _unknown(self, keys: Sequence[bytes]) -> list[bytes]:
        """The keys whose rooms no process promotes yet."""
        named = [(key, self._names.room_of(key)) for key in keys]
        rooms = [(key, encode(room)) for key, room in named if room is not None]
        if not rooms:
            return []
        known = await self.runner.call("ZMSCORE", self._names.rooms, *(name for _, name in rooms))
        return [key for (key, _), score in zip(rooms, known, strict=True) if score is None]

    async def _know(self, keys: Sequence[bytes], now: int) -> int:
        """Register these rooms for promotion; the answer is the number of new ones."""
        found = [self._names.room_of(key) for key in await self._unknown(keys)]
        new = [room for room in found if room is not None]
        if new:
            rows = [argument for room in new for argument in (now, encode(room))]
            await self.runner.call("ZADD", self._names.rooms, "NX", *rows)
        for room in new:
            self._tell(room)
        return len(new)

    def listen_rooms(self, listener: RoomListener) -> None:
        self._listeners.append(listener)

    def listen_turns(self, listener: TurnListener) -> None:
        self._turn_listeners.append(listener)

    async def turns_elsewhere(self, waiting: WaitingVisitors) -> dict[str, list[str]]:
        del waiting  # the scripts publish the waiting visitors
        return {}

    async def secret(self, proposed: bytes) -> bytes:
        await self.runner.call("SET", self._names.secret, proposed, "NX")
        kept: bytes = await self.runner.call("GET", self._names.secret)
        return kept

    def heard(self, news: bytes) -> None:
        """Handle a publication: a room with work to do, or the visitors admitted to it."""
        if not news.startswith(TURNS):
            self._tell(decode(news))
        elif self._turn_listeners:
            for turns in decode(news[1:]).split("\0\0"):
                room, *users = turns.split("\0")
                for listener in self._turn_listeners:
                    listener(room, users)

    def _keys(self, name: str) -> list[bytes]:
        return self._names.of_room(name)

    @property
    def _a_call(self) -> int:
        return 1 if self.runner.cluster else ROOMS_A_CALL

    def _calls(self, names: Sequence[str]) -> Iterator[Sequence[str]]:
        """Groups of rooms for one call each: in a cluster each room has a slot of its own."""
        for start in range(0, len(names), self._a_call):
            yield names[start : start + self._a_call]

    async def _was_put(self, name: str) -> bool:
        return bool(await self.runner.call("HEXISTS", self._keys(name)[0], "settings"))

    async def _look_now(self, name: str, now: int, *, put: bool) -> None:
        if put:
            await self.runner.call("ZADD", self._names.put, now, encode(name))
        await self.runner.call("ZADD", self._names.rooms, now, encode(name))
        self._tell(name)

    def _tell(self, name: str) -> None:
        for listener in self._listeners:
            listener(name)
