"""kill -9 of a busy worker, 20 times for each store and sink: how many messages come twice.

A worker drains a due backlog. It is killed after a random number of arrivals and started again at
once, 20 times; a last one drains the rest. A message that arrived before a kill and again after it
is a repeat of that kill. Nothing may be lost.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aio_pika
import nats
import uvloop
from confluent_kafka import Consumer, TopicPartition
from redis.asyncio import Redis

import penstock
from bench.report import Report
from bench.sqlite_limits import folder
from bench.workload import drafts
from penstock.model.state import State
from penstock.sim.receiver import Receiver
from penstock.sim.requests import Received
from systems.servers.kafka import KafkaServer, kafka_jars
from systems.servers.nats import NatsServer
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer
from tests.faults.witnesses import Listener

KILLS = 20
LEASE = 2
LOOK = 0.002
"""Seconds between looks at how many have arrived."""
QUIET = 0.5
"""Seconds without an arrival after which nothing is on its way any more."""
MOST = 100
"""Repeats per kill that are aimed at."""
CONFIG = """
store = "{store}"
[worker]
metrics = "off"
lease = "{lease}s"
[routes.default]
sink = "{sink}"
max_attempts = 1000
"""
"""Attempts for all of the kills: a message that a worker had claimed when it was killed has used
one, sent or not."""
ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Arrived:
    """One message at the receiver, and when."""

    id: str
    at: int


@dataclass(frozen=True, slots=True)
class End:
    """A receiver: where a route leads to, and what came there."""

    sink: str
    number: Callable[[], Awaitable[int]]
    arrivals: Callable[[], Awaitable[list[Arrived]]]
    moment: Callable[[], Awaitable[int]] | None = None
    """Now, in the unit of an arrival's `at`. None: milliseconds by the clock."""


Ends = Callable[[Path], AbstractAsyncContextManager[End]]


@dataclass(frozen=True, slots=True)
class Case:
    """A store and a sink; a worker is killed after so many arrivals."""

    name: str
    store: str
    end: Ends
    after: range

    @property
    def backlog(self) -> int:
        """Enough for every kill, a batch beyond each number included."""
        return KILLS * self.after.stop


def main(*, kills: int = KILLS) -> None:
    report = Report("kill", f"repeats per kill -9 of a busy worker, {kills} kills each")
    with folder() as at, ExitStack() as stack:
        store, other = (stack.enter_context(RedisServer(aof=True)) for _ in range(2))
        rabbit = RabbitServer(at / "rabbitmq", management=False)
        rabbit.start()
        stack.callback(rabbit.kill)
        jars = kafka_jars()
        if jars is None:
            raise RuntimeError("Kafka is not there: run scripts/install-servers")
        kafka, jetstream = KafkaServer(at / "kafka", jars), NatsServer(at / "nats")
        for server in (kafka, jetstream):
            server.start()
            stack.callback(server.stop)
        for case in cases(at, store, other, rabbit, kafka, jetstream):
            store.flush()
            other.flush()
            place = at / case.name.replace(" ", "-").replace(",", "")
            place.mkdir()
            repeats = uvloop.run(_repeats(case, place, kills))
            low, high = min(repeats), max(repeats)
            report.add(
                f"{case.name} ({low:,} to {high:,})",
                statistics.median(repeats),
                "repeats per kill, median",
                aim=f"<= {MOST}",
            )
    report.finish()


