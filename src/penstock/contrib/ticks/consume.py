"""Consumes the messages that Penstock sends to a Kafka topic, and reports their lateness.

A message's due time is in its header `penstock-due`; a tick of another producer has it in its `at`.
A message with neither is counted, and its lateness is unknown.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import msgspec
from confluent_kafka import (
    TIMESTAMP_NOT_AVAILABLE,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    TopicPartition,
)

from penstock.brokers.kafka import Config, KafkaOptions, client_config, kafka_address
from penstock.flow.observe import Observer
from penstock.model.envelope import ATTEMPT, DUE, ID
from penstock.model.errors import InvalidMessage
from penstock.model.lateness import Lateness
from penstock.model.times import parse_moment
from penstock.ports.sink import SinkOptions
from penstock.sim.errors import Unreachable

log = logging.getLogger("penstock.sim")

STAGE = "consumed"
AT_ONCE = 2_000
WAIT = 0.1
"""Most seconds that one read waits for a first message."""
GATHER = {"fetch.min.bytes": 65_536, "fetch.wait.max.ms": 10}
"""The broker answers when it has this much, or after this wait: otherwise it answers thousands of
times per second with a few messages each."""
STILL_COMING = frozenset(
    {KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._PARTITION_EOF}  # noqa: SLF001 - their name
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """The topic to consume, and the group."""

    topic: str
    group: str
    config: Config = field(repr=False)
    """The client configuration for the brokers."""


def available(consumer: Consumer) -> list[Message]:
    """Read the messages that are there; wait for the first one only."""
    first: list[Message] = consumer.consume(1, WAIT)
    return [*first, *consumer.consume(AT_ONCE - 1, 0)] if first else first


def subscription(url: str, group: str, options: SinkOptions) -> Subscription:
    """The topic of a route with this address and these options; ConfigError names a wrong one.

    Only the route's connection options count.
    """
    address, topic = kafka_address(url, options.wrong)
    known = KafkaOptions.__struct_fields__
    more = {name: value for name, value in options.more.items() if name in known}
    own = replace(options, more=more).read(KafkaOptions, address.query)
    return Subscription(topic=topic, group=group, config=client_config(address, own, options.wrong))


class _Tick(msgspec.Struct, frozen=True):
    item: str
    at: str


class Consumed(msgspec.Struct, kw_only=True):
    """The messages consumed."""

    consumed: int = 0
    repeats: int = 0
    """Messages with an attempt above the first."""
    distinct: int | None = None
    """Distinct `penstock-id` headers; None if they are not counted."""
    without_due: int = 0
    """Messages without a due time, whose lateness is unknown."""
    early: int = 0
    """Messages published to Kafka before they were due."""
    lateness_ms: dict[str, int | None] = {}
    """Time from due to being consumed."""


class Read(Protocol):
    """A message of the client library."""

    def headers(self) -> object: ...
    def value(self) -> bytes | None: ...
    def timestamp(self) -> tuple[int, int]: ...


class Tally:
    """Counts messages and their lateness."""

    def __init__(self, *, distinct: bool = False) -> None:
        """`distinct`: remember every id (some 100 bytes each), for an exact count of repeats."""
        self._totals = Consumed()
        self._lateness = Lateness()
        self._ids: set[bytes] | None = set() if distinct else None

    def add(self, messages: Sequence[Read], now: int) -> None:
        totals = self._totals
        lates = []
        for message in messages:
            due, attempt = _due_and_attempt(message)
            totals.repeats += attempt > 1
            if due is None:
                totals.without_due += 1
                continue
            kind, handed_over = message.timestamp()
            totals.early += (now if kind == TIMESTAMP_NOT_AVAILABLE else handed_over) < due
            lates.append(max(0, now - due))
        totals.consumed += len(messages)
        self._lateness.add(lates)
        if self._ids is not None:
            self._ids.update(map(_id, messages))

    def totals(self) -> Consumed:
        quantiles = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        lateness = {name: self._lateness.quantile(share) for name, share in quantiles.items()}
        distinct = None if self._ids is None else len(self._ids)
        return msgspec.structs.replace(self._totals, lateness_ms=lateness, distinct=distinct)


class TickConsumer:
    """A member of a consumer group; call look() repeatedly, then close()."""

    def __init__(
        self, subscription: Subscription, observer: Observer, *, distinct: bool = False
    ) -> None:
        self._topic = subscription.topic
        self._observer = observer
        self._tally = Tally(distinct=distinct)
        self._answered = False
        self._consumer = Consumer(
            {
                **subscription.config,
                **GATHER,
                "group.id": subscription.group,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 2_000,  # finds a new topic soon
                "error_cb": self._hear,
            },
            logger=log,
        )
        self._consumer.subscribe([subscription.topic], on_assign=self._assigned)

    def check(self, seconds: float) -> None:
        """Raise Unreachable if no broker answers."""
        try:
            self._consumer.list_topics(timeout=seconds)
        except KafkaException as exc:
            self._consumer.close()
            raise Unreachable(f"Kafka does not answer: {exc.args[0].str()}") from exc
        self._answered = True

    def look(self) -> int:
        """Take the available messages, waiting briefly for the first; returns their number."""
        messages = [m for m in available(self._consumer) if self._is_message(m)]
        self._tally.add(messages, time.time_ns() // 1_000_000)
        self._observer.count(STAGE, self._topic, len(messages))
        return len(messages)

    def drain(self, seconds: float) -> bool:
        """Take the messages now on the topic; False if that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        ends = self._ends(seconds)
        while any(position.offset < ends[position.partition] for position in self._positions()):
            if time.monotonic() > deadline:
                return False
            self.look()
        return True

    def _positions(self) -> list[TopicPartition]:
        """The offset read up to in each assigned partition; 0 for one not begun."""
        return self._consumer.position(self._consumer.assignment())

    def _ends(self, seconds: float) -> dict[int, int]:
        return {
            position.partition: self._consumer.get_watermark_offsets(position, timeout=seconds)[1]
            for position in self._consumer.assignment()
        }

    def totals(self) -> Consumed:
        return self._tally.totals()

    def close(self) -> None:
        """Commit the offsets, and leave the group."""
        self._consumer.close()

    def _assigned(self, _consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if partitions:
            log.info("consuming %d partitions of %s", len(partitions), self._topic)

    def _hear(self, error: KafkaError) -> None:
        if self._answered and error.code() == KafkaError._ALL_BROKERS_DOWN:  # noqa: SLF001
            log.warning("Kafka does not answer, %s is read on once it does", self._topic)

    def _is_message(self, message: Message) -> bool:
        error = message.error()
        if error is None:
            return True
        if error.code() not in STILL_COMING:
            log.warning("Kafka, while consuming %s: %s", self._topic, error.str())
        return False


def _due_and_attempt(message: Read) -> tuple[int | None, int]:
    """The due time of a message, and its attempt.

    The header of a repeat has the due time of that attempt; a tick itself has the original one.
    """
    due: int | None = None
    attempt = 1
    headers = message.headers()
    for name, value in headers if isinstance(headers, list) else ():
        if name == DUE:
            due = _moment(value)
        elif name == ATTEMPT and value != b"1" and isinstance(value, bytes) and value.isdigit():
            attempt = int(value)
    if due is None or attempt > 1:
        meant = _meant(message.value())
        due = due if meant is None else meant
    return due, attempt


def _id(message: Read) -> bytes:
    """The id of a Penstock message; the bytes of any other."""
    headers = message.headers()
    for name, value in headers if isinstance(headers, list) else ():
        if name == ID and isinstance(value, bytes):
            return value
    return message.value() or b""


def _moment(value: str | bytes | None) -> int | None:
    try:
        return parse_moment(value.decode()) if isinstance(value, bytes) else None
    except (InvalidMessage, UnicodeDecodeError):
        return None


def _meant(value: bytes | None) -> int | None:
    """The moment of a tick; None if it is not a tick."""
    try:
        return parse_moment(_decode(value or b"").at)
    except (msgspec.MsgspecError, UnicodeDecodeError, InvalidMessage):
        return None


_decode = msgspec.json.Decoder(_Tick).decode
