"""RabbitMQ, seen by others: rabbitmqadmin reads it; a broker that goes loses nothing."""

from __future__ import annotations

import json
import uuid
from collections.abc import AsyncIterator
from typing import Any

import aiormq
import pytest
from aiormq.abc import ArgumentsType

from penstock.model.errors import SourceUnavailable
from penstock.model.outcome import DELIVERED, Dead, Retry
from penstock.ports.sink import Sink, SinkOptions
from penstock.ports.source import Source, SourceOptions
from penstock.sinks.rabbitmq import open_sink
from penstock.sources.rabbitmq import open_source
from penstock.testing.source_suite import collect
from systems.servers.rabbitmq import RabbitServer
from tests.integration.brokers import message, through_the_engine


@pytest.fixture
def queue() -> str:
    return f"q-{uuid.uuid4()}"


@pytest.fixture
async def sink(rabbitmq: RabbitServer, queue: str) -> AsyncIterator[Sink]:
    options = SinkOptions(topics=("orders.*",), timeout=60.0, more={"create_topic": True})
    opened = await open_sink(f"{rabbitmq.url}/{queue}", options)
    await opened.check()
    yield opened
    await opened.close()


def admin_get(server: RabbitServer, queue: str, count: int = 100_000) -> list[dict[str, Any]]:
    """What is in the queue, left there."""
    mode = "ackmode=ack_requeue_true"
    said = server.admin("-f", "raw_json", "get", f"queue={queue}", f"count={count}", mode)
    found: list[dict[str, Any]] = json.loads(said)
    return found


async def drained(server: RabbitServer, queue: str) -> list[str]:
    """Ids of all in the queue, taken out by a plain client."""
    connection = await aiormq.connect(server.url)
    channel = await connection.channel()
    found: list[str] = []
    while isinstance((got := await channel.basic_get(queue, no_ack=True)).delivery, GetOk):
        found.append(str(got.header.properties.message_id))
    await connection.close()
    return found


async def collect_for_ever(source: Source) -> None:
    while True:
        await source.read(1)


GetOk = aiormq.spec.Basic.GetOk


async def test_rabbitmqadmin_reads_payload_properties_and_headers(
    rabbitmq: RabbitServer, queue: str, sink: Sink
) -> None:
    sent = message("m-1", b'{"a":1}', key="user1", headers={"x-trace": "t1"}, priority=7)
    assert await sink.send([sent]) == [DELIVERED]
    (got,) = admin_get(rabbitmq, queue)
    properties = got["properties"]
    assert got["payload"] == '{"a":1}'
    assert properties["message_id"] == "m-1"
    assert properties["delivery_mode"] == 2
    assert properties["priority"] == 7
    assert properties["content_type"] == "application/json"
    assert properties["headers"] == {
        "penstock-id": "m-1",
        "penstock-attempt": "1",
        "penstock-due": "2030-01-01T00:00:00.000Z",
        "penstock-key": "user1",
        "x-trace": "t1",
    }


async def test_a_message_no_queue_takes_is_dead_and_its_neighbours_arrive(
    rabbitmq: RabbitServer, queue: str, sink: Sink
) -> None:
    batch = [message("a"), message("b", topic="orders.nowhere"), message("c")]
    first, second, third = await sink.send(batch)
    assert (first, third) == (DELIVERED, DELIVERED)
    assert isinstance(second, Dead)
    assert "no queue takes 'orders.nowhere'" in second.error
    assert await drained(rabbitmq, queue) == ["a", "c"]


async def test_a_full_queue_that_rejects_means_later(rabbitmq: RabbitServer) -> None:
    name = f"q-{uuid.uuid4()}"
    connection = await aiormq.connect(rabbitmq.url)
    channel = await connection.channel()
    full: ArgumentsType = {"x-max-length": 3, "x-overflow": "reject-publish"}
    await channel.queue_declare(name, durable=True, arguments=full)
    await connection.close()
    sink = await open_sink(f"{rabbitmq.url}/{name}", SinkOptions(timeout=60.0))
    outcomes = await sink.send([message(f"m-{n}") for n in range(20)])
    await sink.close()
    refused = [o for o in outcomes if o != DELIVERED]
    assert refused
    assert all(isinstance(o, Retry) and not o.unreachable for o in refused)
    assert len(await drained(rabbitmq, name)) == 20 - len(refused)


