"""rabbitmq:// passes the conformance suite against a real broker."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import aiormq
import pytest

from penstock.model.envelope import ATTEMPT, DUE, ID, KEY
from penstock.ports.sink import Sink, SinkOptions
from penstock.sinks.rabbitmq import open_sink
from penstock.testing.sink_suite import Arrival, KeyedSinkSuite, RemoteEnd, RemoteSinkSuite, message
from systems.servers.ports import free_port
from systems.servers.rabbitmq import RabbitServer
from tests.servers.gate import Gate

WARM = "warm-up"


class RabbitEnd(RemoteEnd):
    secrets = ("opensesame",)

    def __init__(self, server: RabbitServer, gate: Gate) -> None:
        self._server = server
        self._gate = gate
        self._queue = f"suite-{uuid.uuid4()}"

    async def open(self, options: SinkOptions) -> Sink:
        url = f"rabbitmq://guest:guest@127.0.0.1:{self._gate.port}/{self._queue}"
        more = {"create_topic": True, "password": "opensesame"}
        sink = await open_sink(url, replace(options, more=more))
        # So that a hang meets a send and not a first greeting.
        await sink.send([message(message_id=WARM)])
        return sink

    async def arrivals(self, number: int) -> Sequence[Arrival]:
        connection = await aiormq.connect(self._server.url)
        found: list[Arrival] = []
        try:
            channel = await connection.channel()
            while len(found) < number:
                got = await channel.basic_get(self._queue)
                if not isinstance(got.delivery, aiormq.spec.Basic.GetOk):
                    await asyncio.sleep(0.01)
                    continue
                arrival = _arrival(got)
                if arrival.id != WARM:
                    found.append(arrival)
        finally:
            await connection.close()  # nothing was acked: all is there for the next look
        return found

    async def leave(self) -> None:
        await self._gate.refuse()

    async def hang(self) -> None:
        self._gate.hang()

    async def cut(self) -> None:
        self._gate.cut()

    async def recover(self) -> None:
        await self._gate.recover()


def _arrival(got: aiormq.abc.DeliveredMessage) -> Arrival:
    properties = got.header.properties
    headers = {str(name): str(value) for name, value in (properties.headers or {}).items()}
    assert properties.message_id == headers[ID]
    assert properties.delivery_mode == 2
    return Arrival(
        id=headers[ID],
        attempt=int(headers[ATTEMPT]),
        due=headers[DUE],
        body=got.body,
        content_type=properties.content_type or "",
        headers=headers,
        key=headers[KEY],
    )


class TestRabbitMQSink(RemoteSinkSuite, KeyedSinkSuite):
    @pytest.fixture
    async def end(self, rabbitmq: RabbitServer) -> AsyncIterator[RabbitEnd]:
        async with Gate(free_port(), int(rabbitmq.address.rpartition(":")[2])) as gate:
            yield RabbitEnd(rabbitmq, gate)
