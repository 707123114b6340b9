"""rabbitmq://user:password@host:port/[vhost/]queue as a source — acked after the store has it.

A record without an id of its own gets one from the publisher's `message_id`. If that is missing
too, AMQP has no lasting name for the message: a redelivery after a crash becomes a new message.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

import msgspec
from aiormq.abc import AbstractConnection
from pamqp import commands
from pamqp.header import ContentHeader

from penstock.brokers.address import Address, Wrong
from penstock.brokers.confirms import PlainChannel
from penstock.brokers.rabbitmq import (
    TROUBLE,
    RabbitOptions,
    connect,
    declare,
    hang_up,
    rabbit_address,
    trouble_text,
)
from penstock.model.draft import is_id
from penstock.model.errors import SourceUnavailable
from penstock.ports.source import Record, Source, SourceOptions

WAIT = 0.5
"""Seconds a read waits for the first record."""
PATIENCE = 10.0
"""Seconds to wait for a connection or an answer."""


class RabbitSourceOptions(RabbitOptions, frozen=True, kw_only=True):
    prefetch: Annotated[int, msgspec.Meta(ge=1, le=65_535)] = 1_000
    """Most records that the broker sends before they are acknowledged."""


@dataclass(frozen=True, slots=True)
class Handle:
    """A record's channel and delivery tag: a tag is valid on its own channel only."""

    channel: IntakeChannel
    tag: int


class IntakeChannel(PlainChannel):
    """A channel that queues its deliveries."""

    def __init__(self, connection: AbstractConnection, number: int = 1) -> None:
        super().__init__(connection, number, publisher_confirms=False)
        self.delivered: asyncio.Queue[Record | None] = asyncio.Queue()
        """Delivered records, bounded by the prefetch; None once the broker ends the consumer."""
        self.closing.add_done_callback(lambda _: self.delivered.put_nowait(None))
        self.on_consumer_cancel_callbacks.add(self._cancelled)

    def _cancelled(self, _frame: object) -> None:
        self.delivered.put_nowait(None)

    async def _on_deliver_frame(self, frame: commands.Basic.Deliver) -> None:
        header, body = await self._content()
        self.delivered.put_nowait(_record(header, body, Handle(self, frame.delivery_tag or 0)))


def _record(header: ContentHeader, body: bytes, handle: Handle) -> Record:
    properties = header.properties
    headers = {str(name): str(value) for name, value in (properties.headers or {}).items()}
    if properties.content_type:
        headers.setdefault("content-type", properties.content_type)
    return Record(value=body, headers=headers, origin=_origin(properties.message_id), handle=handle)


def _origin(message_id: str | None) -> str | None:
    if not message_id:
        return None
    return message_id if is_id(message_id) else sha256(message_id.encode()).hexdigest()


class RabbitSource:
    def __init__(
        self,
        address: Address,
        vhost: str,
        queue: str,
        options: RabbitSourceOptions,
        wrong: Wrong,
    ) -> None:
        self.name = address.shown
        self._address = address
        self._hosts = ",".join(address.servers)
        self._vhost = vhost
        self._queue = queue
        self._options = options
        self._wrong = wrong
        self._scrub = address.scrubber(options)
        self._channel: IntakeChannel | None = None

    async def read(self, limit: int) -> Sequence[Record]:
        channel = self._channel or await self._open()
        records: list[Record] = []
        try:
            async with asyncio.timeout(WAIT):
                record = await channel.delivered.get()
        except TimeoutError:
            return records
        while record is not None:
            records.append(record)
            if len(records) == limit or channel.delivered.empty():
                return records
            record = channel.delivered.get_nowait()
        await self._drop()  # records read and not acked are redelivered
        raise SourceUnavailable(f"{self._hosts}: the broker ended the reading of {self._queue!r}")

    async def done(self, records: Sequence[Record]) -> None:
        channel = self._channel
        tags = [
            record.handle.tag
            for record in records
            if isinstance(record.handle, Handle) and record.handle.channel is channel
        ]
        if channel is None or not tags:
            return  # its connection is gone: the broker redelivers the records
        try:
            async with asyncio.timeout(PATIENCE):
                await channel.basic_ack(max(tags), multiple=True)
        except (*TROUBLE, TimeoutError) as exc:
            await self._drop()
            raise self._away(exc) from exc

    async def hold(self, records: Sequence[Record]) -> None:
        """Does nothing: heartbeats continue, and the prefetch bounds new deliveries."""

    async def check(self) -> None:
        channel = self._channel or await self._open()
        try:
            async with asyncio.timeout(PATIENCE):
                asking = await channel.connection.channel(publisher_confirms=False)
                await asking.close()
        except (*TROUBLE, TimeoutError) as exc:
            await self._drop()
            raise self._away(exc) from exc

    async def close(self) -> None:
        await self._drop()

    async def _open(self) -> IntakeChannel:
        connection: AbstractConnection | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                connection = await connect(self._address, self._vhost, self._options, self._wrong)
                if self._options.create_topic:
                    await declare(connection, self._queue, self._options)
                channel = IntakeChannel(connection)
                connection.channels[channel.number] = channel
                await channel.open()
                await channel.basic_qos(prefetch_count=self._options.prefetch)
                await channel.basic_consume(self._queue, _nothing)
        except (*TROUBLE, TimeoutError) as exc:
            if connection is not None:
                await hang_up(connection)
            raise self._away(exc) from exc
        self._channel = channel
        return channel

    async def _drop(self) -> None:
        channel, self._channel = self._channel, None
        if channel is not None:
            await hang_up(channel.connection)

    def _away(self, exc: BaseException) -> SourceUnavailable:
        return SourceUnavailable(self._scrub(f"{self._hosts}: {trouble_text(exc)}"))


async def _nothing(_message: object) -> None:
    """Ignores deliveries: the channel itself queues them."""


async def open_source(url: str, options: SourceOptions) -> Source:
    address, vhost, queue = rabbit_address(url, options.wrong)
    own = options.read(RabbitSourceOptions, address.query)
    address.context(own, options.wrong)  # unreadable certificate files are an error now
    return RabbitSource(address, vhost, queue, own, options.wrong)
