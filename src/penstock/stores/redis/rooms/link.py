"""How rooms reach Redis: one small seam, with the Dispatcher's care about failures.

A call that could not be made is tried three times more, a second apart; then the breaker opens
and callers are answered at once, until one that tries again gets through.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import NamedTuple

from redis import exceptions as vendor

from penstock.model.durations import Durations
from penstock.model.errors import PenstockError, StoreCorrupt, StoreUnavailable
from penstock.redis_kit.address import PREFIX
from penstock.redis_kit.connect import Argument, Cursors, Reply, Server
from penstock.redis_kit.errors import Vendor
from penstock.stores.redis.rooms.keys import RoomNames

RETRIES = 3
RETRY_SECONDS = 1.0
OPEN_SECONDS = 5.0
"""How long the breaker stays open before one call may try again."""


GROUP_IS_THERE = "BUSYGROUP"
"""Begins the answer to whoever makes a consumer group that another made before: nothing failed."""


class Script(NamedTuple):
    name: str
    source: bytes
    sha: str


@lru_cache(maxsize=32)
def load(name: str) -> Script:
    """`lua/<name>.lua` with what all room scripts share before it."""
    folder = files("penstock.stores.redis") / "lua"
    shared = (folder / "room_common.lua").read_bytes()
    source = shared + b"\n" + (folder / f"{name}.lua").read_bytes()
    return Script(name, source, hashlib.sha1(source, usedforsecurity=False).hexdigest())


class Link:
    """Calls that raise only our errors, and count what went wrong."""

    def __init__(
        self,
        server: Server,
        name: str,
        prefix: str = PREFIX,
        *,
        retry_seconds: float = RETRY_SECONDS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self.server = server
        self.name = name
        self.names = RoomNames(prefix, cluster=server.cluster)
        self.errors = 0
        """Calls that failed, the repeated ones counted."""
        self.scripts = Durations()
        """Of calls of scripts that were answered."""
        self._retry_seconds = retry_seconds
        self._monotonic = monotonic
        self._open_until = 0.0
        self._reason = ""
        """What the last call failed by."""

    @property
    def cluster(self) -> bool:
        return self.server.cluster

    @property
    def seconds(self) -> float:
        """Now, on the clock by which scripts are timed."""
        return self._monotonic()

    @property
    def is_open(self) -> bool:
        """The breaker: nothing is sent now."""
        return self._monotonic() < self._open_until

    async def run(
        self, name: str, keys: Sequence[bytes], arguments: Sequence[Argument], *, retry: bool = True
    ) -> Reply:
        """A script. Every one of ours may be repeated when its answer was lost."""
        script = load(name)
        begun = self._monotonic()
        reply = await self._tried(
            ("EVALSHA", script.sha, len(keys), *keys, *arguments), script, retry=retry
        )
        ended = self._monotonic()
        self.scripts.add(ended - begun, ended)
        return reply

    async def call(self, *command: Argument, retry: bool = True) -> Reply:
        return await self._tried(command, None, retry=retry)

    async def scan(self, cursors: Cursors, match: str, count: int) -> tuple[list[bytes], Cursors]:
        """One step of a pass over every primary: sorted sets of that name, and how to go on."""
        try:
            return await self.server.scan(cursors, match, count, "zset")
        except Vendor as exc:
            self.errors += 1
            raise self._translated(exc) from exc

    async def _tried(
        self, command: Sequence[Argument], script: Script | None, *, retry: bool
    ) -> Reply:
        if self.is_open:
            left = self._open_until - self._monotonic()
            raise StoreUnavailable(self._reason, retry_after=max(0.1, left))
        for left in range(RETRIES if retry else 0, -1, -1):
            try:
                reply = await self._send(command, script)
            except Vendor as exc:
                self.errors += not str(exc).startswith(GROUP_IS_THERE)
                if left == 0 or not _is_transient(exc):
                    raise self._translated(exc) from exc
                await asyncio.sleep(self._retry_seconds)
            else:
                self._open_until = 0.0
                return reply
        raise AssertionError("the last try returns or raises")

    async def _send(self, command: Sequence[Argument], script: Script | None) -> Reply:
        try:
            return await self.server.call(*command)
        except vendor.NoScriptError:
            if script is None:
                raise
            # A server that was restarted, flushed or took over: hand it the source this once.
            return await self.server.call("EVAL", script.source, *command[2:])

    def _translated(self, exc: Exception) -> PenstockError:
        if isinstance(exc, vendor.ResponseError) and not _is_transient(exc):
            return StoreCorrupt(f"{self.name}: {exc}")
        self._open_until = self._monotonic() + OPEN_SECONDS
        self._reason = f"{self.name} is away: {exc}"
        return StoreUnavailable(self._reason, retry_after=OPEN_SECONDS)


_BUSY = (
    *("LOADING", "BUSY ", "OOM", "MISCONF", "READONLY", "CLUSTERDOWN", "MASTERDOWN", "TRYAGAIN"),
    "UNBLOCKED",
)
"""Beginnings of answers that another try may change; a stream that was flushed unblocks readers."""


def _is_transient(exc: Exception) -> bool:
    if isinstance(exc, vendor.AuthenticationError):
        return False
    if isinstance(exc, vendor.ResponseError) and not isinstance(exc, vendor.ReadOnlyError):
        return str(exc).startswith(_BUSY)
    return True
