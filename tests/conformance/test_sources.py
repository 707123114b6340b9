"""kafka://, rabbitmq:// and nats:// as sources pass the conformance suite against real brokers."""

import uuid
from collections.abc import AsyncIterator, Sequence

import aiormq
import nats as nats_client
import pytest
from confluent_kafka import Producer

from penstock.ports.source import Source, SourceOptions
from penstock.sources import kafka as kafka_source
from penstock.sources import nats as nats_source
from penstock.sources import rabbitmq as rabbitmq_source
from penstock.testing.source_suite import SourceEnd, SourceSuite
from tests.servers.gate import Gate
from tests.servers.kafka import KafkaServer
from tests.servers.nats import NatsServer
from tests.servers.ports import free_port
from tests.servers.rabbitmq import RabbitServer

HEADERS = {"x-trace": "a b"}


class GatedEnd(SourceEnd):
    secrets = ("opensesame",)

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.name = f"suite.{uuid.uuid4()}"

    async def leave(self) -> None:
        await self.gate.refuse()

    async def recover(self) -> None:
        await self.gate.recover()

    def options(self, **more: object) -> SourceOptions:
        given = {"create_topic": True, "password": "opensesame", **more}
        return SourceOptions(source="suite", more=given)


class KafkaSourceEnd(GatedEnd):
    def __init__(self, server: KafkaServer, gate: Gate) -> None:
        super().__init__(gate)
        self._server = server
        server.create_topic(self.name)

    async def open(self) -> Source:
        url = f"kafka://127.0.0.1:{self.gate.port}/{self.name}"
        return await kafka_source.open_source(url, self.options(group=self.name))

    async def publish(self, values: Sequence[bytes]) -> None:
        producer = Producer({"bootstrap.servers": self._server.address})
        for value in values:
            producer.produce(self.name, value, headers=[*HEADERS.items()])
        assert producer.flush(30) == 0


class RabbitSourceEnd(GatedEnd):
    def __init__(self, server: RabbitServer, gate: Gate) -> None:
        super().__init__(gate)
        self._server = server

    async def open(self) -> Source:
        url = f"rabbitmq://guest:guest@127.0.0.1:{self.gate.port}/{self.name}"
        return await rabbitmq_source.open_source(url, self.options())

    async def publish(self, values: Sequence[bytes]) -> None:
        connection = await aiormq.connect(self._server.url)
        channel = await connection.channel()
        await channel.queue_declare(self.name, durable=True)
        for value in values:
            properties = aiormq.spec.Basic.Properties(
                message_id=str(uuid.uuid4()), headers={**HEADERS}
            )
            await channel.basic_publish(value, routing_key=self.name, properties=properties)
        await connection.close()


class NatsSourceEnd(GatedEnd):
    def __init__(self, server: NatsServer, gate: Gate) -> None:
        super().__init__(gate)
        self._server = server

    async def open(self) -> Source:
        url = f"nats://ali:opensesame@127.0.0.1:{self.gate.port}/{self.name}"
        return await nats_source.open_source(url, self.options(group=self.name, ack_wait=1.0))

    async def publish(self, values: Sequence[bytes]) -> None:
        client = await nats_client.connect(self._server.url)
        js = client.jetstream()
        await js.add_stream(name=self.name.replace(".", "_"), subjects=[self.name])
        for value in values:
            await js.publish(self.name, value, headers={**HEADERS})
        await client.close()


class TestKafkaSource(SourceSuite):
    @pytest.fixture
    async def end(self, kafka_process: KafkaServer) -> AsyncIterator[KafkaSourceEnd]:
        async with Gate(kafka_process.gate_port, kafka_process.gated_port) as gate:
            yield KafkaSourceEnd(kafka_process, gate)


class TestRabbitMQSource(SourceSuite):
    @pytest.fixture
    async def end(self, rabbitmq: RabbitServer) -> AsyncIterator[RabbitSourceEnd]:
        async with Gate(free_port(), int(rabbitmq.address.rpartition(":")[2])) as gate:
            yield RabbitSourceEnd(rabbitmq, gate)


class TestNatsSource(SourceSuite):
    @pytest.fixture
    async def end(self, nats: NatsServer) -> AsyncIterator[NatsSourceEnd]:
        async with Gate(free_port(), int(nats.address.rpartition(":")[2])) as gate:
            yield NatsSourceEnd(nats, gate)
