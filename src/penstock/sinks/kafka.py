"""kafka://host:port[,host:port]/topic — an idempotent producer, acknowledged by all replicas.

| what happens                                            | outcome                            |
|---------------------------------------------------------|------------------------------------|
| the delivery report has no error                        | delivered                          |
| larger than the topic takes, a topic no name can be     | dead                               |
| no such topic, no permission, not enough replicas …     | retry                              |
| no acknowledgement within the route's timeout           | retry; the circuit breaker counts  |
| no broker answers at all                                | the same, without waiting for it   |

A leader that changes is followed inside the timeout. `delivery.timeout.ms` is the route's timeout,
so the fate of a send is known before its lease ends; what timed out may have arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Literal, TypeAlias

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer

from penstock.brokers.address import Address
from penstock.brokers.kafka import (
    Config,
    KafkaOptions,
    client_config,
    is_topic,
    kafka_address,
    log,
    provision,
)
from penstock.model.envelope import Envelope
from penstock.model.errors import SinkUnavailable
from penstock.model.message import Message
from penstock.model.outcome import DELIVERED, Dead, Retry, SendOutcome
from penstock.model.topics import Topics
from penstock.ports.sink import Sink, SinkOptions

MAX_BATCH = 500
CONCURRENCY = 5_000
"""Ten batches: enough that the producer's own batches are full while reports come in."""
PROBE = 2.0
"""Seconds within which a broker answers that is there at all."""
QUICK, SLOW = 0.001, 0.02
"""Seconds between looks for delivery reports: right after one, and when none come."""
LARGEST = 100_000_000
"""Bytes: the broker's own limit shall decide, not the client's."""

_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_SILENCE = frozenset(
    {
        KafkaError._MSG_TIMED_OUT,  # noqa: SLF001 - librdkafka's names begin so
        KafkaError._TIMED_OUT,  # noqa: SLF001
        KafkaError._TRANSPORT,  # noqa: SLF001
        KafkaError._ALL_BROKERS_DOWN,  # noqa: SLF001
        KafkaError._PURGE_QUEUE,  # noqa: SLF001
        KafkaError._PURGE_INFLIGHT,  # noqa: SLF001
        KafkaError._RESOLVE,  # noqa: SLF001
    }
)


Headers: TypeAlias = list[tuple[str, bytes]]


class KafkaSinkOptions(KafkaOptions, frozen=True, kw_only=True):
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """Of what the producer sends together."""
    linger_ms: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 2
    """How long the producer waits for more to send together."""


class Batch:
    """Reports of one send, counted; one future for all of them."""

    __slots__ = ("_left", "done", "errors")

    def __init__(self, size: int) -> None:
        self._left = size
        self.errors: dict[int, KafkaError] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def report(self, index: int, error: KafkaError | None, _message: object = None) -> None:
        if error is not None:
            self.errors[index] = error
        self._left -= 1
        if not self._left and not self.done.done():
            self.done.set_result(None)


