"""FLEET: heartbeats in one hash of the whole store."""

from __future__ import annotations

import logging

import msgspec

from penstock.model.fleet import Heartbeat
from penstock.stores.redis.scripts import Runner

log = logging.getLogger("penstock.stores.redis")

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Heartbeat)


class Heartbeats:
    """`<prefix>:processes` HASH process → its last heartbeat."""

    def __init__(self, runner: Runner, prefix: str) -> None:
        self._runner = runner
        self._key = f"{prefix}:processes".encode()

    async def put(self, heartbeat: Heartbeat) -> None:
        await self._runner.call(0, "HSET", self._key, heartbeat.id, _encoder.encode(heartbeat))

    async def all(self) -> list[Heartbeat]:
        # A client may answer a hash as a mapping or as a flat list: only bodies are wanted.
        found = []
        for body in await self._runner.call(0, "HVALS", self._key):
            try:
                found.append(_decoder.decode(body))
            except msgspec.MsgspecError as exc:
                log.debug("a heartbeat of another version is left out: %s", exc)
        return found

    async def forget(self, before: int) -> None:
        gone = [beat.id for beat in await self.all() if beat.seen < before]
        if gone:
            await self._runner.call(0, "HDEL", self._key, *gone)
