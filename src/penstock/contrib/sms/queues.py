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

from penstock.contrib.sms.settings import SmsSettings
from penstock.model.errors import ConfigError
from penstock.sim.errors import Unreachable

JSON = "application/json"
# They log every lost connection, with a traceback; these modules report them instead.
for _library in ("aio_pika", "aiormq"):
    logging.getLogger(_library).setLevel(logging.CRITICAL)


async def connect(settings: SmsSettings, name: str) -> AbstractRobustConnection:
    """A connection that reconnects by itself; Unreachable if the first attempt fails."""
    try:
        return await connect_robust(
            settings.rabbitmq, client_properties={"connection_name": f"penstock {name}"}
        )
    except (AMQPError, OSError) as exc:
        raise Unreachable(f"RabbitMQ does not answer: {exc}") from exc


async def declare(channel: AbstractChannel, settings: SmsSettings) -> AbstractQueue:
    """Declare the work queue and the dead queue, durable, and return the first."""
    await _durable(channel, settings.dead_queue)
    return await _durable(channel, settings.queue)


async def declare_retry(channel: AbstractChannel, settings: SmsSettings) -> AbstractQueue:
    """Declare the queue in which messages wait for another attempt, durable.

    It has no expiry and no dead-lettering: a classic queue dead-letters without confirms, and a
    crash of RabbitMQ loses messages on their way. Senders consume it and move them with confirms.
    """
    return await _durable(channel, settings.retry_queue)


async def _durable(channel: AbstractChannel, name: str) -> AbstractQueue:
    """Declare a queue; ConfigError if one of that name exists with other arguments."""
    try:
        return await channel.declare_queue(name, durable=True)
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
) -> None:
    """Publish persistently; returns when RabbitMQ has confirmed it."""
    message = Message(
        body,
        content_type=JSON,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=message_id,
        headers=headers or {},
    )
    await channel.default_exchange.publish(message, routing_key=queue, mandatory=True)
