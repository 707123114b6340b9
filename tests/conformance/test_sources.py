"""kafka://, rabbitmq:// and nats:// as sources pass the conformance suite against real brokers."""

import asyncio
import uuid
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal

import aiormq
import nats as nats_client
import pytest
from confluent_kafka import Producer
from pamqp.common import FieldTable

from penstock.ports.source import Source, SourceOptions
from penstock.sources import kafka as kafka_source
from penstock.sources import nats as nats_source
from penstock.sources import rabbitmq as rabbitmq_source
from penstock.testing import poison
from penstock.testing.source_suite import SourceEnd, SourceSuite
from systems.servers.kafka import KafkaServer
from systems.servers.nats import NatsServer
from systems.servers.ports import free_port
from systems.servers.rabbitmq import RabbitServer
from tests.servers.gate import Gate

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

    async def publish_hostile(self, value: bytes) -> int:
        producer = Producer({"bootstrap.servers": self._server.address})
        twice = [("x-trace", b"one"), ("x-trace", b"two"), ("x-null", None)]
        for key in (None, b"", b"\xff\x00", b"k" * 10_000):
            producer.produce(self.name, value, key, headers=[*poison.HEADERS.items(), *twice])
        assert producer.flush(30) == 0
        return 4


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

    async def publish_hostile(self, value: bytes) -> int:
        connection = await aiormq.connect(self._server.url)
        channel = await connection.channel()
        texts: FieldTable = {name: bytearray(text) for name, text in poison.HEADERS.items()}
        texts |= {"CC": [], "BCC": []}
        kinds: FieldTable = {
            "CC": ["nowhere", self.name],
            "x-list": [1, "two", [3.0], {"four": None}],
            "x-table": {"deep": {"deeper": True}},
            "x-moment": datetime(1970, 1, 1, tzinfo=UTC),
            "x-decimal": Decimal("1.5"),
            "x-number": 2**62,
            "x-nothing": None,
            "x-bytes": bytearray(b"\xff"),
        }
        odd = aiormq.spec.Basic.Properties(
            message_id="é" * 100,
            content_type="c" * 255,
            content_encoding="no such",
            correlation_id="\x00",
            priority=255,
            message_type="t" * 255,
            headers=kinds,
        )
        plain = aiormq.spec.Basic.Properties(headers=texts)
        for properties in (plain, odd, aiormq.spec.Basic.Properties()):
            await channel.basic_publish(value, routing_key=self.name, properties=properties)
        await connection.close()
        return 3


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

    async def publish_hostile(self, value: bytes) -> int:
        """By hand: a client checks what a publisher of another kind does not."""
        lines = b"".join(
            name.encode() + b": " + text.replace(b"\r", b"").replace(b"\n", b"") + b"\r\n"
            for name, text in poison.HEADERS.items()
            if name != "Nats-Rollup"  # the stream does not allow it
        )
        blocks = [
            lines,
            b"x-trace: one\r\nx-trace: two\r\n",
            b"no colon\r\n",
            b": no name\r\n",
        ]
        host, _, port = self._server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(b'CONNECT {"headers":true,"verbose":false}\r\n')
        for block in blocks:
            head = b"NATS/1.0\r\n" + block + b"\r\n"
            sizes = b"%d %d" % (len(head), len(head) + len(value))
            writer.write(b"HPUB %s %s\r\n" % (self.name.encode(), sizes) + head + value + b"\r\n")
        writer.write(b"PING\r\n")
        while (line := await reader.readline()) != b"PONG\r\n":
            assert not line.startswith(b"-ERR"), line
        writer.close()
        return len(blocks)


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
