"""The SMS system, with its own .env, against a real RabbitMQ and a real Redis."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import aio_pika
import psutil
import pytest

from systems.servers.ports import free_port
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer
from tests.acceptance.commands import EXAMPLES, ROOT, Command, adapted, run, running

pytestmark = pytest.mark.slow


@pytest.fixture
def folder(tmp_path: Path, rabbitmq: RabbitServer, redis: RedisServer) -> Path:
    """A place with the example's .env, pointed at this test's servers."""
    example = (EXAMPLES / "sms" / ".env.example").read_text()
    changes = {
        "RABBITMQ_HOST=localhost": f"RABBITMQ_HOST={rabbitmq.address}",
        "REDIS_HOST=localhost": f"REDIS_HOST=127.0.0.1:{redis.port}",
        "QUEUE_NAME=sms_queue": f"QUEUE_NAME=sms-{tmp_path.name}",
        "MEAN_PROCESSING_TIME=0.1": "MEAN_PROCESSING_TIME=0.004",
        "FAILURE_RATE=0.1": "FAILURE_RATE=0.4",
    }
    (tmp_path / ".env").write_text(adapted(example, **changes))
    return tmp_path


async def waiting(rabbitmq: RabbitServer, queue: str) -> int:
    """How many messages a queue has, as RabbitMQ itself says."""
    connection = await aio_pika.connect(rabbitmq.url)
    async with connection:
        channel = await connection.channel()
        declared = await channel.declare_queue(queue, passive=True)
        return declared.declaration_result.message_count or 0


def has_sent(sender: Command, number: int) -> bool:
    return sender.stderr.count('"message":"sent') >= number


def consumes(sender: Command) -> bool:
    return "waits for messages" in sender.stderr


async def figures(folder: Path) -> dict[str, float]:
    printed = await run(folder, "monitor", "--json", "--updates", "1")
    look: dict[str, dict[str, float]] = json.loads(printed)
    return look["sms"]


async def test_every_message_is_sent_or_dead_and_the_figures_are_exact(
    folder: Path, rabbitmq: RabbitServer
) -> None:
    queue = f"sms-{folder.name}"
    printed = await run(folder, "sim", "sms-producer", "--num-messages", "300")
    assert printed == f"300 messages are in {queue}\n"
    words = ("--instances", "3", "--retry-after", "200ms", "--idle-exit", "3s")
    reported = json.loads(await run(folder, "sim", "sms-sender", *words, "--json"))
    found = await figures(folder)
    assert reported == found
    assert found["sent"] + found["failed"] == 300
    assert found["failed"] > 0
    assert found["attempts"] == 300 + found["retried"]
    assert found["success_rate"] == found["sent"] / 300
    assert 0 < found["average_seconds"] < 10
    assert await waiting(rabbitmq, f"{queue}.dead") == found["failed"]
    assert await waiting(rabbitmq, queue) == await waiting(rabbitmq, f"{queue}.retry") == 0
    logs = sorted((folder / "sender_logs").glob("*.log"))
    assert [log.name for log in logs] == [f"sender_instance_{n}.log" for n in (1, 2, 3)]
    lines = [json.loads(line) for log in logs for line in log.read_text().splitlines()]
    sent = [line["id"] for line in lines if line["message"].startswith("sent ")]
    assert len(sent) == len(set(sent)) == found["sent"]


async def test_a_killed_sender_loses_nothing_and_counts_nothing_twice(
    folder: Path, rabbitmq: RabbitServer
) -> None:
    queue = f"sms-{folder.name}"
    await run(folder, "sim", "sms-producer", "--num-messages", "400")
    sender = ("sim", "sms-sender", "--retry-after", "100ms", "--at-once", "4")
    async with AsyncExitStack() as stack:
        for _ in range(3):
            victim = await stack.enter_async_context(running(folder, *sender))
            await victim.until(partial(has_sent, victim, 20))
            await victim.stop(signal.SIGKILL)
        await run(folder, *sender, "--idle-exit", "3s")
    found = await figures(folder)
    assert found["sent"] + found["failed"] == 400
    assert await waiting(rabbitmq, queue) == 0
    assert await waiting(rabbitmq, f"{queue}.dead") >= found["failed"]


async def test_what_waits_for_another_attempt_outlives_senders_that_stop_or_are_killed(
    folder: Path, rabbitmq: RabbitServer
) -> None:
    queue = f"sms-{folder.name}"
    await run(folder, "sim", "sms-producer", "--num-messages", "5")
    sender = ("sim", "sms-sender", "--retry-after", "1h")
    for end, code in ((signal.SIGINT, 0), (signal.SIGKILL, -signal.SIGKILL)):
        async with running(folder, *sender, env={"FAILURE_RATE": "1"}) as victim:
            await victim.until(partial(consumes, victim))
            while (await figures(folder))["retried"] < 5:  # noqa: ASYNC110 - another process counts
                await asyncio.sleep(0.1)
            assert await victim.stop(end) == code
        async with asyncio.timeout(60):  # until RabbitMQ has noticed that it is gone
            while await waiting(rabbitmq, f"{queue}.retry") < 5:  # noqa: ASYNC110 - RabbitMQ counts
                await asyncio.sleep(0.1)
    assert await waiting(rabbitmq, queue) == 0
    assert (await figures(folder))["attempts"] == 5


async def test_a_retry_that_rabbitmq_refuses_is_made_once_it_takes_it(
    folder: Path, rabbitmq: RabbitServer
) -> None:
    retry = f"sms-{folder.name}.retry"
    full = '{"max-length":0,"overflow":"reject-publish"}'
    await run(folder, "sim", "sms-producer", "--num-messages", "3")
    await asyncio.to_thread(rabbitmq.control, "set_policy", "full", f"^{retry}$", full)
    words = ("sim", "sms-sender", "--max-attempts", "2", "--retry-after", "100ms")
    async with running(folder, *words, "--idle-exit", "5s", env={"FAILURE_RATE": "1"}) as sender:
        await sender.until(lambda: sender.stderr.count("gives a message back") >= 3)
        assert '"message":"retried' not in sender.stderr
        await asyncio.to_thread(rabbitmq.control, "clear_policy", "full")
        assert await sender.ended() == 0
    found = await figures(folder)
    assert (found["failed"], found["attempts"]) == (3, 6)


async def test_what_is_not_an_sms_is_moved_aside_and_counted_apart(
    folder: Path, rabbitmq: RabbitServer
) -> None:
    queue = f"sms-{folder.name}"
    await run(folder, "sim", "sms-producer", "--num-messages", "5")
    connection = await aio_pika.connect(rabbitmq.url)
    async with connection:
        channel = await connection.channel()
        for body in (b"\xff not JSON", b'{"phone_number": 5}'):
            message = aio_pika.Message(body)
            await channel.default_exchange.publish(message, queue)
    await run(folder, "sim", "sms-sender", "--retry-after", "100ms", "--idle-exit", "2s")
    found = await figures(folder)
    assert (found["sent"] + found["failed"], found["rejected"]) == (5, 2)
    assert await waiting(rabbitmq, f"{queue}.dead") == 2 + found["failed"]


async def test_the_monitor_shows_people_lines_and_keeps_looking(
    folder: Path, redis: RedisServer
) -> None:
    env = {
        "LOG_FORMAT": "text",
        "MONITOR_LOG_FILE": "logs/monitor.log",
        "PENSTOCK_STORE": redis.url,  # an engine that nobody uses is left out
    }
    async with running(folder, "monitor", "--update-interval", "0.1", env=env) as monitor:
        await monitor.until(lambda: monitor.stdout.count("success rate –") >= 3)
        assert await monitor.stop() == 0
    assert "sent 0  failed 0" in monitor.stdout
    assert "engine" not in monitor.stdout
    first, *_ = (folder / "logs" / "monitor.log").read_text().splitlines()
    assert json.loads(first)["sms"]["sent"] == 0


async def test_a_producer_is_paced_and_stops_when_it_is_asked_to(
    folder: Path, rabbitmq: RabbitServer
) -> None:
    (folder / "penstock.toml").write_text('[log]\nformat = "json"\n')
    words = ("sim", "sms-producer", "--rate", "50", "--json")
    async with running(folder, *words) as producer:
        await producer.until(lambda: producer.stderr.count("Produced messages/s: ") >= 2)
        assert await producer.stop(signal.SIGINT) == 0
    published = json.loads(producer.stdout)["published"]
    assert published == await waiting(rabbitmq, f"sms-{folder.name}")
    assert all(json.loads(line)["level"] == "info" for line in producer.stderr.splitlines())


async def test_a_sender_logs_as_it_is_told_to_and_to_a_file_too(folder: Path) -> None:
    await run(folder, "sim", "sms-producer", "--num-messages", "3")
    env = {"LOG_FORMAT": "text", "SENDER_LOG_FILE": "logs/sender.log", "FAILURE_RATE": "0"}
    words = ("sim", "sms-sender", "--idle-exit", "1s")
    async with running(folder, *words, env=env) as sender:
        assert await sender.ended() == 0
    assert sender.stderr.count("] sent +") == 3
    lines = [json.loads(line) for line in (folder / "logs" / "sender.log").read_text().splitlines()]
    assert len([line for line in lines if line["message"].startswith("sent +")]) == 3


async def test_the_whole_system_ends_with_a_verdict_that_holds() -> None:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "systems", "sms", "--for", "4s"),
        cwd=ROOT,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await process.communicate()
    text = output.decode()
    assert process.returncode == 0, text
    assert "sms: the verdict holds" in text
    rows = dict(
        re.findall(r"^  (\w[\w +]*?)  +(\S.*)$", text.partition("Verdict of sms")[2], re.MULTILINE)
    )
    produced = int(rows["produced"].split()[0].replace(",", ""))
    assert produced > 0
    assert rows["sent + failed"] == f"{produced:,} = produced  ok"
    assert rows["lost"] == "0  ok"
    for wanted in ("Produced messages/s: ", "Sent messages/s: ", "success rate", "CPU"):
        assert wanted in text


async def test_the_same_queue_goes_through_the_engine_too(
    folder: Path, rabbitmq: RabbitServer, redis: RedisServer
) -> None:
    queue, provider_port, port = f"sms-{folder.name}", free_port(), free_port()
    changes = {
        "redis://localhost:6379/0": redis.url,
        "rabbitmq://localhost:5672/sms_queue": f"rabbitmq://{rabbitmq.address}/{queue}",
        "127.0.0.1:8700": f"127.0.0.1:{port}",
        "127.0.0.1:9000": f"127.0.0.1:{provider_port}",
        '"1s..1m"': '"50ms..200ms"',
        "max_attempts = 5": "max_attempts = 50",
    }
    example = (EXAMPLES / "sms" / "penstock.toml").read_text()
    (folder / "penstock.toml").write_text(adapted(example, **changes))
    await run(folder, "sim", "sms-producer", "--num-messages", "100")
    words = ("--port", str(provider_port), "--json", "--failure-rate", "0.1")
    async with (
        running(folder, "sim", "provider", *words) as provider,
        running(folder, "serve"),
    ):
        await provider.until(lambda: provider.stdout.count('"status":200') >= 100)
        assert await provider.stop() == 0
    *lines, last = (json.loads(line) for line in provider.stdout.splitlines()[1:])
    accepted = [line["id"] for line in lines if line["status"] == 200]
    assert len(accepted) == len(set(accepted)) == 100
    assert all(set(json.loads(line["body"])) == {"phone_number", "message"} for line in lines)
    assert last["stats"]["accepted"] == 100
    assert await waiting(rabbitmq, queue) == 0


async def test_senders_that_cannot_start_are_named(folder: Path) -> None:
    env = {"RABBITMQ_HOST": "127.0.0.1:1"}
    async with running(folder, "sim", "sms-sender", "--instances", "2", env=env) as senders:
        assert await senders.ended() == 1
    assert "failed: sender_instance_1, sender_instance_2" in senders.stderr
    log = folder / "sender_logs" / "sender_instance_1.log"
    assert "RabbitMQ does not answer" in log.read_text()


async def test_a_sender_that_is_killed_is_told_of_and_started_again_until_ctrl_c(
    folder: Path,
) -> None:
    def begun() -> int:
        logs = [log.read_text() for log in (folder / "sender_logs").glob("*.log")]
        return sum(text.count("waits for messages") for text in logs)

    async with running(folder, "sim", "sms-sender", "--instances", "2") as senders:
        await senders.until(lambda: begun() == 2)
        victim, other = psutil.Process(senders.process.pid).children()
        victim.kill()
        await senders.until(lambda: "was killed by SIGKILL; it is restarted" in senders.stderr)
        await senders.until(lambda: begun() == 3)
        assert other.is_running()
        children = psutil.Process(senders.process.pid).children()
        assert len(children) == 2
        assert await senders.stop(signal.SIGINT) == 0
    assert not any(child.is_running() for child in children)
