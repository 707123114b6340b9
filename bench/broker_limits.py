"""What a broker's own client does on this machine with the same messages and nothing of ours.

Each sends batches of 500 and counts a message only when the broker has acknowledged it, as the
sinks do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

import aiormq
import nats
from confluent_kafka import Producer
from nats.js.api import StreamConfig
from pamqp import commands
from redis.asyncio import Redis

from penstock.model.envelope import Envelope
from penstock.model.message import Message

BATCH = 500
HEADERS = Envelope({}).headers


def batches(messages: Sequence[Message]) -> list[Sequence[Message]]:
    return [messages[start : start + BATCH] for start in range(0, len(messages), BATCH)]


async def kafka(brokers: str, topic: str, messages: Sequence[Message]) -> float:
    """Idempotent, acknowledged by all replicas; librdkafka batches by itself."""
    producer = Producer(
        {
            "bootstrap.servers": brokers,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    done = 0

    def delivered(error: object, _message: object) -> None:
        nonlocal done
        assert error is None, error
        done += 1

    start = time.perf_counter()
    for batch in batches(messages):
        for message in batch:
            producer.produce(
                topic,
                message.payload,
                message.key,
                headers=HEADERS(message),  # type: ignore[arg-type] # a dict of str will do
                on_delivery=delivered,
            )
        producer.poll(0)
    producer.flush()
    assert done == len(messages)
    return len(messages) / (time.perf_counter() - start)


async def rabbitmq(url: str, queue: str, messages: Sequence[Message]) -> float:
    """Persistent, with publisher confirms, to a durable queue."""
    connection = await aiormq.connect(url)
    try:
        channel = await connection.channel()
        await channel.confirm_delivery()
        await channel.queue_declare(queue, durable=True)
        start = time.perf_counter()
        for batch in batches(messages):
            confirmations = [
                channel.basic_publish(
                    message.payload,
                    routing_key=queue,
                    mandatory=True,
                    properties=commands.Basic.Properties(
                        content_type=message.content_type,
                        headers=dict(HEADERS(message)),
                        delivery_mode=2,
                        message_id=message.id,
                    ),
                )
                for message in batch
            ]
            await asyncio.gather(*confirmations)
        return len(messages) / (time.perf_counter() - start)
    finally:
        await connection.close()


async def jetstream(url: str, subject: str, messages: Sequence[Message]) -> float:
    """Acknowledged by the stream, with Nats-Msg-Id."""
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        await stream.add_stream(StreamConfig(name=subject, subjects=[subject]))
        start = time.perf_counter()
        for batch in batches(messages):
            await asyncio.gather(
                *(
                    stream.publish(
                        subject,
                        message.payload,
                        headers={**HEADERS(message), "Nats-Msg-Id": message.id},
                        timeout=30,
                    )
                    for message in batch
                )
            )
        return len(messages) / (time.perf_counter() - start)
    finally:
        await client.close()


async def redis_stream(url: str, stream: str, messages: Sequence[Message]) -> float:
    """XADD in pipelines."""
    client = Redis.from_url(url)
    try:
        start = time.perf_counter()
        for batch in batches(messages):
            pipeline = client.pipeline(transaction=False)
            for message in batch:
                fields = {**HEADERS(message), "payload": message.payload}
                pipeline.xadd(stream, fields)  # type: ignore[arg-type] # of str and bytes
            await pipeline.execute()
        return len(messages) / (time.perf_counter() - start)
    finally:
        await client.aclose()
