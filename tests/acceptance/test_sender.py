"""Sender 2.0 in both shapes: decisions → scheduler → dispatch → push worker → provider."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from penstock.model.times import parse_moment
from systems.servers.nats import NatsServer
from systems.servers.ports import free_port
from systems.servers.rabbitmq import RabbitServer
from systems.servers.redis import RedisServer
from tests.acceptance.brokers import Broker, jetstream, rabbit
from tests.acceptance.commands import EXAMPLES, Command, adapted, running
from tests.docs.blocks import blocks

pytestmark = pytest.mark.slow

Json = dict[str, Any]


@dataclass
class Sender:
    """One shape's example, pointed at this test's servers; names begin with `prefix`."""

    folder: Path
    broker: Broker
    prefix: str
    snippet: str
    """The how-to's own publisher, pointed at this test's broker."""
    port: int = 0
    provider_port: int = 0

    async def publish(self, batch: Json) -> None:
        await self.broker.publish(f"{self.prefix}.decisions", json.dumps(batch).encode())

    async def publish_as_shown(self) -> None:
        """The item n-1, by the program of the how-to."""
        program = await asyncio.create_subprocess_exec(sys.executable, "-c", self.snippet)
        assert await program.wait() == 0

    async def message(self, message_id: str) -> Json:
        """What the scheduler knows of an item."""
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{self.port}", timeout=300
        ) as client:
            answer = await client.get(f"/v1/messages/{message_id}")
        return dict(answer.json()) if answer.status_code == 200 else {}


@pytest.fixture
async def on_rabbitmq(
    tmp_path: Path, rabbitmq: RabbitServer, redis: RedisServer
) -> AsyncIterator[Sender]:
    async with rabbit(rabbitmq.url) as broker:
        address = {"rabbitmq://localhost:5672": f"rabbitmq://{rabbitmq.address}"}
        publisher = publishing("aio_pika", **{"amqp://localhost:5672": rabbitmq.url})
        yield _sender(tmp_path, "sender-rabbitmq", broker, address, redis, publisher)


@pytest.fixture
async def on_nats(tmp_path: Path, nats: NatsServer, redis: RedisServer) -> AsyncIterator[Sender]:
    async with jetstream(nats.url) as broker:
        address = {"nats://localhost:4222": nats.url}
        publisher = publishing("nats", **address)
        yield _sender(tmp_path, "sender-nats", broker, address, redis, publisher)


def publishing(library: str, **changes: str) -> str:
    """The program that docs/systems/sender.md shows for this client library."""
    shown = [block.code for block in blocks("sh") if block.page.name == "sender.md"]
    (script,) = (code for code in shown if f"\nimport {library}\n" in code)
    program = script.partition("<<'EOF'\n")[2].partition("\nEOF\n")[0]
    return adapted(program, **changes, **{"int(time.time()) + 10": "int(time.time()) + 2"})


def _sender(
    folder: Path,
    example: str,
    broker: Broker,
    address: dict[str, str],
    redis: RedisServer,
    publisher: str,
) -> Sender:
    prefix = f"s{time.time_ns()}"
    snippet = adapted(publisher, **{'"sender.decisions"': f'"{prefix}.decisions"'})
    sender = Sender(folder, broker, prefix, snippet, free_port(), free_port())
    common = {**address, "redis://localhost:6379/0": redis.url, "/sender.": f"/{sender.prefix}."}
    scheduler = {**common, "127.0.0.1:8700": f"127.0.0.1:{sender.port}"}
    push = {**common, "127.0.0.1:8710": f"127.0.0.1:{free_port()}"}
    push |= {"127.0.0.1:9000": f"127.0.0.1:{sender.provider_port}", '"1s..5m"': '"100ms..1s"'}
    (folder / "push").mkdir()
    for name, changes in (("penstock.toml", scheduler), ("push/penstock.toml", push)):
        text = (EXAMPLES / example / name).read_text()
        (folder / name).write_text(adapted(text, **changes))
    return sender


def notification(name: str, **params: object) -> Json:
    return {
        "id": name,
        "emissionDate": "2026-01-01T00:00:00Z",
        "name": "spring",
        "originator": "crm",
        "priority": 5,
        "data": {
            "method": "sendPush",
            "params": {
                "type": "social",
                "portal": "main",
                "renderParams": {"n": 1.50},
                "receivers": [f"user-{name}"],
                "templateName": "hello",
                **params,
            },
        },
    }


def batch(decision: str, *items: Json, tta: int = 0) -> Json:
    return {"decision": decision, "tta": tta or int(time.time()), "notify_msg": list(items)}


async def dispatch_has_the_shape_it_came_in(sender: Sender) -> None:
    items = [notification(f"a{n}") for n in range(40)]
    mail = notification("mail")
    mail["data"]["method"] = "sendEmail"
    more: Json = {"process": {"name": "spring"}, "order": 7}
    async with running(sender.folder, "worker") as worker:
        await sender.publish(batch("ALLOW", *items, mail, tta=1_700_000_000) | more)
        got: list[Json] = []
        batches = 0
        while len(got) < len(items):
            taken = json.loads((await sender.broker.take(f"{sender.prefix}.dispatch.push")).body)
            got += taken.pop("notify_msg")
            assert taken == {"decision": "ALLOW", "tta": 1_700_000_000, **more}, worker.stderr
            batches += 1
        mails = await sender.broker.take(f"{sender.prefix}.dispatch.email")
    assert json.loads(mails.body)["notify_msg"] == [mail]
    assert sorted(got, key=str) == sorted(items, key=str)
    assert batches < len(items), "what is due together goes out together"


async def everything_reaches_the_provider_in_time(sender: Sender) -> None:
    tta = int(time.time()) + 6
    allowed = [notification(f"a{n}") for n in range(60)]
    deferred = [notification(f"d{n}", expireDate=tta + 3600) for n in range(30)]
    async with AsyncExitStack() as stack:
        provider = await stack.enter_async_context(
            running(
                *(sender.folder, "sim", "provider", "--json", "--failure-rate", "0.2"),
                *("--port", str(sender.provider_port), "--latency", "5ms"),
            )
        )
        scheduler = await stack.enter_async_context(running(sender.folder, "serve"))
        await stack.enter_async_context(running(sender.folder, "worker"))
        push = await stack.enter_async_context(running(sender.folder / "push", "worker"))
        await sender.publish(batch("ALLOW", *allowed))
        await sender.publish(batch("DEFER", *deferred, tta=tta))
        await sender.publish(batch("BLOCK", notification("b1"), notification("b2")))
        await sender.publish(batch("ALLOW", notification("x1", expireDate=1_600_000_000)))
        await sender.publish(batch("DEFER", notification("x2", expireDate=tta - 1), tta=tta))
        await sender.publish(batch("MAYBE", notification("m1")))
        rejected = await sender.broker.take(f"{sender.prefix}.rejected")
        await sender.publish_as_shown()
        wanted = {str(item["id"]): item for item in allowed + deferred}
        await push.until(lambda: set(accepted(provider)) >= {"n-1", *wanted})
        await scheduler.until(lambda: f"127.0.0.1:{sender.port}" in scheduler.stdout)
        blocked = [await sender.message(name) for name in ("b1", "b2", "x1", "x2")]
    arrived = accepted(provider)
    assert json.loads(str(arrived.pop("n-1")[0]["body"]))["priority"] == 5
    assert {name: json.loads(str(lines[0]["body"])) for name, lines in arrived.items()} == wanted
    assert all(len(lines) == 1 for lines in arrived.values()), "each is accepted once"
    early = [
        name
        for name in arrived
        if name.startswith("d") and parse_moment(str(arrived[name][0]["at"])) < tta * 1000
    ]
    assert early == []
    assert [message.get("state") for message in blocked] == ["blocked"] * 4
    assert "sender's decision" in str(blocked[0]["last_error"])
    late = blocked[3]
    assert (late["verdict"], late["attempt"]) == ("BLOCK", 0)
    assert "expired at" in str(late["reason"])
    assert parse_moment(str(late["settled"])) >= tta * 1000, "it is held until then"
    assert json.loads(rejected.body)["decision"] == "MAYBE"
    assert "MAYBE" in rejected.headers["penstock-error"]


def accepted(provider: Command) -> dict[str, list[Json]]:
    """What the provider answered 200, by id."""
    found: dict[str, list[Json]] = {}
    whole, _, _ = provider.stdout.rpartition("\n")
    for line in whole.splitlines()[1:]:
        told = json.loads(line)
        if told.get("status") == 200:
            found.setdefault(told["id"], []).append(told)
    return found


async def test_on_rabbitmq_dispatch_has_the_shape_it_came_in(on_rabbitmq: Sender) -> None:
    await dispatch_has_the_shape_it_came_in(on_rabbitmq)


async def test_on_nats_dispatch_has_the_shape_it_came_in(on_nats: Sender) -> None:
    await dispatch_has_the_shape_it_came_in(on_nats)


async def test_on_rabbitmq_everything_reaches_the_provider_in_time(on_rabbitmq: Sender) -> None:
    await everything_reaches_the_provider_in_time(on_rabbitmq)


async def test_on_nats_everything_reaches_the_provider_in_time(on_nats: Sender) -> None:
    await everything_reaches_the_provider_in_time(on_nats)
