"""The ticks system from examples/ticks: API, worker, generator and consumer, each a process."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from systems.servers.kafka import KafkaServer
from systems.servers.ports import free_port
from systems.servers.redis import RedisServer
from tests.acceptance.commands import EXAMPLES, Command, adapted, run, running, start

pytestmark = pytest.mark.slow

TICKS = 3_000


class System(NamedTuple):
    folder: Path
    url: str
    topic: str
    brokers: str
    workers: list[Command]


@pytest.fixture
async def system(
    tmp_path: Path, kafka_process: KafkaServer, redis: RedisServer
) -> AsyncIterator[System]:
    """The example, pointed at this test's servers, with short leases; an API and two workers."""
    port, topic = free_port(), f"ticks-{tmp_path.name[:50]}"
    changes = {
        "redis://localhost:6379/0": redis.url,
        "127.0.0.1:8700": f"127.0.0.1:{port}",
        "kafka://localhost:9092/ticks": f"kafka://{kafka_process.address}/{topic}",
        "batch_size = 1000": 'batch_size = 200\nlease = "5s"',
    }
    example = (EXAMPLES / "ticks" / "penstock.toml").read_text()
    (tmp_path / "penstock.toml").write_text(adapted(example, **changes))
    async with AsyncExitStack() as stack:
        api = await stack.enter_async_context(running(tmp_path, "api"))
        workers = [await stack.enter_async_context(running(tmp_path, "worker")) for _ in range(2)]
        await api.until(lambda: f"127.0.0.1:{port}" in api.stdout)
        yield System(tmp_path, f"http://127.0.0.1:{port}", topic, kafka_process.address, workers)


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
    assert (consumed["consumed"], consumed["early"], consumed["without_due"]) == (TICKS, 0, 0)
    assert "Generated ticks/s: " in generator.stderr
    assert "Consumed items/s: " in consumer.stderr
    await system.workers[0].until(
        lambda: any("Scheduled items/s: " in worker.stderr for worker in system.workers)
    )


async def test_a_worker_that_is_killed_under_load_loses_no_tick(system: System) -> None:
    generator = await start(
        *(system.folder, "sim", "generate", "--url", system.url, "--json"),
        *("--count", str(TICKS), "--within", "2s", "--connections", "16", "--rate", "1500"),
    )
    victim, other = system.workers
    await victim.until(lambda: "Scheduled items/s: " in victim.stderr)
    await victim.stop(signal.SIGKILL)
    assert await generator.ended() == 0, generator.stderr
    assert json.loads(generator.stdout)["totals"]["generated"] == TICKS
    for _ in range(60):
        headers = await kcat(system, "%h\n")
        ids = [re.findall(r"penstock-id=([^,]+)", line)[0] for line in headers.splitlines()]
        if len(set(ids)) == TICKS:
            break
        await asyncio.sleep(0.5)
    else:
        raise AssertionError(f"{len(set(ids))} of {TICKS} came\n{other.stderr[-2000:]}")


async def kcat(system: System, shown: str) -> str:
    """Everything on the topic, read by somebody else."""
    where = ("-b", system.brokers, "-t", system.topic, "-o", "beginning")
    reader = await asyncio.create_subprocess_exec(
        *("kcat", "-C", "-q", "-e", *where, "-f", shown), stdout=asyncio.subprocess.PIPE
    )
    out, _ = await reader.communicate()
    return out.decode()


async def test_a_tick_has_its_item_for_key_and_the_same_json_for_value(system: System) -> None:
    tick = {"item": "user1234", "at": "2023-02-28T14:16:00Z"}
    async with httpx.AsyncClient(base_url=system.url, timeout=300) as client:
        answer = await client.post("/ticks", json=tick)
        healthy = await client.get("/healthy")
    assert (answer.status_code, list(answer.json())) == (202, ["id"])
    assert healthy.status_code == 200
    await run(
        *(system.folder, "sim", "consume", "--brokers", system.brokers),
        *("--topic", system.topic, "--count", "1", "--duration", "60s"),
    )
    key, _, value = (await kcat(system, "%k %s\n")).strip().partition(" ")
    assert key == "user1234"
    assert json.loads(value) == tick
