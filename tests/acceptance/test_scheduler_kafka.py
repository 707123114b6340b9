"""The scheduler service from examples/: gRPC → DynamoDB → Redis → the Kafka topics events name."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from confluent_kafka import Producer
from google.protobuf.duration_pb2 import Duration

from penstock.v1 import scheduler_pb2 as pb
from penstock.v1.scheduler_pb2_grpc import SchedulerStub
from systems.servers.dynamodb import DynamoServer
from systems.servers.kafka import Kafka
from systems.servers.ports import free_port
from systems.servers.redis import RedisServer
from tests.acceptance.commands import EXAMPLES, PATIENCE, ROOT, adapted, run, running

pytestmark = pytest.mark.slow

CODE = grpc.StatusCode
STREAMED = 500


class System(NamedTuple):
    stub: Any
    brokers: str
    name: str
    """What its topics are called after, so that tests do not meet."""

    def topic(self, name: str) -> str:
        return f"{name}-{self.name}"

    async def all(self, topic: str) -> list[dict[str, Any]]:
        """Everything on a topic; read by kcat."""
        where = ("-b", self.brokers, "-t", self.topic(topic), "-o", "beginning")
        reader = await asyncio.create_subprocess_exec(
            *("kcat", "-C", "-q", "-e", "-J", *where), stdout=asyncio.subprocess.PIPE
        )
        out, _ = await reader.communicate()
        return [json.loads(line) for line in out.splitlines()]

    async def read(self, topic: str, number: int) -> dict[str, dict[str, Any]]:
        """Everything on a topic by its penstock-id, once that many are there."""
        async with asyncio.timeout(PATIENCE):
            while True:
                found = await self.all(topic)
                if len(found) >= number:
                    return {_headers(record)["penstock-id"]: record for record in found}
                await asyncio.sleep(0.2)

    def publish(self, topic: str, *bodies: bytes) -> None:
        producer = Producer({"bootstrap.servers": self.brokers})
        for body in bodies:
            producer.produce(self.topic(topic), body)
        assert producer.flush(30) == 0


def _headers(record: dict[str, Any]) -> dict[str, str]:
    flat = record["headers"]
    return dict(zip(flat[::2], flat[1::2], strict=True))


@pytest.fixture
async def system(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    kafka: Kafka,
    dynamodb: DynamoServer,
    redis: RedisServer,
) -> AsyncIterator[System]:
    """The example, pointed at this test's servers, with a horizon that a test can wait for.

    With a parameter ids take the way to Redis over the topic of that name.
    """
    hop = getattr(request, "param", None)
    name = tmp_path.name[:40]
    grpc_at = f"127.0.0.1:{free_port()}"
    changes = {
        "localhost:8000/scheduler": f"{dynamodb.host}/{name}",
        "redis=redis://localhost:6379/0": f"redis={redis.url}&shards=4",
        "127.0.0.1:8700": f"127.0.0.1:{free_port()}",
        "127.0.0.1:8701": grpc_at,
        "localhost:9092/events": f"{kafka.address}/events-{name}",
        "localhost:9092/schedule_events.rejected": f"{kafka.address}/rejected-{name}",
        "localhost:9092/schedule_events": f"{kafka.address}/schedule_events-{name}",
        'min_delay = "1m"': 'min_delay = "1s"',
    }
    example = (EXAMPLES / "scheduler-service" / "penstock.toml").read_text()
    if hop is not None:
        example = f'intake_topic = "kafka://{kafka.address}/{hop}-{name}"\n{example}'
    (tmp_path / "penstock.toml").write_text(adapted(example, **changes))
    for topic in ("orders.new", "payments.due", "schedule_events"):
        kafka.create_topic(f"{topic}-{name}")
    await run(tmp_path, "store", "init")
    env = {"PENSTOCK_API__GRPC": grpc_at}
    async with (
        running(tmp_path, "api", env=env) as api,
        running(tmp_path, "worker") as worker,
        grpc.aio.insecure_channel(grpc_at) as channel,
    ):
        await api.until(lambda: grpc_at in api.stdout)
        await worker.until(lambda: "holds messages" in worker.stdout)
        yield System(SchedulerStub(channel), kafka.address, name)


def event(system: System, number: int, **fields: Any) -> pb.ScheduleRequest:
    asked: dict[str, Any] = {
        "id": f"e{number}",
        "route": "events",
        "topic": system.topic("orders.new"),
        "payload": b"\x00 %d" % number,
        "delay": Duration(seconds=2),
    }
    return pb.ScheduleRequest(**{**asked, **fields})


@pytest.mark.parametrize("system", ["intake"], indirect=True)
async def test_events_by_grpc_are_on_the_topic_they_name_at_their_moment(system: System) -> None:
    answer = await system.stub.Schedule(event(system, 0, key="user-1", headers={"x-a": "1"}))
    assert (answer.state, answer.duplicate) == (pb.STATE_SCHEDULED, False)
    assert (await system.stub.Schedule(event(system, 0))).duplicate
    await system.stub.Schedule(event(system, 1, delay=Duration(seconds=3)))
    assert (await system.stub.Cancel(pb.CancelRequest(id="e1"))).state == pb.STATE_CANCELLED
    elsewhere = event(system, 2, topic="somewhere.else")
    await system.stub.ScheduleBatch(pb.ScheduleBatchRequest(messages=[elsewhere]))
    with pytest.raises(grpc.aio.AioRpcError, match="delay: must be at most 15d ahead") as too_far:
        await system.stub.Schedule(event(system, 3, delay=Duration(seconds=16 * 86_400)))
    assert too_far.value.code() is CODE.INVALID_ARGUMENT
    many = (event(system, i) for i in range(10, 10 + STREAMED))
    assert (await system.stub.ScheduleStream(many)).accepted == STREAMED

    ordered = await system.read("orders.new", STREAMED + 1)
    assert set(ordered) == {"e0", *(f"e{i}" for i in range(10, 10 + STREAMED))}
    first = ordered["e0"]
    assert (first["key"], first["payload"]) == ("user-1", "\x00 0")
    assert (_headers(first)["x-a"], _headers(first)["penstock-attempt"]) == ("1", "1")
    assert set(await system.read("events", 1)) == {"e2"}, "a topic that is not allowed is not used"
    published = {json.loads(one["payload"])["id"] for one in (await system.all("intake"))}
    assert published >= set(ordered), "ids have taken another way"
    assert first["ts"] >= answer.due.ToMilliseconds(), "it is early"
    gone = await system.stub.Get(pb.GetRequest(id="e0"))
    assert gone.state in {pb.STATE_DELIVERED, pb.STATE_LEASED}
    with pytest.raises(grpc.aio.AioRpcError) as too_late:
        await system.stub.Cancel(pb.CancelRequest(id="e0"))
    assert too_late.value.code() is CODE.FAILED_PRECONDITION


async def test_events_by_kafka_are_scheduled_once_and_what_is_wrong_is_kept(
    system: System,
) -> None:
    now = time.time()
    good: dict[str, Any] = {
        "event_id": "k1",
        "execute_at": now + 12,  # the reader may need some seconds to join its group
        "payload": base64.b64encode(b"paid").decode(),
        "topic": system.topic("payments.due"),
    }
    far = {**good, "event_id": "k2", "execute_at": now + 30 * 86_400}
    system.publish(
        "schedule_events",
        *(json.dumps(one).encode() for one in (good, good, far)),
        b"no JSON",
    )
    paid = await system.read("payments.due", 1)
    assert {name: record["payload"] for name, record in paid.items()} == {"k1": "paid"}
    assert paid["k1"]["ts"] >= int(good["execute_at"] * 1000), "it is early"
    rejected = await system.read("rejected", 2)
    reasons = sorted(_headers(record)["penstock-error"] for record in rejected.values())
    assert reasons[0].startswith("at: must be at most 15d ahead (max_delay)")
    assert reasons[1].startswith("not valid JSON")


async def test_the_whole_system_holds_its_verdict_on_kafka_and_dynamodb() -> None:
    """`make scheduler FOR=3s` with few events, on servers of its own."""
    few = ("--set", "rate=40", "--set", "from=4s", "--set", "to=7s")
    words = ("-m", "systems", "scheduler", "--for", "3s", *few)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, *words),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        out, _ = await process.communicate()
    except BaseException:
        process.terminate()  # in order: it ends what it has started
        await process.wait()
        raise
    said = out.decode()
    assert process.returncode == 0, said[-10_000:]
    assert "scheduler: the verdict holds" in said
    for row in ("by penstock.v1", "by scheduler.v1", "by topic", "lost", "early"):
        assert re.search(rf"^ +{row} +[\d,]+  ok$", said, re.MULTILINE), f"no {row} in {said}"
