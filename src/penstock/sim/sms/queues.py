"""The queues of the SMS system: work, waiting for another attempt, and dead."""

from __future__ import annotations

import logging

from aio_pika import DeliveryMode, Message, connect_robust
from aio_pika.abc import (
    AbstractChannel,
    AbstractQueue,
    AbstractRobustConnection,
    HeadersType,
)
from aio_pika.exceptions import AMQPError, ChannelPreconditionFailed

from penstock.model.errors import ConfigError
from penstock.sim.errors import Unreachable
from penstock.sim.sms.settings import SmsSettings

JSON = "application/json"
AT_LEAST_ONCE = {
    "x-queue-type": "quorum",
    "x-dead-letter-exchange": "",
    "x-dead-letter-strategy": "at-least-once",
    "x-overflow": "reject-publish",
}
"""Arguments of the retry queue: a message leaves it only when the next queue has confirmed it.

A classic queue dead-letters without confirms: a crash of RabbitMQ loses messages on their way.
RabbitMQ takes the strategy only together with this overflow, from 3.10 on.
"""

# They write a line, or a traceback, for every lost connection; what it means we say ourselves.
for _library in ("aio_pika", "aiormq"):
    logging.getLogger(_library).setLevel(logging.CRITICAL)


async def connect(settings: SmsSettings, name: str) -> AbstractRobustConnection:
    """A connection that comes back by itself; Unreachable when there is none to begin with."""
    try:
        return await connect_robust(
            settings.rabbitmq, client_properties={"connection_name": f"penstock {name}"}
        )
    except (AMQPError, OSError) as exc:
        raise Unreachable(f"RabbitMQ does not answer: {exc}") from exc


async def declare(channel: AbstractChannel, settings: SmsSettings) -> AbstractQueue:
    """Declare all three, durable, and return the one to consume from.

    A message that waits for another attempt waits in RabbitMQ: it expires in the retry queue after
    its own time and is dead-lettered back to the first queue. ConfigError: a queue of that name
    exists with other arguments.
    """
    try:
        await channel.declare_queue(settings.dead_queue, durable=True)
        await channel.declare_queue(
            settings.retry_queue,
            durable=True,
            arguments={**AT_LEAST_ONCE, "x-dead-letter-routing-key": settings.queue},
        )
        return await channel.declare_queue(settings.queue, durable=True)
    except ChannelPreconditionFailed as exc:
        raise ConfigError(
            f"QUEUE_NAME: a queue exists with other arguments: {exc}. Delete it when it is empty"
            " (rabbitmqctl delete_queue NAME --if-empty), or choose another QUEUE_NAME"
        ) from exc


async def publish(
    channel: AbstractChannel,
    queue: str,
    body: bytes,
    *,
    message_id: str | None,
    headers: HeadersType | None = None,
    expiration: float | None = None,
) -> None:
    """Persistent; returns when RabbitMQ has confirmed it. It expires after so many seconds."""
    message = Message(
        body,
        content_type=JSON,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=message_id,
        headers=headers or {},
        expiration=expiration,
    )
    await channel.default_exchange.publish(message, routing_key=queue, mandatory=True)
