"""A due backlog to Kafka, RabbitMQ, NATS and Redis Streams, beside the same client library bare."""

from __future__ import annotations

import asyncio
import tempfile
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import aiormq
import msgspec
import nats
import uvloop
from confluent_kafka import Producer
from redis.asyncio import Redis

from bench.report import Report
from penstock.model.draft import Draft
from penstock.model.envelope import Envelope
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED
from penstock.settings import Settings, given
from penstock.wiring import open_parts, open_sink, open_worker
from tests.servers.kafka import KafkaServer, kafka_jars
from tests.servers.nats import NatsServer
from tests.servers.rabbitmq import RabbitServer
from tests.servers.redis import RedisServer

NUMBER = {"kafka": 100_000, "rabbitmq": 10_000, "nats": 20_000, "redis": 40_000}
WINDOW = 500
ROUNDS = 2
PAYLOAD = b'{"item":"user1234","at":"2030-01-01T00:00:00Z","text":"' + b"x" * 44 + b'"}'
Bare = Callable[[str, str, Sequence[Message]], Awaitable[None]]
_envelope = Envelope({})


def _messages(number: int) -> list[Message]:
    due = int(time.time() * 1000)
    ids = [str(uuid.uuid4()) for _ in range(number)]
    return [
        Message(id=i, route="r", key=i, payload=PAYLOAD, due=due, attempt=1, claimed=due)
        for i in ids
    ]


async def _bare_kafka(address: str, topic: str, messages: Sequence[Message]) -> None:
    settings = {"enable.idempotence": True, "acks": "all", "linger.ms": 2}
    limit = {"queue.buffering.max.messages": 1_000_000}
    producer = Producer({"bootstrap.servers": address, **settings, **limit})
    for number, m in enumerate(messages):
        headers = [*_envelope.headers(m).items()]
        producer.produce(topic, m.payload, m.key, headers=headers)
        if number % WINDOW == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError("not all were acknowledged")


async def _bare_rabbitmq(address: str, queue: str, messages: Sequence[Message]) -> None:
    connection = await aiormq.connect(f"amqp://guest:guest@{address}")
    channel = await connection.channel()
    for start in range(0, len(messages), WINDOW):
        await asyncio.gather(
            *(
                channel.basic_publish(
                    m.payload,
                    routing_key=queue,
                    mandatory=True,
                    properties=aiormq.spec.Basic.Properties(
                        delivery_mode=2, message_id=m.id, headers={**_envelope.headers(m)}
                    ),
                )
                for m in messages[start : start + WINDOW]
            )
        )
    await connection.close()


async def _bare_nats(address: str, subject: str, messages: Sequence[Message]) -> None:
    client = await nats.connect(f"nats://{address}")
    js = client.jetstream()
    for start in range(0, len(messages), WINDOW):
        answers = [
            await js.publish_async(
                subject, m.payload, headers={**_envelope.headers(m), "Nats-Msg-Id": m.id}
            )
            for m in messages[start : start + WINDOW]
        ]
        await asyncio.gather(*answers)
    await client.close()


async def _bare_redis(address: str, stream: str, messages: Sequence[Message]) -> None:
    host, _, port = address.partition(":")
    async with Redis(host=host, port=int(port)) as client:
        for start in range(0, len(messages), WINDOW):
            pipe = client.pipeline(transaction=False)
            for m in messages[start : start + WINDOW]:
                pipe.xadd(stream, {"payload": m.payload, "key": m.key, **_envelope.headers(m)})  # type: ignore[dict-item] # str and bytes are both fine
            await pipe.execute()


BARE: dict[str, Bare] = {
    "kafka": _bare_kafka,
    "rabbitmq": _bare_rabbitmq,
    "nats": _bare_nats,
    "redis": _bare_redis,
}


def _settings(store: str, sink: str) -> Settings:
    route = {"sink": sink, "create_topic": True, "timeout": "60s"}
    return given(store=store, routes={"r": route})


async def _alone(sink_url: str, messages: Sequence[Message]) -> float:
    """The sink by itself, as many batches at once as it says suit it."""
    sink = await open_sink("r", _settings("sqlite:///:memory:", sink_url).routes["r"])
    await sink.check()
    batches = [messages[i : i + sink.max_batch] for i in range(0, len(messages), sink.max_batch)]
    room = asyncio.Semaphore(max(1, sink.concurrency // sink.max_batch))

    async def send(batch: Sequence[Message]) -> None:
        async with room:
            if set(await sink.send(batch)) != {DELIVERED}:
                raise RuntimeError("not all were delivered")

    start = time.perf_counter()
    await asyncio.gather(*(send(batch) for batch in batches))
    spent = time.perf_counter() - start
    await sink.close()
    return len(messages) / spent


async def _engine(store: str, sink_url: str, number: int) -> float:
    """From the store, through claim, send and settle."""
    async with open_parts(_settings(store, sink_url)) as parts:
        for start in range(0, number, 5_000):
            count = min(5_000, number - start)
            drafts = [Draft(route="r", payload=msgspec.Raw(PAYLOAD)) for _ in range(count)]
            await parts.intake.schedule(drafts)
        async with open_worker(parts) as worker:
            start_at = time.perf_counter()
            running = asyncio.ensure_future(worker.run())
            while parts.observer.counts["delivered", "r"] < number:
                await asyncio.sleep(0.01)
            spent = time.perf_counter() - start_at
            worker.stop()
            await running
    return number / spent


@contextmanager
def _servers(folder: Path) -> Iterator[dict[str, str]]:
    jars = kafka_jars()
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        found = {"redis": f"127.0.0.1:{redis.port}"}
        started = [RabbitServer(folder / "rabbitmq", management=False), NatsServer(folder / "nats")]
        names = ["rabbitmq", "nats"]
        if jars is not None:
            started.append(KafkaServer(folder / "kafka", jars))
            names.append("kafka")
        for name, server in zip(names, started, strict=True):
            server.start()
            stack.callback(server.kill)
            found[name] = server.address
        yield found


def main() -> None:
    report = Report("brokers", "100-byte messages with headers, acknowledged by the broker")
    with tempfile.TemporaryDirectory() as place, _servers(Path(place)) as servers:
        with RedisServer() as held:
            for name, address in servers.items():
                _one(report, name, address, held, Path(place))
    report.finish()


def _one(report: Report, name: str, address: str, held: RedisServer, folder: Path) -> None:
    topic = f"bench.{name}"
    url = f"{name}://{address}/{topic}"
    messages = _messages(NUMBER[name])
    uvloop.run(_alone(url, messages[:1000]))  # makes the topic, warms the broker
    bare, alone = [], []
    for _ in range(ROUNDS):
        fresh = _messages(NUMBER[name])
        start = time.perf_counter()
        uvloop.run(BARE[name](address, topic, fresh))  # type: ignore[arg-type] # a coroutine it is
        bare.append(len(fresh) / (time.perf_counter() - start))
        alone.append(uvloop.run(_alone(url, _messages(NUMBER[name]))))
    best = max(bare)
    against = "the client library bare"
    report.add(f"{name}: client library bare", best, "messages/s")
    report.add(
        f"{name}: the sink",
        max(alone),
        "messages/s",
        baseline=best,
        against=against,
        aim=">= 0.6 x",
    )
    for label, store in {
        "SQLite": f"sqlite:///{folder}/{name}.db",
        "Redis": held.url,
    }.items():
        figure = uvloop.run(_engine(store, url, NUMBER[name]))
        what = f"{name}: {label} store, claim, send, settle"
        report.add(what, figure, "messages/s", baseline=best, against=against, aim=">= 0.25 x")
        held.flush()
