"""kafka://host:port/topic as a source — a consumer group, committed after the store has it.

Offsets are held back until a record is done, and then committed once per second, at a rebalance and
at the end. A partition that moves to another reader continues after the last commit, so a record
may be read twice; its id (`topic:partition:offset`, unless it brings one) makes that harmless.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Literal, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from penstock.brokers.address import Address
from penstock.brokers.kafka import (
    Config,
    KafkaOptions,
    client_config,
    kafka_address,
    log,
    provision,
)
from penstock.model.errors import SourceUnavailable
from penstock.ports.source import Record, Source, SourceOptions

T = TypeVar("T")
WAIT = 0.5
"""Seconds a read waits for the first record."""
PROBE = 3.0
COMMIT_MS = 1_000
READ_AHEAD_KB = 16_384


class KafkaSourceOptions(KafkaOptions, frozen=True, kw_only=True):
    group: str | None = None
    """The consumer group; unset: penstock- and the source's name."""
    start: Literal["earliest", "latest"] = "earliest"
    """Where a group without committed offsets begins."""


class KafkaSource:
    """Reads one topic. All calls of the consumer block, and run one at a time in one thread."""

    def __init__(
        self, address: Address, topic: str, options: KafkaSourceOptions, config: Config
    ) -> None:
        self.name = address.shown
        self._servers = ",".join(address.servers)
        self._topic = topic
        self._options = options
        self._config = config
        self._scrub = address.scrubber(options)
        self._thread = ThreadPoolExecutor(1, "penstock-kafka-source")
        self._consumer: Consumer | None = None
        self._held = False
        self._closed = False
        self._ahead: list[KafkaMessage] = []
        """Records that arrived during a hold: the next read returns them."""

    async def read(self, limit: int) -> Sequence[Record]:
        return await self._in_thread(partial(self._read, limit))

    async def done(self, records: Sequence[Record]) -> None:
        ends: dict[tuple[str, int], int] = {}
        for record in records:
            if isinstance(record.handle, TopicPartition):
                at = record.handle
                ends[at.topic, at.partition] = at.offset + 1
        await self._in_thread(partial(self._store, ends))

    async def hold(self, records: Sequence[Record]) -> None:
        del records  # the poll only keeps the membership in the group alive
        await self._in_thread(self._keep_alive)

    async def check(self) -> None:
        await self._in_thread(self._probe)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await self._in_thread(self._end)
            self._thread.shutdown(wait=False)

    async def _in_thread(self, call: Callable[[], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call)
        except KafkaException as exc:
            said = self._scrub(exc.args[0].str())
            raise SourceUnavailable(f"{self._servers}: {said}") from exc

    # The methods below run in the thread.

    def _open(self) -> Consumer:
        if self._consumer is None:
            if self._options.create_topic:
                troubles = provision(self._config, [self._topic], self._options)
                if troubles:
                    said = self._scrub(troubles[self._topic])
                    raise SourceUnavailable(f"{self._servers}: {self._topic}: {said}")
            consumer = Consumer({**self._config, "error_cb": self._heard}, logger=log)
            consumer.subscribe([self._topic])
            self._consumer = consumer
        return self._consumer

    def _read(self, limit: int) -> list[Record]:
        consumer = self._open()
        if self._held:
            consumer.resume(consumer.assignment())
            self._held = False
        got, self._ahead = self._ahead, []
        if not got:
            got = consumer.consume(1, WAIT)
        if got and len(got) < limit:
            got += consumer.consume(limit - len(got), 0)
        return [_record(message) for message in got if self._is_record(message)]

    def _is_record(self, message: KafkaMessage) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() in {
            KafkaError.UNKNOWN_TOPIC_OR_PART,
            KafkaError.TOPIC_AUTHORIZATION_FAILED,
        }:
            raise SourceUnavailable(f"{self._servers}: {self._topic}: {self._scrub(error.str())}")
        log.warning(
            "source %s: a read failed and is repeated: %s", self.name, self._scrub(error.str())
        )
        return False

    def _store(self, ends: dict[tuple[str, int], int]) -> None:
        if self._consumer is None:
            return
        for (topic, partition), offset in ends.items():
            try:
                self._consumer.store_offsets(offsets=[TopicPartition(topic, partition, offset)])
            except KafkaException as exc:
                if exc.args[0].code() != KafkaError._STATE:  # noqa: SLF001 - no longer ours
                    raise

    def _keep_alive(self) -> None:
        consumer = self._open()
        consumer.pause(consumer.assignment())
        self._held = True
        self._ahead += consumer.consume(1, 0)

    def _probe(self) -> None:
        self._open().list_topics(self._topic, PROBE)

    def _heard(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            log.warning(
                "source %s: no broker can be reached; reading resumes when one answers", self.name
            )

    def _end(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()  # commits finished records and leaves the group


def _record(message: KafkaMessage) -> Record:
    topic, partition, offset = message.topic() or "", message.partition() or 0, message.offset()
    key = message.key()
    return Record(
        value=message.value() or b"",
        headers=_headers(message.headers()),
        key=None if key is None else _text(key),
        origin=f"{topic}:{partition}:{offset}",
        handle=TopicPartition(topic, partition, offset or 0),
    )


def _headers(given: object) -> dict[str, str]:
    pairs = given.items() if isinstance(given, dict) else given
    if not isinstance(pairs, list):
        return {}
    return {str(name): _text(value) for name, value in pairs}


def _text(value: str | bytes | None) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else value or ""


async def open_source(url: str, options: SourceOptions) -> Source:
    address, topic = kafka_address(url, options.wrong)
    own = options.read(KafkaSourceOptions, address.query)
    config = client_config(address, own, options.wrong) | {
        "group.id": own.group or f"penstock-{options.source}",
        "partition.assignment.strategy": "cooperative-sticky",
        "auto.offset.reset": own.start,
        "enable.auto.offset.store": False,
        "enable.auto.commit": True,
        "auto.commit.interval.ms": COMMIT_MS,
        "queued.max.messages.kbytes": READ_AHEAD_KB,
        "fetch.wait.max.ms": 100,
        "session.timeout.ms": 10_000,
    }
    return KafkaSource(address, topic, own, config)
