"""kafka:// passes the conformance suite against a real broker."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from confluent_kafka import Consumer
from confluent_kafka import Message as KafkaMessage

from penstock.model.envelope import ATTEMPT, DUE, ID
from penstock.ports.sink import Sink, SinkOptions
from penstock.sinks.kafka import open_sink
from penstock.testing.sink_suite import Arrival, KeyedSinkSuite, RemoteEnd, RemoteSinkSuite, message
from systems.servers.kafka import Kafka, KafkaServer
from tests.servers.gate import Gate

WARM = "warm-up"


class KafkaEnd(RemoteEnd):
    secrets = ("opensesame",)

    def __init__(self, kafka: Kafka, gate: Gate | None = None) -> None:
        self._kafka = kafka
        self._gate = gate
        self._topic = f"suite-{uuid.uuid4()}"
        kafka.create_topic(self._topic)

    async def open(self, options: SinkOptions) -> Sink:
        address = self._kafka.address if self._gate is None else f"127.0.0.1:{self._gate.port}"
        options = replace(options, more={"password": "opensesame"})
        sink = await open_sink(f"kafka://{address}/{self._topic}", options)
        if self._gate is not None:  # so that a hang meets a send and not a first greeting
            await sink.send([message(message_id=WARM)])
        return sink

    async def arrivals(self, number: int) -> Sequence[Arrival]:
        return await asyncio.to_thread(self._read, number)

    def _read(self, number: int) -> list[Arrival]:
        consumer = Consumer(
            {
                "bootstrap.servers": self._kafka.address,
                "group.id": str(uuid.uuid4()),
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe([self._topic])
        found: list[Arrival] = []
        try:
            while len(found) < number or number == 0:
                got = consumer.consume(500, 0.1)
                found += [a for a in map(_arrival, got) if a.id != WARM]
        finally:
            consumer.close()
        return found

    async def leave(self) -> None:
        assert self._gate is not None
        await self._gate.refuse()

    async def hang(self) -> None:
        assert self._gate is not None
        self._gate.hang()

    async def cut(self) -> None:
        assert self._gate is not None
        self._gate.cut()

    async def recover(self) -> None:
        assert self._gate is not None
        await self._gate.recover()


def _arrival(got: KafkaMessage) -> Arrival:
    assert got.error() is None
    carried: Any = got.headers()
    headers = {name: value.decode() for name, value in carried}
    return Arrival(
        id=headers[ID],
        attempt=int(headers[ATTEMPT]),
        due=headers[DUE],
        body=got.value() or b"",
        content_type=headers["content-type"],
        headers=headers,
        key=(got.key() or b"").decode(),
    )


class TestKafkaSink(KeyedSinkSuite):
    @pytest.fixture
    async def end(self, kafka: Kafka) -> KafkaEnd:
        return KafkaEnd(kafka)


class TestKafkaSinkInTrouble(RemoteSinkSuite):
    @pytest.fixture
    async def end(self, kafka_process: KafkaServer) -> AsyncIterator[KafkaEnd]:
        async with Gate(kafka_process.gate_port, kafka_process.gated_port) as gate:
            yield KafkaEnd(kafka_process, gate)
