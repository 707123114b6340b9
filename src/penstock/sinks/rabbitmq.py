"""rabbitmq://user:password@host:port/[vhost/]queue (amqp://, amqps://) — confirmed, persistent.

| what happens                                               | outcome                           |
|------------------------------------------------------------|-----------------------------------|
| the broker confirms (it is on disk, or on a majority)      | delivered                         |
| no queue takes it (published as mandatory)                 | dead                              |
| larger than the broker takes                               | dead                              |
| the broker refuses it (a full queue that rejects) …        | retry                             |
| no confirmation in time, no connection, a blocked broker   | retry; the circuit breaker counts |

The queue is the routing key of the default exchange; `exchange = "…"` names another, and then it
is just the routing key. A message's own topic, where the route allows it, takes its place.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence

from aiormq.exceptions import ChannelNotFoundEntity, ChannelPreconditionFailed

from penstock.brokers.address import Address, Wrong
from penstock.brokers.confirms import ConfirmChannel, Confirms, Publication
from penstock.brokers.kept import Kept
from penstock.brokers.rabbitmq import (
    TROUBLE,
    RabbitOptions,
    connect,
    declare,
    hang_up,
    rabbit_address,
    trouble_text,
)
from penstock.model.envelope import CONTENT_TYPE, KEY, Envelope
from penstock.model.errors import SinkUnavailable
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead, Retry, SendOutcome
from penstock.model.topics import Topics
from penstock.ports.sink import Sink, SinkOptions

MAX_BATCH = 500
CONCURRENCY = 2_000
_TOO_LARGE = re.compile(r"message size (\d+) .*max size (\d+)")


class RabbitSinkOptions(RabbitOptions, frozen=True, kw_only=True):
    exchange: str = ""
    """Where to publish; unset: the default exchange, which knows every queue by its name."""


class Channels(Kept[ConfirmChannel]):
    """The connection of a sink and its channel, with its own queue where that was asked for."""

    def __init__(
        self, address: Address, vhost: str, queue: str, options: RabbitOptions, wrong: Wrong
    ) -> None:
        super().__init__()
        self._address = address
        self._vhost = vhost
        self._queue = queue
        self._options = options
        self._wrong = wrong

    async def connect(self) -> ConfirmChannel:
        connection = await connect(self._address, self._vhost, self._options, self._wrong)
        try:
            if self._options.create_topic:
                await declare(connection, self._queue, self._options)
            return await ConfirmChannel.open_on(connection)
        except BaseException:
            self.later(hang_up(connection))
            raise

    def is_alive(self, line: ConfirmChannel) -> bool:
        return not line.is_closed and line.connection.is_opened

    async def hang_up(self, line: ConfirmChannel) -> None:
        await hang_up(line.connection)


class RabbitSink:
    max_batch = MAX_BATCH
    concurrency = CONCURRENCY

    def __init__(
        self,
        address: Address,
        vhost: str,
        topics: Topics,
        envelope: Envelope,
        options: RabbitSinkOptions,
        *,
        timeout: float,
        wrong: Wrong,
    ) -> None:
        self.name = address.shown
        self._hosts = ",".join(address.servers)
        self._topics = topics
        self._envelope = envelope
        self._exchange = options.exchange
        self._timeout = timeout
        self._scrub = address.scrubber(options)
        self._channels = Channels(address, vhost, topics.own, options, wrong)

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        if not batch:
            return []
        outcomes: list[SendOutcome] = [DELIVERED] * len(batch)
        sendable: list[int] = []
        for index, message in enumerate(batch):
            if len(self._topics.of(message).encode()) > 255:
                outcomes[index] = Dead("the topic is longer than the 255 bytes AMQP allows")
            else:
                sendable.append(index)
        told = await self._publish([batch[index] for index in sendable])
        for index, outcome in zip(sendable, told, strict=True):
            outcomes[index] = outcome
        return outcomes

    async def _publish(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        channel = None
        try:
            async with asyncio.timeout(self._timeout):
                channel = await self._channels.line()
                publications = [self._publication(message) for message in batch]
                confirms = await channel.publish(publications, self._exchange)
        except TimeoutError:
            self._channels.forget(channel)
            error = f"{self._hosts}: no confirmation in {self._timeout:g} s"
            return [Retry(error, unreachable=True)] * len(batch)
        except ChannelPreconditionFailed as exc:
            self._channels.forget(channel)
            return self._too_large(batch, trouble_text(exc))
        except ChannelNotFoundEntity as exc:
            self._channels.forget(channel)
            return [Retry(self._scrub(f"{self._hosts}: {trouble_text(exc)}"))] * len(batch)
        except TROUBLE as exc:
            self._channels.forget(channel)
            error = self._scrub(f"{self._hosts}: {trouble_text(exc)}")
            return [Retry(error, unreachable=True)] * len(batch)
        if not confirms.refused and not confirms.returned:
            return [DELIVERED] * len(batch)
        return [self._meaning(confirms, index, m) for index, m in enumerate(batch)]

    def _meaning(self, confirms: Confirms, index: int, message: Message) -> SendOutcome:
        if message.id in confirms.returned:
            said = confirms.returned[message.id]
            return Dead(f"{self._hosts}: no queue takes {self._topics.of(message)!r} ({said})")
        if index in confirms.refused:
            return Retry(f"{self._hosts} refused it: {self._topics.of(message)!r} may be full")
        return DELIVERED

    def _too_large(self, batch: Sequence[Message], said: str) -> list[SendOutcome]:
        """One message was too large and ended the channel for all of them."""
        sizes = _TOO_LARGE.search(said)
        largest = int(sizes[2]) if sizes is not None else None
        error = self._scrub(f"{self._hosts}: {said}")
        return [
            Dead(error) if largest is not None and len(m.payload) > largest else Retry(error)
            for m in batch
        ]

    def _publication(self, message: Message) -> Publication:
        headers = self._envelope.headers(message)
        content_type = headers.pop(CONTENT_TYPE)
        headers[KEY] = message.key
        return Publication(
            routing_key=self._topics.of(message),
            message_id=message.id,
            content_type=content_type,
            headers=headers,
            priority=message.priority,
            body=message.payload,
        )

    async def check(self) -> None:
        channel = None
        try:
            async with asyncio.timeout(self._timeout):
                channel = await self._channels.line()
                await (await channel.connection.channel(publisher_confirms=False)).close()
        except (*TROUBLE, TimeoutError) as exc:
            self._channels.forget(channel)
            said = self._scrub(trouble_text(exc))
            raise SinkUnavailable(f"{self._hosts} cannot be reached: {said}") from exc

    async def close(self) -> None:
        await self._channels.close()


async def open_sink(url: str, options: SinkOptions) -> Sink:
    address, vhost, queue = rabbit_address(url, options.wrong)
    own = options.read(RabbitSinkOptions, address.query)
    address.context(own, options.wrong)  # files that cannot be read are an error now
    return RabbitSink(
        address,
        vhost,
        Topics(queue, options.topics),
        options.envelope(),
        own,
        timeout=options.timeout,
        wrong=options.wrong,
    )
