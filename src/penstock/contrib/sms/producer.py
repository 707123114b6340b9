"""Publishes random messages to the queue, each confirmed before it counts."""

from __future__ import annotations

import asyncio
import contextlib
import random
import string
import time
import uuid
from collections.abc import Callable

import msgspec
from aio_pika.exceptions import AMQPError

from penstock.contrib.sms.queues import connect, declare, publish
from penstock.contrib.sms.settings import SmsSettings
from penstock.sim.errors import Unreachable

AT_ONCE = 200
"""Publications that await their confirmation concurrently."""
PAUSE = 0.05
"""Seconds between two groups of a producer with a rate."""
LETTERS = string.ascii_letters + string.digits + " "
TEXT_LENGTH = 100


class Sms(msgspec.Struct, frozen=True):
    """One message in its wire format."""

    phone_number: str
    message: str


def random_sms(chance: random.Random) -> Sms:
    digits = "".join(chance.choices(string.digits, k=10))
    return Sms(f"+{digits}", "".join(chance.choices(LETTERS, k=TEXT_LENGTH)))


async def produce(
    settings: SmsSettings,
    number: int | None,
    chance: random.Random,
    confirmed: Callable[[int], None],
    *,
    rate: float | None = None,
    stopping: asyncio.Event | None = None,
) -> None:
    """Publish `number` messages (None: until `stopping`), at most `rate` per second.

    `confirmed` is called for each message that RabbitMQ has confirmed. Raises Unreachable if
    RabbitMQ goes down; the last group may then be stored or not.
    """
    stop = stopping or asyncio.Event()
    connection = await connect(settings, "sms-producer")
    async with connection:
        channel = await connection.channel()
        await declare(channel, settings)

        async def one() -> None:
            body = msgspec.json.encode(random_sms(chance))
            await publish(channel, settings.queue, body, message_id=str(uuid.uuid4()))
            confirmed(1)

        begun, start = 0, time.monotonic()
        while not stop.is_set() and (number is None or begun < number):
            left = AT_ONCE if number is None else min(AT_ONCE, number - begun)
            size = left if rate is None else min(left, _allowed(rate, start, begun))
            if size < 1:
                await _pause(PAUSE, stop)
                continue
            try:
                async with asyncio.TaskGroup() as group:
                    for _ in range(size):
                        group.create_task(one())
            except* (AMQPError, OSError) as exc:
                raise Unreachable(f"RabbitMQ went away: {exc.exceptions[0]}") from exc
            begun += size


def _allowed(rate: float, start: float, begun: int) -> int:
    return int((time.monotonic() - start) * rate) - begun


async def _pause(seconds: float, stopping: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await stopping.wait()
