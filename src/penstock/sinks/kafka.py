"""kafka://host:port[,host:port]/topic — an idempotent producer, acknowledged by all replicas.

| what happens                                            | outcome                            |
|---------------------------------------------------------|------------------------------------|
| the delivery report has no error                        | delivered                          |
| larger than the topic takes, a topic no name can be     | dead                               |
| no such topic, no permission, not enough replicas …     | retry                              |
| a topic that `create_topic` cannot make                 | retry                              |
| no acknowledgement in the route's timeout, though a     | retry                              |
| broker answers (a partition without a leader …)         |                                    |
| no broker answers at all                                | retry; the circuit breaker counts  |

With `create_topic` the route's own topic is made at the start, and one that a message may name
before the first message goes to it.

A leader that changes is followed inside the timeout. `delivery.timeout.ms` is the route's timeout,
so the fate of a send is known before its lease ends; what timed out may have arrived.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Annotated, Literal, TypeAlias, TypeVar

import msgspec
from confluent_kafka import KafkaError, KafkaException, Producer
from msgspec.structs import replace

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
from penstock.model.topics import REMEMBERED, Topics
from penstock.ports.sink import Sink, SinkOptions, still_answers

MAX_BATCH = 250
CONCURRENCY = 2_000
"""Eight batches: enough to fill the producer's own batches while reports come in."""
RENEW_AFTER = 3
"""Failed checks in a row after which a producer is replaced (librdkafka#3009)."""
PROBE = 2.0
"""Seconds within which a reachable broker answers a check."""
QUICK, SLOW = 0.001, 0.02
"""Seconds between polls for delivery reports: right after one, and when none come."""
QUEUE_KBYTES = 64 * 1024
"""Size limit of the producer's own queue; a send waits while it is full."""
LARGEST = 100_000_000
"""Bytes: no limit by the client, so that the broker's own limit decides."""

_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})
_OF_ITS_BATCH = _TOO_LARGE | {KafkaError.INVALID_RECORD}
"""Errors reported for a whole producer batch because of one or all of its messages."""
_REFUSED = frozenset({KafkaError.INVALID_RECORD, KafkaError._INVALID_ARG})  # noqa: SLF001
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


T = TypeVar("T")
Headers: TypeAlias = list[tuple[str, bytes]]


class KafkaSinkOptions(KafkaOptions, frozen=True, kw_only=True):
    compression: Literal["none", "gzip", "snappy", "lz4", "zstd"] = "none"
    """Compression of the producer's batches."""
    linger_ms: Annotated[int, msgspec.Meta(ge=0, le=1000)] = 2
    """How long the producer waits for more messages to batch."""


class _Reports:
    """The delivery reports of one send, counted; one future for all of them."""

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


