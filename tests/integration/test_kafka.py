"""Kafka, seen by others: kcat reads what was written; a broker that goes loses nothing."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
import uuid
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from penstock.model.errors import SinkUnavailable
from penstock.model.outcome import DELIVERED, Dead, Retry
from penstock.ports.sink import Sink, SinkOptions
from penstock.ports.source import SourceOptions
from penstock.settings import RouteSettings, Settings
from penstock.sinks.kafka import RENEW_AFTER, KafkaSink, open_sink
from penstock.sources.kafka import open_source
from penstock.testing.source_suite import collect
from penstock.wiring import init_routes
from systems.servers.kafka import Kafka, KafkaBroker, KafkaServer
from systems.servers.ports import free_port
from tests.integration.brokers import message, through_the_engine, until_delivered


@pytest.fixture
def topic(kafka: Kafka) -> str:
    name = f"t-{uuid.uuid4()}"
    kafka.create_topic(name)
    return name


@pytest.fixture
async def sink(kafka: Kafka, topic: str) -> AsyncIterator[Sink]:
    options = SinkOptions(topics=("orders.*",), timeout=60.0)
    opened = await open_sink(f"kafka://{kafka.address}/{topic}", options)
    yield opened
    await opened.close()


def kcat(kafka: Kafka, topic: str) -> list[dict[str, object]]:
    """Everything in the topic, by somebody else's client."""
    words = ["kcat", "-b", kafka.address, "-t", topic, "-C", "-o", "beginning", "-e", "-q", "-J"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return [json.loads(line) for line in done.stdout.splitlines()]


def kcat_list(kafka: Kafka, topic: str) -> str:
    words = ["kcat", "-b", kafka.address, "-L", "-t", topic]
    done = subprocess.run(words, capture_output=True, text=True, check=True, timeout=60)
    return done.stdout


def ids(entries: list[dict[str, object]]) -> list[str]:
    found = []
    for entry in entries:
        headers = entry["headers"]
        assert isinstance(headers, list)
        found.append(str(headers[headers.index("penstock-id") + 1]))
    return found


async def test_kcat_reads_key_value_and_headers(kafka: Kafka, topic: str, sink: Sink) -> None:
    sent = message("m-1", b'{"item":"user1"}', key="user1", headers={"x-trace": "t1"})
    assert await sink.send([sent]) == [DELIVERED]
    (entry,) = kcat(kafka, topic)
    assert (entry["key"], entry["payload"]) == ("user1", '{"item":"user1"}')
    headers = entry["headers"]
    assert isinstance(headers, list)
    carried = dict(zip(headers[::2], headers[1::2], strict=True))
    assert carried["penstock-id"] == "m-1"
    assert carried["penstock-attempt"] == "1"
    assert carried["penstock-due"] == "2030-01-01T00:00:00.000Z"
    assert carried["x-trace"] == "t1"


async def test_a_message_chooses_its_topic_where_the_route_allows_it(
    kafka: Kafka, topic: str, sink: Sink
) -> None:
    chosen = f"orders.{uuid.uuid4()}"
    kafka.create_topic(chosen)
    batch = [message("a", topic=chosen), message("b", topic="elsewhere"), message("c")]
    assert await sink.send(batch) == [DELIVERED] * 3
    assert ids(kcat(kafka, chosen)) == ["a"]
    assert ids(kcat(kafka, topic)) == ["b", "c"]


async def test_a_topic_that_a_message_names_is_made_where_the_route_says_so(
    kafka_process: KafkaServer, topic: str
) -> None:
    """Messages of one batch, and of batches beside each other, name topics that are not there."""
    options = SinkOptions(
        topics=("orders.*",), timeout=60.0, more={"create_topic": True, "partitions": 3}
    )
    sink = await open_sink(f"kafka://{kafka_process.address}/{topic}", options)
    one, two = f"orders.{uuid.uuid4()}", f"orders.{uuid.uuid4()}"
    first = [message("a", topic=one), message("b", topic=two), message("c", topic="elsewhere")]
    sent = await asyncio.gather(sink.send(first), sink.send([message("d", topic=one)]))
    await sink.close()
    assert [list(outcomes) for outcomes in sent] == [[DELIVERED] * 3, [DELIVERED]]
    assert (sorted(ids(kcat(kafka_process, one))), ids(kcat(kafka_process, two))) == (
        ["a", "d"],
        ["b"],
    )
    assert ids(kcat(kafka_process, topic)) == ["c"]
    assert "with 3 partitions" in kcat_list(kafka_process, one)
    assert "with 0 partitions" in kcat_list(kafka_process, "elsewhere")


async def test_kafka_refuses_what_can_never_be_a_topic(sink: Sink) -> None:
    bad, good = await sink.send([message("a", topic="orders.a b"), message("b")])
    assert isinstance(bad, Dead)
    assert good == DELIVERED


async def test_a_message_larger_than_the_topic_takes_is_dead_and_its_neighbours_arrive(
    kafka_process: KafkaServer,
) -> None:
    topic = f"t-{uuid.uuid4()}"
    kafka_process.create_topic(topic, max_message_bytes="5000")
    sink = await open_sink(f"kafka://{kafka_process.address}/{topic}", SinkOptions(timeout=60.0))
    small = [message(f"s-{n}", b"x" * 1500) for n in range(10)]
    outcomes = await sink.send([*small[:5], message("large", b"x" * 9000), *small[5:]])
    await sink.close()
    assert [o for o in outcomes if o != DELIVERED] == [Dead(f"larger than topic {topic!r} takes")]
    assert sorted(ids(kcat(kafka_process, topic))) == sorted(m.id for m in small)


async def test_a_topic_that_is_not_there_is_tried_again_and_named(
    kafka_process: KafkaServer,
) -> None:
    url = f"kafka://{kafka_process.address}/nobody-made-me"
    sink = await open_sink(url, SinkOptions(timeout=6.0))
    (outcome,) = await sink.send([message("a")])
    await sink.close()
    assert isinstance(outcome, Retry)
    assert "no topic 'nobody-made-me'" in outcome.error


async def test_create_topic_makes_kafkas_topic_before_anything_is_sent(
    kafka_process: KafkaServer,
) -> None:
    topic = f"t-{uuid.uuid4()}"
    options = SinkOptions(more={"create_topic": True, "partitions": 3}, timeout=60.0)
    sink = await open_sink(f"kafka://{kafka_process.address}/{topic}", options)
    await sink.check()
    assert f'topic "{topic}" with 3 partitions' in kcat_list(kafka_process, topic)
    await sink.close()


async def test_a_producer_that_does_not_find_its_broker_again_is_replaced(
    kafka_process: KafkaServer, topic: str, sink: Sink
) -> None:
    assert isinstance(sink, KafkaSink)
    await sink.check()
    lost = sink._line
    assert lost is not None
    lost.producer = Producer({"bootstrap.servers": f"127.0.0.1:{free_port()}", "log_level": 0})
    for _ in range(RENEW_AFTER):
        assert sink._line is lost
        with pytest.raises(SinkUnavailable):
            await sink.check()
    assert await sink.send([message("again")]) == [DELIVERED]
    assert ids(kcat(kafka_process, topic)) == ["again"]


@pytest.mark.parametrize("end", ["restart", "kill"])
async def test_kafka_going_under_load_loses_nothing(
    kafka_process: KafkaServer, topic: str, end: str
) -> None:
    def disturb() -> None:
        getattr(kafka_process, end)()
        kafka_process.start()

    url = f"kafka://{kafka_process.address}/{topic}"
    accepted = await through_the_engine(url, disturb)
    assert set(ids(kcat(kafka_process, topic))) == accepted


async def test_a_leader_that_goes_is_replaced_and_nothing_is_lost(
    kafka_process: KafkaServer, tmp_path: Path
) -> None:
    topic = f"t-{uuid.uuid4()}"
    other = KafkaBroker(tmp_path, kafka_process)
    other.start()
    try:
        other.lead(topic)
        assert f"leader {other.NODE}" in kcat_list(kafka_process, topic)

        def disturb() -> None:
            time.sleep(1)
            other.kill()
            time.sleep(1)

        url = f"kafka://{kafka_process.address}/{topic}"
        accepted = await through_the_engine(url, disturb)
    finally:
        other.kill()
    assert "leader 1" in kcat_list(kafka_process, topic)
    assert set(ids(kcat(kafka_process, topic))) == accepted


async def test_an_idempotent_producer_sends_once_what_kafka_acknowledged_late(
    kafka_process: KafkaServer, topic: str, sink: Sink
) -> None:
    await sink.send([message("warm")])
    kafka_process.freeze()
    sending = asyncio.ensure_future(sink.send([message(f"m-{n}") for n in range(100)]))
    await asyncio.sleep(1)
    kafka_process.thaw()
    assert await sending == [DELIVERED] * 100
    assert ids(kcat(kafka_process, topic)) == ["warm", *(f"m-{n}" for n in range(100))]


async def test_two_kafka_readers_share_the_partitions_and_one_takes_over(
    kafka_process: KafkaServer,
) -> None:
    topic = f"t-{uuid.uuid4()}"
    kafka_process.create_topic(topic, partitions=4)
    url = f"kafka://{kafka_process.address}/{topic}"
    sink = await open_sink(url, SinkOptions(timeout=60.0))
    options = SourceOptions(source="s", more={"group": topic})
    first, second = await open_source(url, options), await open_source(url, options)
    seen: dict[str, set[str]] = {"first": set(), "second": set()}

    async def take(name: str) -> None:
        source = first if name == "first" else second
        records = await source.read(500)
        await source.done(records)
        seen[name] |= {r.headers["penstock-id"] for r in records}

    sent = 0
    async with asyncio.timeout(60):
        while not (seen["first"] and seen["second"]):  # until the group has rebalanced
            batch = [message(f"m-{sent + n}", key=f"k{n}") for n in range(40)]
            await until_delivered(sink, batch)
            sent += len(batch)
            await asyncio.gather(take("first"), take("second"))
        await first.close()
        await until_delivered(sink, [message("last", key=f"k{n}") for n in range(8)])
        while len(seen["first"] | seen["second"]) < sent + 1:
            await take("second")
    await second.close()
    await sink.close()
    assert seen["first"] | seen["second"] == {f"m-{n}" for n in range(sent)} | {"last"}


async def test_what_kafka_was_told_is_done_is_not_read_again_by_the_next_reader(
    kafka: Kafka, topic: str, sink: Sink
) -> None:
    options = SourceOptions(source="s", more={"group": topic})
    await until_delivered(sink, [message(f"m-{n}") for n in range(50)])
    first = await open_source(f"kafka://{kafka.address}/{topic}", options)
    await collect(first, 50)
    await first.close()
    await until_delivered(sink, [message("new")])
    second = await open_source(f"kafka://{kafka.address}/{topic}", options)
    (record,) = await collect(second, 1)
    await second.close()
    assert record.headers["penstock-id"] == "new"


async def test_route_init_makes_kafkas_topics_and_is_harmless_to_repeat(
    kafka_process: KafkaServer,
) -> None:
    topic, own = f"t-{uuid.uuid4()}", f"t-{uuid.uuid4()}"
    url = f"kafka://{kafka_process.address}"
    made = RouteSettings.model_validate(
        {"sink": f"{url}/{topic}", "create_topic": True, "partitions": 3}
    )
    routes = {"made": made, "left": RouteSettings(sink=f"{url}/{own}"), "log": RouteSettings()}
    for _ in range(2):
        assert list(await init_routes(Settings(routes=routes), patience=60)) == ["made"]
    assert f'topic "{topic}" with 3 partitions' in kcat_list(kafka_process, topic)
    assert "Unknown topic" in kcat_list(kafka_process, own)


async def test_route_init_names_the_route_whose_kafka_does_not_answer() -> None:
    nobody = f"kafka://127.0.0.1:{free_port()}/t"
    route = RouteSettings.model_validate({"sink": nobody, "create_topic": True, "timeout": "1s"})
    with pytest.raises(SinkUnavailable, match=r"routes\.ticks\.sink: .*cannot be reached"):
        await init_routes(Settings(routes={"ticks": route}), patience=0)