def cases(
    at: Path,
    store: RedisServer,
    other: RedisServer,
    rabbit: RabbitServer,
    kafka: KafkaServer,
    jetstream: NatsServer,
) -> list[Case]:
    sqlite = f"sqlite:///{at}/{{}}.db"
    found = [
        Case(f"{kind}, {what}", url.format(what.replace(" ", "-")), end, after)
        for kind, url in (("SQLite", sqlite), ("Redis", store.url))
        for what, end, after in (
            ("batch handler", handler("many"), range(500, 2_500)),
            ("handler", handler("one"), range(300, 1_500)),
            ("webhook", webhook, range(100, 500)),
        )
    ]
    return [
        *found,
        Case("Redis, Redis stream elsewhere", store.url, stream(other), range(500, 2_500)),
        Case("Redis, stream in the same Redis", store.url, stream(store), range(500, 2_500)),
        Case("Redis, RabbitMQ", store.url, queue(rabbit), range(500, 2_500)),
        Case("Redis, Kafka", store.url, topic(kafka), range(500, 2_500)),
        Case("Redis, NATS", store.url, subject(jetstream), range(500, 2_500)),
    ]


async def _repeats(case: Case, place: Path, kills: int) -> list[int]:
    """By kill."""
    chance = random.Random(case.name)
    async with case.end(place) as end, penstock.open(case.store) as engine:
        await engine.schedule_many(drafts(case.backlog, delay=0))
        config = place / "penstock.toml"
        config.write_text(CONFIG.format(store=case.store, sink=end.sink, lease=LEASE))
        killed: list[int] = []
        for _ in range(kills):
            with worker_process(config, place) as worker:
                enough = min(await end.number() + chance.choice(case.after), case.backlog - 1)
                await _until(worker, end.number, enough)
                worker.kill()
                worker.wait()
            await _all_come(end)
            killed.append(engine.clock.now() if end.moment is None else await end.moment())
        with worker_process(config, place) as worker:

            async def settled() -> int:
                states = (await engine.stats()).states
                return states.get(State.DELIVERED, 0) + states.get(State.DEAD, 0)

            await _until(worker, settled, case.backlog)
            worker.kill()
        await _all_come(end)
        found = await end.arrivals()
    lost = case.backlog - len({one.id for one in found})
    if lost:
        raise RuntimeError(f"{case.name}: {lost} messages never arrived")
    return repeats_by_kill(found, killed)


async def _until(
    worker: subprocess.Popen[bytes], number: Callable[[], Awaitable[int]], enough: int
) -> None:
    while await number() < enough:
        if worker.poll() is not None:
            raise RuntimeError(f"the worker ended by itself ({worker.returncode}): see its log")
        await asyncio.sleep(LOOK)


async def _all_come(end: End) -> None:
    """Wait until what the worker had written has come: it may be on its way when that is killed."""
    before = -1
    while (number := await end.number()) != before:
        before = number
        await asyncio.sleep(QUIET)


def repeats_by_kill(found: list[Arrived], killed: list[int]) -> list[int]:
    """How many messages of each life of the worker came again in a later one."""
    repeats: Counter[int] = Counter()
    life_of: dict[str, int] = {}
    for one in sorted(found, key=lambda arrived: arrived.at):
        life = bisect_left(killed, one.at)
        before = life_of.get(one.id)
        if before is not None:
            repeats[before] += 1
        life_of[one.id] = life
    return [repeats[life] for life in range(len(killed))]


def worker_process(config: Path, place: Path) -> subprocess.Popen[bytes]:
    with (place / "worker.log").open("ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "penstock", "worker", "--config", str(config)],
            cwd=ROOT,
            env={**os.environ, "BENCH_CALLS": str(place / "calls")},
            stdout=log,
            stderr=log,
        )


def handler(function: str) -> Ends:
    @asynccontextmanager
    async def end(place: Path) -> AsyncIterator[End]:
        calls = place / "calls"
        calls.touch()

        async def number() -> int:
            return calls.stat().st_size // len(f"{'x' * 36} {10**12}\n")

        async def arrivals() -> list[Arrived]:
            lines = (line.split() for line in calls.read_text().splitlines())
            return [Arrived(name, int(at)) for name, at in lines]

        yield End(f"python:bench.kill_handlers:{function}", number, arrivals)

    return end


