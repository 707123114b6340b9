"""Learns at once of other programs' writes to rooms.

Redis notifies of every line, record and count of slots that is written (client tracking in
broadcasting mode: it stores no keys for that, and needs no setting). A server that does not support
it is searched by SCAN alone, and regular rounds find what changed in a room; so is a cluster, where
each node would notify of its own keys only.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from redis import exceptions as vendor
from redis.asyncio.client import PubSub

from penstock.model.errors import PenstockError
from penstock.redis_kit.connect import Server
from penstock.redis_kit.errors import is_transient
from penstock.redis_kit.wake import Wakeups
from penstock.stores.redis.rooms.keys import RoomNames

log = logging.getLogger("penstock.rooms.redis")

CHANNEL = "__redis__:invalidate"
TOGETHER_SECONDS = 0.05
"""Writes of one room within this time cause one promotion."""
MAX_KNOWN = 100_000
"""Most keys remembered as known; past it, each is looked up once again."""


class _CannotTellError(Exception):
    """The server has no client tracking, or forbids it."""


class RoomNews(Wakeups):
    """Passes on the publications of all processes' scripts about rooms."""

    def __init__(self, server: Server, channel: str, heard: Callable[[bytes], None]) -> None:
        super().__init__(server, channel)
        self._tell_rooms = heard

    def _heard(self, news: bytes) -> None:
        self._tell_rooms(news)


class RoomWatch(Wakeups):
    """Finds new lines, and rooms that other programs wrote."""

    def __init__(
        self,
        server: Server,
        names: RoomNames,
        learn: Callable[[Sequence[bytes]], Awaitable[object]],
        written: Callable[[str], None],
    ) -> None:
        """`learn` is called with new lines, `written` with each room whose keys were written."""
        super().__init__(server, CHANNEL)
        self._names = names
        self._learn = learn
        self._written = written
        self._rooms: set[str] = set()
        """Rooms whose keys were written, to be reported together."""
        self._known: set[bytes] = set()
        self._new: set[bytes] = set()
        self._some = asyncio.Event()
        self.wanted = asyncio.Event()
        """Set by the first search; no tracking is requested before."""

    @property
    def hears(self) -> bool:
        return self.subscribed.is_set()

    async def run(self) -> None:
        """Run until cancelled, or until the server refuses client tracking."""
        await self.wanted.wait()
        learning = asyncio.create_task(self._learn_new(), name="penstock-room-learn")
        try:
            await self.listen()
        except _CannotTellError as exc:
            log.info(
                "rooms: no client tracking, other programs' rooms are found by SCAN alone: %s", exc
            )
        finally:
            learning.cancel()
            await asyncio.wait([learning])

    async def _before_subscribing(self, pubsub: PubSub) -> None:
        await pubsub.connect()  # type: ignore[no-untyped-call]
        try:
            me = await _ask(pubsub, "CLIENT", "ID")
            begins = (word for begin in self._names.foreign for word in ("PREFIX", begin))
            await _ask(pubsub, "CLIENT", "TRACKING", "ON", "REDIRECT", me, "BCAST", *begins)
        except vendor.ResponseError as exc:
            if is_transient(exc):
                raise
            raise _CannotTellError(str(exc)) from exc

    def _heard(self, news: Any) -> None:
        if news is None:  # every key was flushed
            self._known.clear()
            return
        rooms = {room for key in news if (room := self._names.room_written(key)) is not None}
        if rooms and not self._rooms:
            asyncio.get_running_loop().call_later(TOGETHER_SECONDS, self._tell)
        self._rooms |= rooms
        lines = {key for key in news if self._names.room_of(key) is not None}
        new = lines - self._known
        if new:
            self._new |= new
            self._some.set()

    def _tell(self) -> None:
        rooms, self._rooms = self._rooms, set()
        for room in rooms:
            self._written(room)

    async def _learn_new(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            new, self._new = self._new, set()
            try:
                await self._learn(sorted(new))
            except PenstockError as exc:
                log.debug(
                    "rooms: new rooms could not be registered, the next SCAN finds them: %s", exc
                )
                continue
            if len(self._known) + len(new) > MAX_KNOWN:
                self._known.clear()
            self._known |= new


async def _ask(pubsub: PubSub, *command: str | int) -> int:
    """Send a command on the subscribed connection."""
    connection: Any = pubsub.connection  # its type is None, as it is before the connection is made
    await connection.send_command(*command)
    answer: int = await connection.read_response()
    return answer
