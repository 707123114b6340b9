"""One bad message in a real flow: source, store, worker, RabbitMQ; innocents arrive once, at 1."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import aiormq
import pytest

from penstock.flow.ingest import run_all
from penstock.model.draft import Draft
from penstock.model.outcome import DELIVERED, Dead, SendOutcome
from penstock.model.state import State
from penstock.ports.sink import SinkOptions
from penstock.settings import given
from penstock.sinks import rabbitmq as rabbitmq_sink
from penstock.wiring import Parts, open_parts, open_worker
from penstock.wiring.sources import open_sources
from systems.servers.dynamodb import DynamoServer
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer
from tests.integration.brokers import message

pytestmark = pytest.mark.slow

PATIENCE = 300.0
TABLE = "poison"
INNOCENTS = [f"m-{n}" for n in range(50)]


@pytest.fixture
def queue() -> str:
    return f"poison-{uuid.uuid4()}"


@pytest.fixture(scope="module")
def table(dynamodb_node: DynamoServer) -> Iterator[DynamoServer]:
    dynamodb_node.make_table(TABLE, shards=2)
    yield dynamodb_node
    dynamodb_node.empty(TABLE)


@asynccontextmanager
async def running(parts: Parts) -> AsyncIterator[None]:
    async with open_worker(parts) as worker, open_sources(parts) as ingests:
        tasks = [asyncio.ensure_future(worker.run()), asyncio.ensure_future(run_all(ingests))]
        try:
            async with asyncio.timeout(PATIENCE):
                yield
            assert not ingests or not tasks[1].done()  # no record has ended it
        finally:
            worker.stop()
            tasks[1].cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def arrived(server: RabbitServer, queue: str) -> Counter[tuple[str, str]]:
    """(id, attempt) of all in the queue, taken out by a plain client."""
    connection = await aiormq.connect(server.url)
    channel = await connection.channel()
    found: Counter[tuple[str, str]] = Counter()
    get_ok = aiormq.spec.Basic.GetOk
    while isinstance((got := await channel.basic_get(queue, no_ack=True)).delivery, get_ok):
        headers = got.header.properties.headers or {}
        found[str(headers["penstock-id"]), str(headers["penstock-attempt"])] += 1
    await connection.close()
    return found


async def settled(parts: Parts, number: int) -> None:
    counts = parts.observer.counts
    while counts["delivered", "r"] + counts["dead", "r"] < number:  # noqa: ASYNC110 - a count
        await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    "headers",
    [
        {"CC": "x"},
        {"BCC": "x"},
        {"content-type": "a" * 300},
        {f"x-{n}": "v" * 4_000 for n in range(60)},
    ],
    ids=["CC", "BCC", "content-type", "headers"],
)
async def test_fifty_innocents_beside_one_poison_arrive_once_at_their_first_attempt(
    rabbitmq: RabbitServer, queue: str, headers: dict[str, str]
) -> None:
    route = {"sink": f"{rabbitmq.url}/{queue}", "create_topic": True, "max_attempts": 3}
    async with open_parts(given(store="sqlite:///:memory:", routes={"r": route})) as parts:
        drafts = [Draft(id=name, route="r") for name in INNOCENTS]
        drafts.insert(25, Draft(id="p", route="r", headers=headers))
        await parts.intake.schedule(drafts)
        async with running(parts):
            await settled(parts, 51)
        (poison,) = await parts.store.messages.find(["p"])
        assert poison is not None
        assert (poison.state, poison.attempt) == (State.DEAD, 1)
    assert await arrived(rabbitmq, queue) == Counter((name, "1") for name in INNOCENTS)


async def test_a_rabbitmq_channel_closed_over_an_unknown_message_costs_no_other_an_attempt(
    rabbitmq: RabbitServer, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rabbitmq_sink, "is_rabbitmq_control", lambda _name: False)
    options = SinkOptions(timeout=60.0, more={"create_topic": True})
    sink = await rabbitmq_sink.open_sink(f"{rabbitmq.url}/{queue}", options)
    batch = [message(name) for name in INNOCENTS]
    batch.insert(25, message("p", headers={"CC": "x"}))
    others = [message(f"other-{n}") for n in range(50)]
    outcomes, beside = await asyncio.gather(sink.send(batch), sink.send(others))
    await sink.close()
    by_id: dict[str, SendOutcome] = dict(zip((m.id for m in batch), outcomes, strict=True))
    assert isinstance(by_id.pop("p"), Dead)
    assert set(by_id.values()) == {DELIVERED}
    assert list(beside) == [DELIVERED] * 50
    assert set(await arrived(rabbitmq, queue)) == {(m.id, "1") for m in (*batch, *others)} - {
        ("p", "1")
    }


async def publish(
    server: RabbitServer, queue: str, *records: tuple[bytes, dict[str, object]]
) -> None:
    connection = await aiormq.connect(server.url)
    channel = await connection.channel()
    await channel.queue_declare(queue, durable=True)
    for number, (value, headers) in enumerate(records):
        properties = aiormq.spec.Basic.Properties(message_id=f"{number}", headers=headers)  # type: ignore[arg-type] # of any kind
        await channel.basic_publish(value, routing_key=queue, properties=properties)
    await connection.close()


async def test_a_rabbitmq_record_that_dynamodb_cannot_keep_stops_no_worker(
    rabbitmq: RabbitServer, table: DynamoServer, redis: RedisServer, queue: str
) -> None:
    large = {"id": "p", "headers": {f"x-{n}": "é" * 4_000 for n in range(60)}}
    records: list[tuple[bytes, dict[str, object]]] = [
        (json.dumps({"id": name}).encode(), {}) for name in INNOCENTS
    ]
    records.insert(25, (json.dumps(large).encode(), {}))
    await publish(rabbitmq, f"{queue}.in", *records)
    settings = given(
        store=table.url(TABLE, f"redis://127.0.0.1:{redis.port}/0"),
        routes={"r": {"sink": f"{rabbitmq.url}/{queue}", "create_topic": True}},
        sources={"in": {"from": f"{rabbitmq.url}/{queue}.in", "route": "r"}},
    )
    async with open_parts(settings) as parts:
        async with running(parts):
            await settled(parts, 50)
        (kept, poison) = await parts.store.messages.find(["dead:25", "p"])
        assert poison is None
        assert kept is not None
        assert (kept.state, kept.route) == (State.DEAD, "r")
        assert "the store takes" in str(kept.last_error)
    assert await arrived(rabbitmq, queue) == Counter((name, "1") for name in INNOCENTS)


async def test_a_rabbitmq_dead_letter_of_a_record_with_control_headers_is_sent(
    rabbitmq: RabbitServer, queue: str
) -> None:
    await publish(
        rabbitmq, f"{queue}.in", (b"not json", {"CC": ["nowhere"]}), (b'{"id": "good"}', {})
    )
    settings = given(
        store="sqlite:///:memory:",
        routes={"r": {"sink": f"{rabbitmq.url}/{queue}", "create_topic": True}},
        sources={
            "in": {
                "from": f"{rabbitmq.url}/{queue}.in",
                "route": "r",
                "dead_letter": f"{rabbitmq.url}/{queue}.dead",
                "create_topic": True,
            }
        },
    )
    await publish(rabbitmq, f"{queue}.dead")  # so that it can be looked into
    async with open_parts(settings) as parts, running(parts):
        await settled(parts, 1)
        while not (letters := await arrived(rabbitmq, f"{queue}.dead")):  # noqa: ASYNC110 - a queue
            await asyncio.sleep(0.1)
    assert list(letters) == [("dead:0", "1")]
    assert list(await arrived(rabbitmq, queue)) == [("good", "1")]
