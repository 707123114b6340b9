"""The SMS system while RabbitMQ itself crashes: every message comes to exactly one end."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from pathlib import Path

import aio_pika
import pytest
from redis.asyncio import Redis

from penstock.contrib.sms.stats import SmsStats
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer
from tests.acceptance.commands import Command, running

pytestmark = pytest.mark.slow

MESSAGES = 1_000
QUIET = 90
"""Seconds without an end after which the rest counts as lost."""
SENDER = ("sim", "sms-sender", "--at-once", "16", "--retry-after", "300ms")


async def publish(url: str, queue: str, ids: list[str]) -> None:
    """Publish as any producer would, persistent and confirmed."""
    connection = await aio_pika.connect(url)
    async with connection:
        channel = await connection.channel()
        await channel.declare_queue(queue, durable=True)
        for start in range(0, len(ids), 100):
            await asyncio.gather(
                *(
                    channel.default_exchange.publish(
                        aio_pika.Message(
                            b'{"phone_number":"+0123456789","message":"hello"}',
                            message_id=one,
                            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                        ),
                        queue,
                    )
                    for one in ids[start : start + 100]
                )
            )


def outcomes(sender: Command, outcome: str) -> int:
    return sender.stderr.count(f'"message":"{outcome} ')


def has_retried(sender: Command, number: int) -> bool:
    return outcomes(sender, "retried") >= number


async def ended(redis: Redis, queue: str, ids: list[str]) -> set[str]:
    """The ids whose end is counted."""
    async with redis.pipeline(transaction=False) as pipe:
        for one in ids:
            pipe.hexists(f"penstock:sms:{{{queue}}}:counted:{one}", "end")
        found = await pipe.execute()
    return {one for one, ends in zip(ids, found, strict=True) if ends}


async def test_a_crash_of_rabbitmq_under_retries_loses_nothing_and_counts_nothing_twice(
    tmp_path: Path, rabbitmq: RabbitServer, redis: RedisServer
) -> None:
    queue = f"sms-{tmp_path.name}"
    ids = [f"sms-{number}" for number in range(MESSAGES)]
    env = {
        "RABBITMQ_HOST": rabbitmq.address,
        "REDIS_HOST": f"127.0.0.1:{redis.port}",
        "QUEUE_NAME": queue,
        "MEAN_PROCESSING_TIME": "0.02",
        "FAILURE_RATE": "0.5",
    }
    await publish(rabbitmq.url, queue, ids)
    stats, marks = SmsStats.at(redis.url, queue), Redis.from_url(redis.url)
    async with running(tmp_path, *SENDER, env=env) as sender, marks:
        await sender.until(partial(has_retried, sender, MESSAGES // 4))
        await asyncio.to_thread(rabbitmq.kill)
        await asyncio.to_thread(rabbitmq.start)
        missing, quiet_since = set(ids), time.monotonic()
        while missing and time.monotonic() - quiet_since < QUIET:
            found = await ended(marks, queue, list(missing))
            if found:
                missing, quiet_since = missing - found, time.monotonic()
            await asyncio.sleep(0.2)
        assert await sender.stop() == 0
    assert not missing, f"{len(missing)} came to no end: {sorted(missing)[:10]}"
    figures = await stats.read()
    await stats.close()
    assert figures.sent + figures.failed == MESSAGES
