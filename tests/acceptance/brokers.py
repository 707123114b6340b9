"""A publisher and reader of its own for each broker: not Penstock's, so that nobody agrees with
themselves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Protocol

import aio_pika
import nats
from aio_pika.abc import AbstractChannel
from nats.js import JetStreamContext
from nats.js.errors import NoStreamResponseError, NotFoundError

PATIENCE = 300.0


@dataclass(frozen=True)
class Got:
    body: bytes
    headers: dict[str, str]


class Broker(Protocol):
    async def publish(self, name: str, body: bytes) -> None:
        """To a queue or subject that Penstock makes; waits until it has."""
        ...

    async def take(self, name: str) -> Got:
        """The next message there; waits for it."""
        ...


class Rabbit:
    def __init__(self, channel: AbstractChannel) -> None:
        self._channel = channel

    async def publish(self, name: str, body: bytes) -> None:
        await self._channel.declare_queue(name, durable=True)
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._channel.default_exchange.publish(message, name)

    async def take(self, name: str) -> Got:
        queue = await self._channel.declare_queue(name, durable=True)
        async with asyncio.timeout(PATIENCE):
            while (message := await queue.get(fail=False)) is None:  # noqa: ASYNC110 - not ours
                await asyncio.sleep(0.05)
        await message.ack()
        return Got(message.body, {key: str(value) for key, value in message.headers.items()})


class JetStream:
    def __init__(self, stream: JetStreamContext) -> None:
        self._stream = stream
        self._readers: dict[str, JetStreamContext.PullSubscription] = {}

    async def publish(self, name: str, body: bytes) -> None:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    await self._stream.publish(name, body)
                except NoStreamResponseError:
                    await asyncio.sleep(0.1)
                else:
                    return

    async def take(self, name: str) -> Got:
        async with asyncio.timeout(PATIENCE):
            while True:
                try:
                    reader = await self._reader(name)
                    (message,) = await reader.fetch(1, timeout=5)
                except (NotFoundError, nats.errors.TimeoutError):
                    await asyncio.sleep(0.1)
                else:
                    await message.ack()
                    return Got(message.data, dict(message.headers or {}))

    async def _reader(self, name: str) -> JetStreamContext.PullSubscription:
        if name not in self._readers:
            durable = f"test-{name.replace('.', '_')}"
            self._readers[name] = await self._stream.pull_subscribe(name, durable)
        return self._readers[name]


@asynccontextmanager
async def rabbit(url: str) -> AsyncIterator[Broker]:
    connection = await aio_pika.connect(url)
    async with connection:
        yield Rabbit(await connection.channel())


@asynccontextmanager
async def jetstream(url: str) -> AsyncIterator[Broker]:
    client = await nats.connect(url)
    try:
        yield JetStream(client.jetstream())
    finally:
        await client.close()
