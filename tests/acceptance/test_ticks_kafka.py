"""The ticks system from examples/ticks: API, worker, generator and consumer, each a process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from tests.acceptance.commands import EXAMPLES, Command, adapted, run, running, start
from tests.servers.kafka import KafkaServer
from tests.servers.ports import free_port
from tests.servers.redis import RedisServer

pytestmark = pytest.mark.slow

TICKS = 3_000


class System(NamedTuple):
    folder: Path
    url: str
    topic: str
    brokers: str
    worker: Command


@pytest.fixture
async def system(
    tmp_path: Path, kafka_process: KafkaServer, redis: RedisServer
) -> AsyncIterator[System]:
    """The example as it is, pointed at this test's servers; an API and two workers."""
    port, topic = free_port(), f"ticks-{tmp_path.name[:50]}"
    changes = {
        "redis://localhost:6379/0": redis.url,
        "127.0.0.1:8700": f"127.0.0.1:{port}",
        "kafka://localhost:9092/ticks": f"kafka://{kafka_process.address}/{topic}",
    }
    example = (EXAMPLES / "ticks" / "penstock.toml").read_text()
    (tmp_path / "penstock.toml").write_text(adapted(example, **changes))
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(running(tmp_path, "api"))
        worker = await stack.enter_async_context(running(tmp_path, "worker"))
        await stack.enter_async_context(running(tmp_path, "worker"))
        await api.until(lambda: f"127.0.0.1:{port}" in api.stdout)
        yield System(tmp_path, f"http://127.0.0.1:{port}", topic, kafka_process.address, worker)


async def test_every_tick_reaches_the_topic_none_early_and_everybody_tells_its_rate(
    system: System,
) -> None:
    async with running(  # before there is a topic: it waits for it
        *(system.folder, "sim", "consume", "--brokers", system.brokers, "--json"),
        *("--topic", system.topic, "--count", str(TICKS), "--duration", "80s"),
    ) as consumer:
        generator = await start(
            *(system.folder, "sim", "generate", "--url", system.url, "--json"),
            *("--count", str(TICKS), "--within", "3s", "--connections", "16", "--rate", "2000"),
        )
        assert await generator.ended() == 0, generator.stderr
        generated = json.loads(generator.stdout)["totals"]
        assert generated == {"generated": TICKS, "failed": 0, "unknown": 0}
        assert await consumer.ended() == 0, consumer.stderr
        consumed = json.loads(consumer.stdout)["totals"]
    assert (consumed["consumed"], consumed["early"], consumed["unreadable"]) == (TICKS, 0, 0)
    assert consumed["repeats"] == 0
    assert "Generated ticks/s: " in generator.stderr
    assert "Consumed items/s: " in consumer.stderr
    await system.worker.until(lambda: "Scheduled items/s: " in system.worker.stderr)


async def test_a_tick_has_its_item_for_key_and_the_same_json_for_value(system: System) -> None:
    tick = {"item": "user1234", "at": "2023-02-28T14:16:00Z"}
    async with httpx.AsyncClient(base_url=system.url) as client:
        answer = await client.post("/ticks", json=tick)
        healthy = await client.get("/healthy")
    assert (answer.status_code, list(answer.json())) == (202, ["id"])
    assert healthy.status_code == 200
    await run(
        *(system.folder, "sim", "consume", "--brokers", system.brokers),
        *("--topic", system.topic, "--count", "1", "--duration", "60s"),
    )
    where = ["-b", system.brokers, "-t", system.topic]
    kcat = await asyncio.create_subprocess_exec(
        *("kcat", "-C", "-q", "-e", *where, "-o", "beginning", "-f", "%k %s\n"),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await kcat.communicate()
    key, _, value = out.decode().strip().partition(" ")
    assert key == "user1234"
    assert json.loads(value) == tick