class _Producer:
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
        """Publish messages; the answer is the errors by index, all others were acknowledged."""
        batch = _Reports(len(messages))
        self._waiting += 1
        try:
            self._look()
            for index, (topic, message) in enumerate(messages):
                report = partial(batch.report, index)
                try:
                    carried = headers(message)
                except ValueError as exc:
                    report(KafkaError(KafkaError._INVALID_ARG, str(exc)))  # noqa: SLF001
                    continue
                # A full queue signals free space only by accepting the next message.
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
        except (TypeError, ValueError) as exc:
            report(KafkaError(KafkaError._INVALID_ARG, str(exc)))  # noqa: SLF001 - its name
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
        """Abandon outstanding messages: they are reported as purged."""
        self.producer.purge(blocking=False)

    async def end(self) -> None:
        """Flush every outstanding report. Reports are delivered by this call, never by a thread."""
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
        self._line: _Producer | None = None
        self._lone: _Producer | None = None
        self._thread = ThreadPoolExecutor(1, "penstock-kafka")
        self._provisioned = not options.create_topic
        self._provisioning = asyncio.Lock()
        self._made: set[str] = set()
        """Topics that messages name and that are known to exist."""
        self._silent = False
        """True if no broker answered the last check: check again before sending."""
        self._unanswered = 0
        """Checks in a row that the present producer failed."""
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
        if self._options.create_topic:
            troubles = await self._make_named({topic for _, topic, _ in sendable})
            gone = bool(troubles) and not await still_answers(self)
            for index, topic, _ in sendable if troubles else ():
                if topic in troubles:
                    said = self._not_made(topic, troubles[topic])
                    outcomes[index] = Retry(said, unreachable=gone, unsure=False)
            sendable = [one for one in sendable if one[1] not in troubles]
        errors = await self._produce(self._main(), [(t, m) for _, t, m in sendable])
        for at, error in errors.items():
            index, topic, message = sendable[at]
            of_its_batch = error.code() in _OF_ITS_BATCH
            final = await self._alone(topic, message) if of_its_batch else error
            outcomes[index] = DELIVERED if final is None else self._meaning(final, topic)
        if len(errors) == len(batch) and _SILENCE.issuperset(e.code() for e in errors.values()):
            gone = not await still_answers(self)
            return [replace(outcome, unreachable=gone) for outcome in outcomes]
        return outcomes

    async def _produce(
        self, line: _Producer, messages: Sequence[tuple[str, Message]]
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
        """Send it in a batch of its own: the error may have been that of its batch."""
        if self._lone is None:
            self._lone = _Producer({**self._config, "batch.num.messages": 1}, self._heard)
        return (await self._produce(self._lone, [(topic, message)])).get(0)

    def _main(self) -> _Producer:
        if self._line is None:
            self._line = _Producer(self._config, self._heard)
        return self._line

    def _meaning(self, error: KafkaError, topic: str) -> SendOutcome:
        code = error.code()
        if code in _TOO_LARGE:
            return Dead(f"larger than topic {topic!r} takes")
        if code in _REFUSED:
            return Dead(self._scrub(f"{self._servers}: {error.str()}"))
        if code in _SILENCE:
            said = f" ({self._trouble})" if self._trouble else ""
            return Retry(
                f"{self._servers}: no acknowledgement in {self._timeout:g} s{said}", unsure=True
            )
        if code in {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC}:  # noqa: SLF001
            self._made.discard(topic)
            return Retry(f"{self._servers} has no topic {topic!r}")
        return Retry(self._scrub(f"{self._servers}: {error.str()}"))

    def _heard(self, error: KafkaError) -> None:
        """Error callback: librdkafka reports lost connections here, from within poll()."""
        if error.code() != KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            self._trouble = self._scrub(error.str())
        elif self._asking is None:
            self._asking = asyncio.get_running_loop().create_task(self._ask())
            self._asking.add_done_callback(self._asked)

    async def _ask(self) -> None:
        """After every connection was lost: fail the waiting sends unless a broker answers now."""
        try:
            await self.check()
        except SinkUnavailable:
            for line in (self._line, self._lone):
                if line is not None:
                    line.drop()

    def _asked(self, _task: asyncio.Task[None]) -> None:
        self._asking = None

    async def _give_up(self, line: _Producer) -> None:
        """After a fatal error: this producer can never send again, so a new one replaces it."""
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
            await self._replace_silent(line)
            raise SinkUnavailable(f"{self._servers} cannot be reached: {said}") from exc
        self._silent = False
        self._unanswered = 0
        if not self._provisioned:
            async with self._provisioning:
                await self._provision()

    async def _replace_silent(self, line: _Producer) -> None:
        """Reconnect after several failed checks: a producer may miss that its broker is back."""
        self._unanswered += 1
        if self._unanswered >= RENEW_AFTER and self._line is line:
            self._unanswered = 0
            await self._give_up(line)

    async def _provision(self) -> None:
        if self._provisioned:
            return
        own = self._topics.own
        troubles = await self._in_thread(partial(provision, self._config, [own], self._options))
        if troubles:
            raise SinkUnavailable(self._not_made(own, troubles[own]))
        self._provisioned = True

    async def _make_named(self, topics: set[str]) -> dict[str, str]:
        """Create unknown topics; the answer is the error of each that cannot be created."""
        if not self._unknown(topics):
            return {}
        async with self._provisioning:
            unknown = self._unknown(topics)  # another send may have created them meanwhile
            if not unknown:
                return {}
            call = partial(provision, self._config, unknown, self._options)
            troubles = await self._in_thread(call)
            if len(self._made) + len(unknown) > REMEMBERED:
                self._made.clear()
            self._made |= unknown - troubles.keys()
            return troubles

    def _unknown(self, topics: set[str]) -> set[str]:
        return topics - self._made - {self._topics.own}

    def _not_made(self, topic: str, trouble: str) -> str:
        return self._scrub(f"{self._servers}: topic {topic!r} cannot be made: {trouble}")

    async def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        for line in (self._line, self._lone):
            if line is not None:
                await self._end(line)
        self._line = self._lone = None
        self._thread.shutdown(wait=False)

    async def _end(self, line: _Producer) -> None:
        await line.end()
        await self._in_thread(line.producer.close)  # closing joins the producer's own threads

    async def _in_thread(self, call: Callable[[], T]) -> T:
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
        "queue.buffering.max.kbytes": QUEUE_KBYTES,
        "partitioner": "murmur2_random",  # the same partition for a key as the Java clients
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
