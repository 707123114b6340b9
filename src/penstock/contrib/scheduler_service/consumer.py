"""Consumes the events that the scheduler service released, and reports the ids received."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from confluent_kafka import Consumer, KafkaException, Message

from penstock.contrib.scheduler_service.ids import Numbers, read_id
from penstock.contrib.scheduler_service.ways import Event
from penstock.contrib.ticks.consume import GATHER, STILL_COMING, Read, Subscription, available
from penstock.flow.observe import Observer
from penstock.model.envelope import ATTEMPT, ID
from penstock.model.lateness import Lateness
from penstock.sim.errors import Unreachable

log = logging.getLogger("penstock.sim")

STAGE = "consumed events"
ERROR = "penstock-error"
MOST_SAMPLES = 20


class Received(msgspec.Struct, kw_only=True):
    """The messages received."""

    consumed: int = 0
    early: int = 0
    """Published to Kafka before the moment that the client requested."""
    repeats: int = 0
    """Received again as a further attempt of a send that may have failed."""
    doubles: int = 0
    """Received again as a first attempt: the event was scheduled twice."""
    misplaced: int = 0
    """Received on another topic than the event names."""
    foreign: int = 0
    """Messages that are no events of the simulated client."""
    refused: int = 0
    """Records that the service refused, read from its dead letter."""
    lateness_ms: dict[str, int | None] = {}
    samples: dict[str, list[str]] = {}
    """Some ids of violations: early, doubles, misplaced; and reasons of refusals."""
    ids: dict[str, str] = {}
    """Run → the numbers of the events received."""
    refused_ids: dict[str, str] = {}


class Checks:
    """Compares each message with its client's request."""

    def __init__(self, refusals: str | None = None) -> None:
        """`refusals`: the topic of records that the service refused."""
        self._refusals = refusals
        self._received = Received()
        self._lateness = Lateness()
        self._came: dict[str, Numbers] = {}
        self._refused: dict[str, Numbers] = {}

    def add(self, topic: str, message: Read, now: int) -> None:
        if topic == self._refusals:
            self._refusal(message)
            return
        received = self._received
        received.consumed += 1
        event = _event(message.value())
        headers = _headers(message)
        known = None if event is None else read_id(event.id)
        if event is None or known is None or headers.get(ID) != event.id:
            received.foreign += 1
            return
        self._lateness.add([max(0, now - event.due)])
        if message.timestamp()[1] < event.due:
            received.early += 1
            self._sample("early", event.id)
        if topic != event.topic:
            received.misplaced += 1
            self._sample("misplaced", event.id)
        run, number = known
        if self._came.setdefault(run, Numbers()).add(number):
            return
        if headers.get(ATTEMPT) == "1":
            received.doubles += 1
            self._sample("doubles", event.id)
        else:
            received.repeats += 1

    def totals(self) -> Received:
        quantiles = {"p50": 0.5, "p99": 0.99, "max": 1.0}
        return msgspec.structs.replace(
            self._received,
            lateness_ms={name: self._lateness.quantile(share) for name, share in quantiles.items()},
            ids={run: numbers.text() for run, numbers in self._came.items()},
            refused_ids={run: numbers.text() for run, numbers in self._refused.items()},
        )

    def _refusal(self, message: Read) -> None:
        self._received.refused += 1
        self._sample("refused", _headers(message).get(ERROR, "without a reason"))
        record = _record(message.value())
        known = None if record is None else read_id(record.event_id or record.id or "")
        if known is not None:
            self._refused.setdefault(known[0], Numbers()).add(known[1])

    def _sample(self, kind: str, text: str) -> None:
        samples = self._received.samples.setdefault(kind, [])
        if len(samples) < MOST_SAMPLES:
            samples.append(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """The topics to consume."""

    where: Subscription
    """The brokers, the group and the route's own topic."""
    named: Sequence[str]
    """Topics that events name; one that begins with ^ is a pattern."""
    refusals: str | None = None
    """The source's dead-letter topic."""


class EventConsumer:
    """A member of a consumer group; call look() repeatedly, then drain(), then close()."""

    def __init__(self, topics: Topics, observer: Observer) -> None:
        self._observer = observer
        self._checks = Checks(topics.refusals)
        self._read: dict[tuple[str, int], int] = {}
        """Topic and partition → the offset after the last message taken."""
        self._consumer = Consumer(
            {
                **topics.where.config,
                **GATHER,
                "group.id": topics.where.group,
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 1_000,  # topics are created as events come
            },
            logger=log,
        )
        wanted = dict.fromkeys([topics.where.topic, *topics.named])
        if topics.refusals is not None:
            wanted[topics.refusals] = None
        self._consumer.subscribe(list(wanted))
        log.info("subscribed to %s", ", ".join(wanted))

    def check(self, seconds: float) -> None:
        """Raise Unreachable if no broker answers."""
        try:
            self._consumer.list_topics(timeout=seconds)
        except KafkaException as exc:
            self._consumer.close()
            raise Unreachable(f"Kafka does not answer: {exc.args[0].str()}") from exc

    def look(self) -> int:
        """Take the available messages, waiting briefly for the first; returns their number."""
        messages = [m for m in available(self._consumer) if _is_message(m)]
        now = time.time_ns() // 1_000_000
        for message in messages:
            topic = message.topic() or ""
            self._read[topic, message.partition() or 0] = (message.offset() or 0) + 1
            self._checks.add(topic, message, now)
        self._observer.count(STAGE, "events", len(messages))
        return len(messages)

    def drain(self, seconds: float) -> bool:
        """Take the messages now on the topics; False if that takes longer than `seconds`."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.look()
            if not self._behind():
                return True
        return False

    def _behind(self) -> bool:
        """Whether a partition holds messages that were not taken.

        Not by `position`: after a rebalance it is unknown until the next message arrives, which may
        be never. If none was taken here, the group's committed offset counts.
        """
        positions = self._consumer.committed(self._consumer.assignment(), timeout=10)
        for position in positions:
            low, high = self._consumer.get_watermark_offsets(position, timeout=10)
            taken = self._read.get((position.topic, position.partition), position.offset)
            if max(taken, low) < high:
                return True
        return False

    def totals(self) -> Received:
        return self._checks.totals()

    def close(self) -> None:
        """Commit the offsets, and leave the group."""
        self._consumer.close()


class _Record(msgspec.Struct, frozen=True):
    """The ids of a record on schedule_events."""

    event_id: str | None = None
    id: str | None = None


_decode_event = msgspec.json.Decoder(Event).decode
_decode_record = msgspec.json.Decoder(_Record).decode


def _event(value: bytes | None) -> Event | None:
    try:
        return _decode_event(value or b"")
    except msgspec.MsgspecError:
        return None


def _record(value: bytes | None) -> _Record | None:
    try:
        return _decode_record(value or b"")
    except msgspec.MsgspecError:
        return None


def _headers(message: Read) -> dict[str, str]:
    headers = message.headers()
    pairs = headers if isinstance(headers, list) else ()
    return {name: value.decode() for name, value in pairs if isinstance(value, bytes)}


def _is_message(message: Message) -> bool:
    error = message.error()
    if error is None:
        return True
    if error.code() not in STILL_COMING:
        log.warning("Kafka, while consuming events: %s", error.str())
    return False