class Line:
    """One producer, served by the event loop while reports are outstanding."""

    def __init__(self, config: Config, on_error: Callable[[KafkaError], None]) -> None:
        self.producer = Producer({**config, "error_cb": self._hear}, logger=log)
        self._on_error = on_error
        self._ended = False
        self._waiting = 0
        self._pause = QUICK
        self._timer: asyncio.TimerHandle | None = None

    async def send(
        self, messages: Sequence[tuple[str, Message]], headers: Callable[[Message], Headers]
    ) -> dict[int, KafkaError]:
        """The errors by index; what is not among them was acknowledged."""
        batch = Batch(len(messages))
        self._waiting += 1
        try:
            self._look()
            for index, (topic, message) in enumerate(messages):
                report = partial(batch.report, index)
                carried = headers(message)
                # A full queue has no other sign of room than that it takes the next one.
                while not self._produce(topic, message, carried, report):  # noqa: ASYNC110
                    await asyncio.sleep(QUICK)
            await batch.done
        finally:
            self._waiting -= 1
        return batch.errors

    def _produce(
        self, topic: str, message: Message, headers: Headers, report: partial[None]
    ) -> bool:
        try:
            self.producer.produce(
                topic,
                message.payload,
                message.key,
                on_delivery=report,
                headers=headers,  # type: ignore[arg-type] # their list is of all they take
            )
        except BufferError:
            return False
        except KafkaException as exc:
            report(exc.args[0])
        return True

    def _look(self) -> None:
        if self._timer is None:
            self._pause = QUICK
            self._timer = asyncio.get_running_loop().call_later(QUICK, self._serve)

    def _serve(self) -> None:
        self._timer = None
        served = self.producer.poll(0)
        if self._waiting:
            self._pause = QUICK if served else min(self._pause * 1.2, SLOW)
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._serve)

    def _hear(self, error: KafkaError) -> None:
        if not self._ended:
            self._on_error(error)

    def drop(self) -> None:
        """Give up what is outstanding: it is reported as purged."""
        self.producer.purge(blocking=False)

    async def end(self) -> None:
        """Have everything outstanding reported. Reports come from here, never from a thread."""
        self._ended = True
        self.drop()
        deadline = asyncio.get_running_loop().time() + PROBE
        while len(self.producer) and asyncio.get_running_loop().time() < deadline:
            self.producer.poll(0)
            await asyncio.sleep(QUICK)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class KafkaSink:
    max_batch = MAX_BATCH
    concurrency = CONCURRENCY

    def __init__(
        self,
        address: Address,
        topics: Topics,
        envelope: Envelope,
        options: KafkaSinkOptions,
        config: Config,
        *,
        timeout: float,
    ) -> None:
        self.name = address.shown
        self._servers = ",".join(address.servers)
        self._topics = topics
        self._envelope = envelope
        self._options = options
        self._config = config
        self._timeout = timeout
        self._scrub = address.scrubber(options)
        self._line: Line | None = None
        self._lone: Line | None = None
        self._thread = ThreadPoolExecutor(1, "penstock-kafka")
        self._provisioned = not options.create_topic
        self._provisioning = asyncio.Lock()
        self._silent = False
        """Nobody answered when last asked: ask before sending."""
        self._trouble = ""
        self._asking: asyncio.Task[None] | None = None

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        if not batch:
            return []
        if self._silent or not self._provisioned:
            try:
                await self.check()
            except SinkUnavailable as exc:
                return [Retry(exc.message, unreachable=True, unsure=False)] * len(batch)
        outcomes: list[SendOutcome] = [DELIVERED] * len(batch)
        sendable: list[tuple[int, str, Message]] = []
        for index, message in enumerate(batch):
            topic = self._topics.of(message)
            if is_topic(topic):
                sendable.append((index, topic, message))
            else:
                outcomes[index] = Dead(f"{topic[:100]!r} cannot be the name of a Kafka topic")
        errors = await self._produce(self._main(), [(t, m) for _, t, m in sendable])
        for at, error in errors.items():
            index, topic, message = sendable[at]
            too_large = error.code() in _TOO_LARGE
            final = await self._alone(topic, message) if too_large else error
            outcomes[index] = DELIVERED if final is None else self._meaning(final, topic)
        return outcomes

    async def _produce(
        self, line: Line, messages: Sequence[tuple[str, Message]]
    ) -> dict[int, KafkaError]:
        if not messages:
            return {}
        errors = await line.send(messages, self._envelope.pairs)
        if len(errors) < len(messages):
            self._trouble = ""
        if any(error.fatal() for error in errors.values()):
            await self._give_up(line)
        return errors

    async def _alone(self, topic: str, message: Message) -> KafkaError | None:
        """Too large may have meant the batch it was in: ask again with a batch of its own."""
        if self._lone is None:
            self._lone = Line({**self._config, "batch.num.messages": 1}, self._heard)
        return (await self._produce(self._lone, [(topic, message)])).get(0)

    def _main(self) -> Line:
        if self._line is None:
            self._line = Line(self._config, self._heard)
        return self._line

    def _meaning(self, error: KafkaError, topic: str) -> SendOutcome:
        code = error.code()
        if code in _TOO_LARGE:
            return Dead(f"larger than topic {topic!r} takes")
        if code in _SILENCE:
            said = f" ({self._trouble})" if self._trouble else ""
            return Retry(
                f"{self._servers}: no acknowledgement in {self._timeout:g} s{said}",
                unreachable=True,
            )
        if code in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:  # noqa: SLF001
            return Retry(f"{self._servers} has no topic {topic!r}")
        return Retry(self._scrub(f"{self._servers}: {error.str()}"))

    def _heard(self, error: KafkaError) -> None:
        """librdkafka tells of lost connections here, from within poll()."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._trouble = self._scrub(error.str())
        elif self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
            self._asking.add_done_callback(self._asked)

    async def _ask(self) -> None:
        """Every connection is lost: unless somebody answers now, nobody is waited for."""
        try:
            await self.check()
        except SinkUnavailable:
            for line in (self._line, self._lone):
                if line is not None:
                    line.drop()

    def _asked(self, _task: asyncio.Task[None]) -> None:
        self._asking = None

    async def _give_up(self, line: Line) -> None:
        """A fatal error: this producer can never send again, a new one can."""
        if self._line is line:
            self._line = None
        elif self._lone is line:
            self._lone = None
        await self._end(line)

    async def check(self) -> None:
        patience = min(PROBE, self._timeout)
        line = self._main()
        try:
            await self._in_thread(partial(line.producer.list_topics, self._topics.own, patience))
        except KafkaException as exc:
            self._silent = True
            said = self._trouble or self._scrub(exc.args[0].str())
            raise SinkUnavailable(f"{self._servers} cannot be reached: {said}") from exc
        self._silent = False
        if not self._provisioned:
            async with self._provisioning:
                await self._provision()

    async def _provision(self) -> None:
        if self._provisioned:
            return
        own = self._topics.own
        trouble = await self._in_thread(partial(provision, self._config, own, self._options))
        if trouble is not None:
            raise SinkUnavailable(
                self._scrub(f"{self._servers}: topic {own!r} cannot be made: {trouble}")
            )
        self._provisioned = True

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        for line in (self._line, self._lone):
            if line is not None:
                await self._end(line)
        self._line = self._lone = None
        self._thread.shutdown(wait=False)

    async def _end(self, line: Line) -> None:
        await line.end()
        await self._in_thread(line.producer.close)  # it joins threads of its own

    async def _in_thread(self, call: Callable[[], object]) -> object:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)


def producer_config(options: KafkaSinkOptions, timeout: float) -> Config:
    wait = max(1, round(timeout * 1000))
    return {
        "enable.idempotence": True,
        "acks": "all",
        "delivery.timeout.ms": max(wait, options.linger_ms + 1),
        "request.timeout.ms": wait,
        "linger.ms": options.linger_ms,
        "compression.type": options.compression,
        "message.max.bytes": LARGEST,
        "queue.buffering.max.messages": 1_000_000,
        "partitioner": "murmur2_random",  # a key goes where the Java clients would put it
        "topic.metadata.propagation.max.ms": min(5_000, wait),
    }


async def open_sink(url: str, options: SinkOptions) -> Sink:
    address, topic = kafka_address(url, options.wrong)
    own = options.read(KafkaSinkOptions, address.query)
    config = client_config(address, own, options.wrong)
    config |= producer_config(own, options.timeout)
    return KafkaSink(
        address,
        Topics(topic, options.topics),
        options.envelope(),
        own,
        config,
        timeout=options.timeout,
    )