async def test_only_a_message_that_rabbitmq_does_not_confirm_in_time_is_tried_again(
    rabbitmq: RabbitServer, queue: str
) -> None:
    stuck = f"orders.{uuid.uuid4()}"
    options = SinkOptions(topics=("orders.*",), timeout=3.0, more={"create_topic": True})
    sink = await open_sink(f"{rabbitmq.url}/{queue}", options)
    connection = await aiormq.connect(rabbitmq.url)
    await (await connection.channel()).queue_declare(stuck, durable=True)
    await connection.close()
    resource = f'rabbit_misc:r(<<"/">>, queue, <<"{stuck}">>)'
    found = f"{{ok, Q}} = rabbit_amqqueue:lookup({resource})"
    rabbitmq.evaluate(f"{found}, sys:suspend(amqqueue:get_pid(Q)).")
    try:
        first, late, third = await sink.send(
            [message("a"), message("b", topic=stuck), message("c")]
        )
        (alone,) = await sink.send([message("b", topic=stuck)])
        (after,) = await sink.send([message("d")])
    finally:
        rabbitmq.evaluate(f"{found}, sys:resume(amqqueue:get_pid(Q)).")
    await sink.close()
    assert (first, third, after) == (DELIVERED,) * 3
    unconfirmed = Retry(f"{rabbitmq.address}: no confirmation in 3 s", unsure=True)
    assert (late, alone) == (unconfirmed, unconfirmed)


async def test_an_exchange_that_is_not_there_is_tried_again_and_named(
    rabbitmq: RabbitServer, queue: str
) -> None:
    sink = await open_sink(f"{rabbitmq.url}/{queue}?exchange=nobody", SinkOptions(timeout=60.0))
    (outcome,) = await sink.send([message("a")])
    await sink.close()
    assert isinstance(outcome, Retry)
    assert "nobody" in outcome.error


async def test_wrong_rabbitmq_credentials_are_told_without_them(
    rabbitmq: RabbitServer, queue: str
) -> None:
    url = f"rabbitmq://mallory:opensesame@{rabbitmq.address}/{queue}"
    sink = await open_sink(url, SinkOptions(timeout=60.0))
    (outcome,) = await sink.send([message("a")])
    await sink.close()
    assert isinstance(outcome, Retry)
    assert "opensesame" not in outcome.error + sink.name


async def test_a_batch_of_large_messages_is_split_into_frames(
    rabbitmq: RabbitServer, queue: str, sink: Sink
) -> None:
    large = bytes(range(256)) * 4096
    assert await sink.send([message("a", large), message("b", large[1:])]) == [DELIVERED] * 2
    source = await open_source(f"{rabbitmq.url}/{queue}", SourceOptions(source="s"))
    records = await collect(source, 2)
    await source.close()
    assert [r.value for r in records] == [large, large[1:]]


@pytest.mark.parametrize("end", ["restart", "kill"])
async def test_rabbitmq_going_under_load_loses_nothing(
    rabbitmq: RabbitServer, queue: str, end: str
) -> None:
    def disturb() -> None:
        getattr(rabbitmq, end)()
        rabbitmq.start()

    url = f"{rabbitmq.url}/{queue}"
    accepted = await through_the_engine(url, disturb, create_topic=True)
    assert set(await drained(rabbitmq, queue)) == accepted


async def test_two_rabbitmq_readers_share_a_queue_and_one_takes_over_what_the_other_had(
    rabbitmq: RabbitServer, queue: str, sink: Sink
) -> None:
    await sink.send([message(f"m-{n}") for n in range(100)])
    options = SourceOptions(source="s", more={"prefetch": 30})
    first = await open_source(f"{rabbitmq.url}/{queue}", options)
    second = await open_source(f"{rabbitmq.url}/{queue}", options)
    kept = await collect(first, 20, done=False)
    taken = await collect(second, 40)
    await first.close()  # what it had and did not finish goes to the other
    taken += await collect(second, 60)
    await second.close()
    assert {r.origin for r in taken} == {f"m-{n}" for n in range(100)}
    assert {r.origin for r in kept} <= {r.origin for r in taken}


async def test_a_queue_deleted_under_its_reader_is_told_and_read_again_when_it_is_back(
    rabbitmq: RabbitServer, queue: str, sink: Sink
) -> None:
    options = SourceOptions(source="s", more={"create_topic": True})
    source = await open_source(f"{rabbitmq.url}/{queue}", options)
    await sink.send([message("a")])
    await collect(source, 1)
    rabbitmq.admin("delete", "queue", f"name={queue}")
    with pytest.raises(SourceUnavailable, match="ended the reading"):
        await collect_for_ever(source)
    assert list(await source.read(1)) == []  # made anew
    assert await sink.send([message("b")]) == [DELIVERED]
    (record,) = await collect(source, 1)
    assert record.origin == "b"
    await source.close()
