"""The queues of the SMS system: work, waiting for another attempt, and dead."""

from __future__ import annotations

from aio_pika import DeliveryMode, Message, connect_robust
from aio_pika.abc import AbstractChannel, AbstractQueue, AbstractRobustConnection, HeadersType
from aio_pika.exceptions import AMQPError

from penstock.sim.errors import Unreachable
from penstock.sim.sms.settings import SmsSettings

JSON = "application/json"


async def connect(settings: SmsSettings, name: str) -> AbstractRobustConnection:
    """A connection that comes back by itself; Unreachable when there is none to begin with."""
    try:
        return await connect_robust(
            settings.rabbitmq, client_properties={"connection_name": f"penstock {name}"}
        )
    except (AMQPError, OSError) as exc:
        raise Unreachable(f"RabbitMQ does not answer: {exc}") from exc


async def declare(
    channel: AbstractChannel, settings: SmsSettings, retry_ms: int = 1_000
) -> AbstractQueue:
    """All three, durable; the one to consume from.

    What waits for another attempt waits in RabbitMQ itself: its queue returns each message to
    the first after `retry_ms`.
    """
    await channel.declare_queue(settings.dead_queue, durable=True)
    await channel.declare_queue(
        settings.retry_queue,
        durable=True,
        arguments={
            "x-message-ttl": retry_ms,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": settings.queue,
        },
    )
    return await channel.declare_queue(settings.queue, durable=True)


async def publish(
    channel: AbstractChannel,
    queue: str,
    body: bytes,
    *,
    message_id: str | None,
    headers: HeadersType | None = None,
) -> None:
    """Persistent; returns when RabbitMQ has confirmed it."""
    message = Message(
        body,
        content_type=JSON,
        delivery_mode=DeliveryMode.PERSISTENT,
        message_id=message_id,
        headers=headers or {},
    )
    await channel.default_exchange.publish(message, routing_key=queue, mandatory=True)