@asynccontextmanager
async def webhook(_: Path) -> AsyncIterator[End]:
    found: list[Arrived] = []

    async def number() -> int:
        return len(found)

    async def arrivals() -> list[Arrived]:
        return found

    def note(request: Received) -> None:
        found.append(Arrived(request.headers["webhook-id"], time.time_ns() // 1_000_000))

    async with Receiver(on_received=note) as receiver:
        yield End(receiver.url, number, arrivals)


def stream(server: RedisServer) -> Ends:
    @asynccontextmanager
    async def end(_: Path) -> AsyncIterator[End]:
        async with Redis(port=server.port) as client:

            async def number() -> int:
                return int(await client.xlen("arrived"))

            async def arrivals() -> list[Arrived]:
                entries: Any = await client.xrange("arrived")
                return [
                    Arrived(fields[b"penstock-id"].decode(), int(name.split(b"-")[0]))
                    for name, fields in entries
                ]

            yield End(f"redis://127.0.0.1:{server.port}/arrived", number, arrivals)

    return end


def queue(server: RabbitServer) -> Ends:
    """Nobody reads the queue before the end, so that its length says how many have arrived; where
    a message stands in it says in which life of the worker it came."""

    @asynccontextmanager
    async def end(_: Path) -> AsyncIterator[End]:
        async with await aio_pika.connect(server.url) as connection:
            channel = await connection.channel()
            arrived = await channel.declare_queue("arrived", durable=True)

            async def number() -> int:
                found = await channel.declare_queue("arrived", passive=True)
                return found.declaration_result.message_count or 0

            async def arrivals() -> list[Arrived]:
                left = await number()
                listener = Listener()
                await arrived.consume(listener.take_from_queue, no_ack=True)
                while len(found := await listener.arrivals()) < left:  # noqa: ASYNC110
                    await asyncio.sleep(LOOK)
                return [Arrived(one.id, place) for place, one in enumerate(found, 1)]

            yield End(f"{server.url}/arrived", number, arrivals, moment=number)

    return end


def topic(server: KafkaServer) -> Ends:
    """One partition: where a message stands in it says in which life of the worker it came."""

    @asynccontextmanager
    async def end(_: Path) -> AsyncIterator[End]:
        server.create_topic("arrived")
        consumer = Consumer({"bootstrap.servers": server.address, "group.id": "bench"})
        place = TopicPartition("arrived", 0, 0)

        async def number() -> int:
            return consumer.get_watermark_offsets(place, timeout=10)[1]

        async def arrivals() -> list[Arrived]:
            consumer.assign([place])
            found: list[Arrived] = []
            left = await number()
            while len(found) < left:
                for message in consumer.consume(500, timeout=10):
                    headers = dict(message.headers() or ())
                    found.append(Arrived(_text(headers["penstock-id"]), len(found) + 1))
            return found

        yield End(f"kafka://{server.address}/arrived", number, arrivals, moment=number)
        consumer.close()

    return end


def subject(server: NatsServer) -> Ends:
    """JetStream, without its own removal of duplicates by id: that is what is counted."""

    @asynccontextmanager
    async def end(_: Path) -> AsyncIterator[End]:
        client = await nats.connect(server.url)
        stream = client.jetstream()
        await stream.add_stream(name="arrived", subjects=["arrived"], duplicate_window=0.1)

        async def number() -> int:
            return (await stream.stream_info("arrived")).state.messages

        async def arrivals() -> list[Arrived]:
            left = await number()
            reader = await stream.pull_subscribe("arrived")
            found: list[Arrived] = []
            while len(found) < left:
                for message in await reader.fetch(500, timeout=10):
                    name = (message.headers or {})["penstock-id"]
                    found.append(Arrived(name, len(found) + 1))
                    await message.ack()
            return found

        yield End(f"{server.url}/arrived", number, arrivals, moment=number)
        await client.close()

    return end


def _text(header: str | bytes | None) -> str:
    return header.decode() if isinstance(header, bytes) else header or ""
