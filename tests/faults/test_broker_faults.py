"""Brokers that refuse, lose their leader or forget ids: nothing is lost or early by it."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from aiormq.abc import FieldTable
from confluent_kafka.admin import (  # type: ignore[attr-defined] # its stubs do not export all of it
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from systems.servers.kafka import KafkaServer
from systems.servers.nats import NatsServer
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer
from tests.faults.campaign import ENOUGH, PATIENCE, arrivals, assert_promises, until_more
from tests.faults.fleet import IN_FLIGHT, Destination, run_fleet
from tests.faults.witnesses import jetstream_witness, kafka_witness, rabbit_witness

pytestmark = pytest.mark.slow


@pytest.fixture
def store() -> Iterator[RedisServer]:
    """A Redis of its own: the workers' store."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def name() -> str:
    return f"faulty-{uuid.uuid4()}"


async def test_rabbitmq_out_of_memory_takes_nothing_and_misses_nothing(
    tmp_path: Path, store: RedisServer, rabbitmq: RabbitServer, name: str
) -> None:
    def watermark(limit: str) -> None:
        rabbitmq.control("set_vm_memory_high_watermark", "absolute", limit)

    async with rabbit_witness(rabbitmq.url, name) as witness:
        to = Destination(f"{rabbitmq.url}/{name}", witness, 'timeout = "1s"')
        async with run_fleet(tmp_path, store.url, to=to, seed=31) as fleet:
            clients = fleet.clients()
            async with clients.running():
                await clients.more(ENOUGH // 2)
                await until_more(witness, 0)
                try:
                    await asyncio.to_thread(watermark, "1MB")  # connection.blocked
                    await clients.more(ENOUGH)
                finally:
                    await asyncio.to_thread(watermark, "2GB")
                await clients.more(ENOUGH // 2)
            verdict = await arrivals(witness, clients.acknowledged)
    # What was sent and not confirmed within the time-out is sent again: RabbitMQ may hold both.
    assert_promises(verdict, duplicates=len(clients.acknowledged))


async def test_a_rabbitmq_queue_whose_leader_dies_misses_nothing(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, store: RedisServer, name: str
) -> None:
    nodes = rabbit_cluster(tmp_path_factory)
    try:
        leader, near, far = nodes
        quorum: FieldTable = {"x-queue-type": "quorum"}
        async with rabbit_witness(leader.url, name, quorum):
            pass  # declared there: that node leads it
        async with rabbit_witness(far.url, name, quorum) as witness:
            to = Destination(f"{near.url}/{name}", witness, 'timeout = "2s"')
            async with run_fleet(tmp_path, store.url, to=to, seed=32) as fleet:
                clients = fleet.clients()
                async with clients.running():
                    await clients.more(ENOUGH // 2)
                    await until_more(witness, 0)
                    await asyncio.to_thread(leader.kill)
                    await clients.more(ENOUGH // 2)
                verdict = await arrivals(witness, clients.acknowledged)
        assert_promises(verdict, duplicates=4 * IN_FLIGHT)
    finally:
        for node in reversed(nodes):
            node.kill()


def rabbit_cluster(folders: pytest.TempPathFactory) -> list[RabbitServer]:
    """Three nodes that find each other by the list in their settings."""
    first = RabbitServer(folders.mktemp("rabbitmq"), management=False)
    others = [
        RabbitServer(folders.mktemp("rabbitmq"), management=False, beside=first) for _ in range(2)
    ]
    nodes = [first, *others]
    try:
        for node in nodes:
            node.peers = nodes
        first.start()  # its cookie is the others'
        with ThreadPoolExecutor() as threads:
            list(threads.map(RabbitServer.start, others))
        end = time.monotonic() + PATIENCE
        while first.evaluate("length(rabbit_mnesia:cluster_nodes(running)).").strip() != "3":
            assert time.monotonic() < end, "the nodes did not find each other"
    except BaseException:
        for node in reversed(nodes):
            node.kill()
        raise
    return nodes


async def test_a_kafka_topic_below_its_least_replicas_takes_nothing_and_misses_nothing(
    tmp_path: Path, store: RedisServer, kafka_process: KafkaServer, name: str
) -> None:
    def require(replicas: int) -> None:
        entry = ConfigEntry(
            "min.insync.replicas", str(replicas), incremental_operation=AlterConfigOpType.SET
        )
        topic = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": kafka_process.address})
        admin.incremental_alter_configs([topic])[topic].result(30)

    kafka_process.create_topic(name, message_timestamp_type="LogAppendTime")
    async with kafka_witness(kafka_process.address, name, tmp_path / "kcat.ndjson") as witness:
        to = Destination(f"kafka://{kafka_process.address}/{name}", witness, 'timeout = "2s"')
        async with run_fleet(tmp_path, store.url, to=to, seed=33) as fleet:
            clients = fleet.clients()
            async with clients.running():
                await clients.more(ENOUGH // 2)
                await until_more(witness, 0)
                await asyncio.to_thread(require, 2)  # it has one
                await clients.more(ENOUGH)
                await asyncio.to_thread(require, 1)
                await clients.more(ENOUGH // 2)
            verdict = await arrivals(witness, clients.acknowledged)
    assert_promises(verdict, duplicates=0)  # refused is not taken: nothing is there twice


async def test_nats_takes_a_repeat_once_it_has_forgotten_the_id(
    tmp_path: Path, store: RedisServer, nats: NatsServer, name: str
) -> None:
    kills = 3
    async with jetstream_witness(nats.url, name, duplicate_window=0.1) as witness:
        to = Destination(f"{nats.url}/{name}", witness)
        async with run_fleet(tmp_path, store.url, to=to, workers=1, seed=34) as fleet:
            clients = fleet.clients()
            async with clients.running():
                for _ in range(kills):
                    before = len(await witness.arrivals())
                    await clients.more(ENOUGH // 2)
                    await until_more(witness, before)
                    await fleet.kill_one(fleet.workers)
            verdict = await arrivals(witness, clients.acknowledged)
    assert_promises(verdict, duplicates=kills * IN_FLIGHT)
