"""kill -9 of a worker that feeds a broker: whoever reads there misses nothing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from systems.servers.kafka import KafkaServer
from systems.servers.nats import NatsServer
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer
from tests.faults.campaign import ENOUGH, arrivals, assert_promises, until_more
from tests.faults.fleet import IN_FLIGHT, Destination, run_fleet
from tests.faults.witnesses import (
    StreamWitness,
    jetstream_witness,
    kafka_witness,
    rabbit_witness,
)

pytestmark = pytest.mark.slow

KILLS = 2


@pytest.fixture
def store() -> Iterator[RedisServer]:
    """A Redis of its own: the workers' store, nobody's broker."""
    with RedisServer() as server:
        yield server


@pytest.fixture
def name() -> str:
    return f"killed-{uuid.uuid4()}"


async def kill_workers(
    folder: Path, store: RedisServer, to: Destination, *, duplicates: int = KILLS * IN_FLIGHT
) -> None:
    """Schedule all the while the only worker is killed and started again; then compare."""
    async with run_fleet(folder, store.url, to=to, workers=1, seed=21) as fleet:
        clients = fleet.clients()
        async with clients.running():
            for _ in range(KILLS):
                before = len(await to.witness.arrivals())
                await clients.more(ENOUGH // 2)
                await until_more(to.witness, before)  # it is at work again
                await fleet.kill_one(fleet.workers)
        verdict = await arrivals(fleet.witness, clients.acknowledged)
    assert_promises(verdict, duplicates=duplicates)


async def test_kafka_misses_nothing(
    tmp_path: Path, store: RedisServer, kafka_process: KafkaServer, name: str
) -> None:
    kafka_process.create_topic(name, message_timestamp_type="LogAppendTime")
    async with kafka_witness(kafka_process.address, name, tmp_path / "kcat.ndjson") as witness:
        to = Destination(f"kafka://{kafka_process.address}/{name}", witness)
        await kill_workers(tmp_path, store, to)


async def test_rabbitmq_misses_nothing(
    tmp_path: Path, store: RedisServer, rabbitmq: RabbitServer, name: str
) -> None:
    async with rabbit_witness(rabbitmq.url, name) as witness:
        to = Destination(f"{rabbitmq.url}/{name}", witness)
        await kill_workers(tmp_path, store, to)


async def test_nats_misses_nothing_and_knows_repeats(
    tmp_path: Path, store: RedisServer, nats: NatsServer, name: str
) -> None:
    async with jetstream_witness(nats.url, name) as witness:
        to = Destination(f"{nats.url}/{name}", witness)
        await kill_workers(tmp_path, store, to, duplicates=0)


async def test_a_redis_stream_misses_nothing(
    tmp_path: Path, store: RedisServer, redis: RedisServer, name: str
) -> None:
    to = Destination(f"redis://127.0.0.1:{redis.port}/{name}", StreamWitness(redis, name))
    await kill_workers(tmp_path, store, to)
