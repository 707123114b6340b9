"""FLEET: the heartbeats of all processes, in one hash per store."""

from __future__ import annotations

from penstock.model.fleet import Heartbeat, pack, unpack_all
from penstock.redis_kit.runner import Runner


class Heartbeats:
    """`<prefix>:processes` HASH process → its last heartbeat."""

    def __init__(self, runner: Runner, prefix: str) -> None:
        self._runner = runner
        self._key = f"{prefix}:processes".encode()

    async def put(self, heartbeat: Heartbeat) -> None:
        await self._runner.call("HSET", self._key, heartbeat.id, pack(heartbeat))

    async def all(self) -> list[Heartbeat]:
        return unpack_all(await self._runner.call("HVALS", self._key))

    async def forget(self, before: int) -> None:
        gone = [beat.id for beat in await self.all() if beat.seen < before]
        if gone:
            await self._runner.call("HDEL", self._key, *gone)
