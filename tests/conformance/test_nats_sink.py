"""nats:// passes the conformance suite against a real server."""

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace

import nats
import pytest
from nats.aio.msg import Msg

from penstock.model.envelope import ATTEMPT, DUE, ID, KEY
from penstock.model.outcome import DELIVERED
from penstock.ports.sink import Sink, SinkOptions
from penstock.sinks.nats import open_sink
from penstock.testing.sink_suite import (
    Arrival,
    KeyedSinkSuite,
    RemoteEnd,
    RemoteSinkSuite,
    SinkEnd,
    message,
)
from systems.servers.nats import NatsServer
from systems.servers.ports import free_port
from tests.servers.gate import Gate

WARM = "warm-up"


class NatsEnd(RemoteEnd):
    secrets = ("opensesame",)

    def __init__(self, server: NatsServer, gate: Gate) -> None:
        self._server = server
        self._gate = gate
        self._subject = f"suite.{uuid.uuid4()}"

    async def open(self, options: SinkOptions) -> Sink:
        url = f"nats://ali:opensesame@127.0.0.1:{self._gate.port}/{self._subject}"
        sink = await open_sink(url, replace(options, more={"create_topic": True}))
        # So that a hang meets a send and not a first greeting.
        await sink.send([message(message_id=WARM)])
        return sink

    async def arrivals(self, number: int) -> Sequence[Arrival]:
        client = await nats.connect(self._server.url)
        found: list[Arrival] = []
        try:
            reading = await client.jetstream().subscribe(self._subject, ordered_consumer=True)
            while len(found) < number:
                arrival = _arrival(await reading.next_msg(timeout=300))
                if arrival.id != WARM:
                    found.append(arrival)
        finally:
            await client.close()
        return found

    async def leave(self) -> None:
        await self._gate.refuse()

    async def hang(self) -> None:
        self._gate.hang()

    async def cut(self) -> None:
        self._gate.cut()

    async def recover(self) -> None:
        await self._gate.recover()


def _arrival(got: Msg) -> Arrival:
    headers = got.headers or {}
    if len(headers["Nats-Msg-Id"]) != 64:  # a digest, where the client drops blanks of an id
        assert headers["Nats-Msg-Id"] == headers[ID]
    return Arrival(
        id=headers[ID],
        attempt=int(headers[ATTEMPT]),
        due=headers[DUE],
        body=got.data,
        content_type=headers["content-type"],
        headers=headers,
        key=headers[KEY],
    )


class TestNatsSink(RemoteSinkSuite, KeyedSinkSuite):
    @pytest.fixture
    async def end(self, nats: NatsServer) -> AsyncIterator[NatsEnd]:
        async with Gate(free_port(), int(nats.address.rpartition(":")[2])) as gate:
            yield NatsEnd(nats, gate)

    async def test_a_repeat_has_the_same_id_and_a_higher_attempt(
        self, sink: Sink, end: SinkEnd
    ) -> None:
        """JetStream knows the id: the repeat is acknowledged and not kept a second time."""
        assert await sink.send([message(1, attempt=1)]) == [DELIVERED]
        assert await sink.send([message(1, attempt=2)]) == [DELIVERED]
        assert await sink.send([message(2, attempt=2)]) == [DELIVERED]
        arrived = await end.arrivals(2)
        assert [(a.id, a.attempt) for a in arrived] == [("m-1", 1), ("m-2", 2)]
