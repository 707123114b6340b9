"""redis://…/stream passes the conformance suite against a real server."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from redis.asyncio import Redis

from penstock.model.envelope import ATTEMPT, DUE, ID
from penstock.ports.sink import Sink, SinkOptions
from penstock.sinks.redis_streams import open_sink
from penstock.testing.sink_suite import Arrival, KeyedSinkSuite, RemoteEnd, RemoteSinkSuite, message
from systems.servers.ports import free_port
from systems.servers.redis import RedisServer
from tests.servers.gate import Gate

WARM = "warm-up"


class StreamEnd(RemoteEnd):
    secrets = ("opensesame",)

    def __init__(self, server: RedisServer, gate: Gate) -> None:
        self._server = server
        self._gate = gate
        self._stream = f"suite-{uuid.uuid4()}"

    async def open(self, options: SinkOptions) -> Sink:
        url = f"redis://127.0.0.1:{self._gate.port}/{self._stream}"
        sink = await open_sink(url, replace(options, more={"create_topic": True}))
        # So that a hang meets a send and not a first greeting.
        await sink.send([message(message_id=WARM)])
        return sink

    async def arrivals(self, number: int) -> Sequence[Arrival]:
        async with Redis(port=self._server.port) as client:
            while True:
                entries: Any = await client.xrange(self._stream)
                found = [a for a in (_arrival(fields) for _, fields in entries) if a.id != WARM]
                if len(found) >= number:
                    return found
                await asyncio.sleep(0.01)

    async def leave(self) -> None:
        await self._gate.refuse()

    async def hang(self) -> None:
        self._gate.hang()

    async def cut(self) -> None:
        self._gate.cut()

    async def recover(self) -> None:
        await self._gate.recover()


def _arrival(raw: dict[bytes, bytes]) -> Arrival:
    body = raw.pop(b"payload")
    fields = {name.decode(): value.decode() for name, value in raw.items()}
    return Arrival(
        id=fields[ID],
        attempt=int(fields[ATTEMPT]),
        due=fields[DUE],
        body=body,
        content_type=fields["content-type"],
        headers=fields,
        key=fields["key"],
    )


class TestStreamSink(RemoteSinkSuite, KeyedSinkSuite):
    @pytest.fixture
    async def end(self, redis: RedisServer) -> AsyncIterator[StreamEnd]:
        async with Gate(free_port(), redis.port) as gate:
            yield StreamEnd(redis, gate)
