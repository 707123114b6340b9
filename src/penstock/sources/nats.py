"""nats://user:password@host:port/subject as a source — a durable pull consumer, acked after.

Any number of processes share the durable consumer. While the store is unavailable, the fetched
records are reported as in progress, so that JetStream does not redeliver them to another process.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Annotated

import msgspec
from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig

from penstock.brokers.address import Address, Wrong
from penstock.brokers.nats import (
    TROUBLE,
    NatsOptions,
    connect,
    hang_up,
    make_stream,
    name_of,
    nats_address,
    stream_config,
    trouble_text,
    while_connected,
)
from penstock.model.errors import SourceUnavailable
from penstock.ports.source import Record, Source, SourceOptions

WAIT = 0.5
"""Seconds a read waits for records."""
PATIENCE = 10.0
"""Seconds to wait for a connection or an answer."""
ACK, IN_PROGRESS = b"+ACK", b"+WPI"


class NatsSourceOptions(NatsOptions, frozen=True, kw_only=True):
    group: str | None = None
    """The durable consumer's name; unset: penstock- and the source's name."""
    ack_wait: Annotated[float, msgspec.Meta(ge=1, le=3_600)] = 30.0
    """Seconds until JetStream redelivers a record that was not acked."""


class NatsSource:
    def __init__(
        self, address: Address, subject: str, options: NatsSourceOptions, group: str, wrong: Wrong
    ) -> None:
        self.name = address.shown
        self._address = address
        self._hosts = ",".join(address.servers)
        self._subject = subject
        self._options = options
        self._group = group
        self._wrong = wrong
        self._stream = stream_config(subject, options, wrong)
        self._scrub = address.scrubber(options)
        self._client: Client | None = None
        self._reading: JetStreamContext.PullSubscription | None = None

    async def read(self, limit: int) -> Sequence[Record]:
        client, reading = await self._open()
        fetching = asyncio.ensure_future(_fetch(reading, limit))
        await self._answered(client, fetching)
        return [_record(msg, client) for msg in fetching.result()]

    async def done(self, records: Sequence[Record]) -> None:
        await self._tell(records, ACK)

    async def hold(self, records: Sequence[Record]) -> None:
        try:
            await self._tell(records, IN_PROGRESS)
        except SourceUnavailable:
            return  # they are redelivered, and the store knows their ids

    async def _tell(self, records: Sequence[Record], what: bytes) -> None:
        client = self._client
        if client is None:
            return
        await self._answered(client, self._publish(client, records, what))

    async def _publish(self, client: Client, records: Sequence[Record], what: bytes) -> None:
        for record in records:
            handle = record.handle
            if isinstance(handle, Msg) and handle._client is client:  # noqa: SLF001 - whose it is
                await client.publish(handle.reply, what)
        await client.flush()

    async def _answered(self, client: Client, asked: Awaitable[object]) -> None:
        """Await an answer; a lost connection is dropped and reported as an error."""
        try:
            async with asyncio.timeout(PATIENCE):
                if await while_connected(client, asked):
                    return
                raise ConnectionError("the connection was lost")
        except (*TROUBLE, TimeoutError) as exc:
            await self._drop()
            raise self._away(exc) from exc

    async def _open(self) -> tuple[Client, JetStreamContext.PullSubscription]:
        if self._client is not None and self._reading is not None and self._client.is_connected:
            return self._client, self._reading
        await self._drop()
        client: Client | None = None
        try:
            async with asyncio.timeout(PATIENCE):
                client = await connect(self._address, self._options, self._wrong)
                js = client.jetstream()
                if self._options.create_topic:
                    await make_stream(js, self._stream)
                reading = await js.pull_subscribe(
                    self._subject,
                    durable=self._group,
                    config=ConsumerConfig(
                        ack_policy=AckPolicy.EXPLICIT,
                        ack_wait=self._options.ack_wait,
                        max_ack_pending=20_000,
                    ),
                )
        except (*TROUBLE, TimeoutError) as exc:
            if client is not None:
                await hang_up(client)
            raise self._away(exc) from exc
        self._client, self._reading = client, reading
        return client, reading

    async def check(self) -> None:
        client, _ = await self._open()
        await self._answered(client, client.flush())

    async def close(self) -> None:
        await self._drop()

    async def _drop(self) -> None:
        client, self._client, self._reading = self._client, None, None
        if client is not None:
            await hang_up(client)

    def _away(self, exc: BaseException) -> SourceUnavailable:
        said = trouble_text(exc)
        return SourceUnavailable(self._scrub(f"{self._hosts}/{self._subject}: {said}"))


async def _fetch(reading: JetStreamContext.PullSubscription, limit: int) -> list[Msg]:
    """The records there are; none within the time is not an error.

    The client reports that by its own TimeoutError and, if the server answers at the last moment,
    by the built-in one.
    """
    try:
        return await reading.fetch(limit, timeout=WAIT)
    except TimeoutError:
        return []


def _record(msg: Msg, _client: Client) -> Record:
    sequence = msg.metadata.sequence
    return Record(
        value=msg.data,
        headers=dict(msg.headers or {}),
        origin=f"{msg.metadata.stream}:{sequence.stream}",
        handle=msg,
    )


async def open_source(url: str, options: SourceOptions) -> Source:
    address, subject = nats_address(url, options.wrong)
    own = options.read(NatsSourceOptions, address.query)
    address.context(own, options.wrong)  # unreadable certificate files are an error now
    group = name_of(own.group or f"penstock-{options.source}")
    return NatsSource(address, subject, own, group, options.wrong)
