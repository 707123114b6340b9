"""What reads a broker in a campaign: a client of somebody else's for each.

`at` is the moment by the broker's own clock where it has one, else the moment of reading.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import aio_pika
import nats
from aio_pika.abc import AbstractIncomingMessage
from aiormq.abc import FieldTable
from nats.aio.msg import Msg

from penstock.testing.ledger import Arrival
from systems.servers.redis import RedisServer

ID, ATTEMPT = "penstock-id", "penstock-attempt"


class KafkaWitness:
    """What kcat has written so far, line by line."""

    def __init__(self, written: Path) -> None:
        self._written = written

    async def arrivals(self) -> Sequence[Arrival]:
        whole, _, _ = self._written.read_bytes().rpartition(b"\n")
        found = []
        for line in whole.splitlines():
            entry = json.loads(line)
            headers = dict(zip(entry["headers"][::2], entry["headers"][1::2], strict=True))
            assert entry["tstype"] == "logappend", "the moment is the broker's"
            found.append(Arrival(headers[ID], int(headers[ATTEMPT]), entry["ts"]))
        return found


class StreamWitness:
    """redis-cli, through the whole stream; an entry's own id says when it was added."""

    def __init__(self, server: RedisServer, stream: str) -> None:
        self._server = server
        self._stream = stream

    async def arrivals(self) -> Sequence[Arrival]:
        said = await asyncio.to_thread(self._server.cli, "--json", "XRANGE", self._stream, "-", "+")
        found = []
        for entry_id, pairs in json.loads(said or "[]"):
            fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
            moment = int(entry_id.partition("-")[0])
            found.append(Arrival(fields[ID], int(fields[ATTEMPT]), moment))
        return found


class Listener:
    """What a subscription has brought so far."""

    def __init__(self) -> None:
        self._found: list[Arrival] = []

    async def arrivals(self) -> Sequence[Arrival]:
        return self._found

    async def take_from_queue(self, message: AbstractIncomingMessage) -> None:
        headers = message.headers
        now = time.time_ns() // 1_000_000
        self._found.append(Arrival(str(headers[ID]), int(str(headers[ATTEMPT])), now))

    async def take_from_jetstream(self, message: Msg) -> None:
        headers = message.headers or {}
        moment = int(message.metadata.timestamp.timestamp() * 1000)
        self._found.append(Arrival(headers[ID], int(headers[ATTEMPT]), moment))


@asynccontextmanager
async def kafka_witness(brokers: str, topic: str, written: Path) -> AsyncIterator[KafkaWitness]:
    """kcat on the topic, whose timestamps must be the broker's (LogAppendTime)."""
    where = ("-b", brokers, "-t", topic, "-o", "beginning")
    with written.open("wb") as out:
        kcat = await asyncio.create_subprocess_exec(
            "kcat", "-C", "-q", "-u", "-J", *where, stdout=out
        )
    try:
        yield KafkaWitness(written)
    finally:
        kcat.kill()
        await kcat.wait()


@asynccontextmanager
async def rabbit_witness(
    url: str, queue: str, arguments: FieldTable | None = None
) -> AsyncIterator[Listener]:
    """A consumer of the queue, there from the start; `arguments` are the queue's."""
    listener = Listener()
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        declared = await channel.declare_queue(queue, durable=True, arguments=arguments)
        await declared.consume(listener.take_from_queue, no_ack=True)
        yield listener


@asynccontextmanager
async def jetstream_witness(
    url: str, subject: str, duplicate_window: float | None = None
) -> AsyncIterator[Listener]:
    """An ordered consumer of the subject, whose stream is made here.

    `duplicate_window`: seconds for which the stream knows a message's id.
    """
    listener = Listener()
    client = await nats.connect(url)
    try:
        stream = client.jetstream()
        await stream.add_stream(name=subject, subjects=[subject], duplicate_window=duplicate_window)
        await stream.subscribe(subject, ordered_consumer=True, cb=listener.take_from_jetstream)
        yield listener
    finally:
        await client.close()
