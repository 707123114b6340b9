"""Publishes random messages to the queue, each confirmed before it counts."""

from __future__ import annotations

import asyncio
import random
import string
import uuid
from collections.abc import Callable

import msgspec

from penstock.sim.sms.queues import connect, declare, publish
from penstock.sim.sms.settings import SmsSettings

AT_ONCE = 200
"""Publications that wait for their confirmation side by side."""
LETTERS = string.ascii_letters + string.digits + " "
TEXT_LENGTH = 100


class Sms(msgspec.Struct, frozen=True):
    """One message, as it travels."""

    phone_number: str
    message: str


def random_sms(chance: random.Random) -> Sms:
    digits = "".join(chance.choices(string.digits, k=10))
    return Sms(f"+{digits}", "".join(chance.choices(LETTERS, k=TEXT_LENGTH)))


async def produce(
    settings: SmsSettings,
    number: int,
    chance: random.Random,
    confirmed: Callable[[int], None],
) -> None:
    """Publish that many; `confirmed` is told of each group RabbitMQ has."""
    connection = await connect(settings, "sms-producer")
    async with connection:
        channel = await connection.channel()
        await declare(channel, settings)
        for start in range(0, number, AT_ONCE):
            size = min(AT_ONCE, number - start)
            async with asyncio.TaskGroup() as group:
                for _ in range(size):
                    body = msgspec.json.encode(random_sms(chance))
                    one = publish(channel, settings.queue, body, message_id=str(uuid.uuid4()))
                    group.create_task(one)
            confirmed(size)
