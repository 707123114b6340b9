"""redis://user:password@host:port/[db/]stream (rediss://) — XADD, a batch in one round trip.

An entry's fields: `payload`, `key` and each header by its name (`penstock-id`, `penstock-attempt`,
`penstock-due`, `content-type`, the caller's own; a caller's `payload` or `key` header gives way).

Where the stream is in the store's own Redis, the flow lets the store write the entries instead, in
the step that settles their messages.

| what happens                                       | outcome                                 |
|----------------------------------------------------|-----------------------------------------|
| XADD answers with the entry's id                   | delivered (as durable as that Redis is) |
| the key holds something that is not a stream       | dead                                    |
| out of memory, loading, read-only, another error   | retry                                   |
| no answer in time, though it answers a check       | retry                                   |
| no answer to a check either, no connection         | retry; the circuit breaker counts it    |
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

import msgspec
from redis import exceptions as vendor
from redis.asyncio import Redis

from penstock.brokers.address import Address, LoginOptions, parse_address
from penstock.model.envelope import Envelope
from penstock.model.errors import SinkUnavailable
from penstock.model.isolation import isolate
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead, Retry, SendOutcome, StreamEntry
from penstock.model.topics import Topics
from penstock.ports.sink import Sink, SinkOptions, still_answers
from penstock.redis_kit.connect import stream_client
from penstock.redis_kit.errors import is_silent

MAX_BATCH = 250
CONCURRENCY = 1_000
"""Most messages that a killed worker repeats; twice as many would be a tenth faster."""
CONNECTIONS = 8
CHECKING = 8
"""Connections beyond those that send, so that a check need not wait for one."""
PORT = 6379
PAYLOAD, KEY = "payload", "key"


class StreamOptions(LoginOptions, frozen=True, kw_only=True):
    maxlen: Annotated[int, msgspec.Meta(ge=1)] | None = None
    """Trim the stream to about this many entries as it grows."""
    create_topic: bool = False
    """Create the stream at the start, so that readers find it."""


class StreamSink:
    max_batch = MAX_BATCH
    concurrency = CONCURRENCY

    def __init__(
        self,
        address: Address,
        client: Redis,
        topics: Topics,
        envelope: Envelope,
        options: StreamOptions,
        *,
        place: tuple[str, int, int],
        timeout: float,
    ) -> None:
        self.name = address.shown
        self.place = place
        self._host = ",".join(address.servers)
        self._client = client
        self._topics = topics
        self._envelope = envelope
        self._options = options
        self._timeout = timeout
        self._scrub = address.scrubber(options)
        self._provisioned = not options.create_topic
        self._lines = asyncio.Semaphore(CONNECTIONS)

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        if not batch:
            return []
        return await isolate(batch, self._send, self._unsendable)

    def _unsendable(self, exc: Exception) -> SendOutcome:
        return Dead(self._scrub(f"{self._host}: cannot be an entry of a stream: {exc}"))

    async def _send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        """Send the batch; raises the client's error about a message before anything is sent."""
        try:
            async with asyncio.timeout(self._timeout):
                await self._provision()
                answers = await self._add(batch)
        except TimeoutError:
            error = f"{self._host}: no answer in {self._timeout:g} s"
            gone = not await still_answers(self)
            return [Retry(error, unreachable=gone, unsure=True)] * len(batch)
        except vendor.DataError:
            raise
        except (vendor.RedisError, OSError) as exc:
            return [self._failed(exc)] * len(batch)
        return [
            self._meaning(answer, message) for answer, message in zip(answers, batch, strict=True)
        ]

    async def _add(self, batch: Sequence[Message]) -> list[object]:
        pipe = self._client.pipeline(transaction=False)
        maxlen = self._options.maxlen
        trim = () if maxlen is None else (b"MAXLEN", b"~", maxlen)
        for message in batch:
            fields = self._fields(message)
            pipe.execute_command("XADD", self._topics.of(message), *trim, b"*", *fields)
        async with self._lines:
            answers: list[object] = await pipe.execute(raise_on_error=False)
        return answers

    def entry(self, message: Message) -> StreamEntry:
        fields = tuple(self._fields(message))
        return StreamEntry(self._topics.of(message), fields, self._options.maxlen)

    def _fields(self, message: Message) -> list[bytes]:
        fields = [PAYLOAD.encode(), message.payload, KEY.encode(), message.key.encode()]
        for name, value in self._envelope.headers(message).items():
            if name not in (PAYLOAD, KEY):
                fields += (name.encode(), value.encode())
        return fields

    def _meaning(self, answer: object, message: Message) -> SendOutcome:
        if isinstance(answer, bytes):
            return DELIVERED
        text = self._scrub(f"{self._host}/{self._topics.of(message)}: {answer}")
        return Dead(text) if str(answer).startswith("WRONGTYPE") else Retry(text)

    def _failed(self, exc: Exception) -> SendOutcome:
        said = self._scrub(f"{self._host}: {str(exc) or type(exc).__name__}")
        return Retry(said, unreachable=is_silent(exc))

    async def _provision(self) -> None:
        """Create an empty stream, by creating and removing a group."""
        if self._provisioned:
            return
        own, group = self._topics.own, "penstock-provision"
        if not await self._client.exists(own):
            await self._client.xgroup_create(own, group, mkstream=True)
            await self._client.xgroup_destroy(own, group)
        self._provisioned = True

    async def check(self) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                await self._client.exists(self._topics.own)
                await self._provision()
        except (vendor.RedisError, OSError) as exc:  # a TimeoutError is an OSError
            said = self._scrub(str(exc) or f"no answer in {self._timeout:g} s")
            raise SinkUnavailable(f"{self._host} cannot be reached: {said}") from exc

    async def close(self) -> None:
        await self._client.aclose()


async def open_sink(url: str, options: SinkOptions) -> Sink:
    address = parse_address(url, PORT, options.wrong)
    own = options.read(StreamOptions, address.query)
    stream = address.path[-1] if address.path else ""
    db = address.path[0] if len(address.path) == 2 else "0"
    if not stream or len(address.path) > 2 or not db.isdigit() or len(address.hosts) != 1:
        raise options.wrong(f"must be {address.scheme}://host:port/stream or …/db/stream")
    user, password = address.login(own)
    host, port = address.hosts[0]
    tls = {
        "ssl_ca_certs": own.tls_ca,
        "ssl_certfile": own.tls_cert,
        "ssl_keyfile": own.tls_key,
        "ssl_cert_reqs": "required" if own.tls_verify else "none",
        "ssl_check_hostname": own.tls_verify,
    }
    has_tls = address.context(own, options.wrong) is not None  # unreadable files are an error now
    client = stream_client(
        CONNECTIONS + CHECKING,
        tls=tls if has_tls else None,
        host=host,
        port=port,
        db=int(db),
        username=user,
        password=password,
        socket_connect_timeout=options.timeout,
    )
    topics = Topics(stream, options.topics)
    return StreamSink(
        address,
        client,
        topics,
        options.envelope(),
        own,
        place=(host, port, int(db)),
        timeout=options.timeout,
    )
