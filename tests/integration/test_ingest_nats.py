"""Schedule by publishing, whole: a NATS source, the store, a worker, another subject."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Sequence

import nats as client_library
from nats.aio.msg import Msg

from penstock.flow.ingest import run_all
from penstock.model.state import State
from penstock.settings import Settings, given
from penstock.wiring import Parts, open_parts, open_sources, open_worker
from systems.servers.nats import NatsServer

PATIENCE = 300.0


def settings(server: NatsServer, name: str) -> Settings:
    return given(
        store="sqlite:///:memory:",
        routes={
            "push": {
                "sink": f"{server.url}/{name}.dispatch",
                "create_topic": True,
                "backoff": "100ms..300ms",
                "max_attempts": 1000,
                "timeout": "3s",
            }
        },
        sources={
            "decisions": {
                "from": f"{server.url}/{name}.decisions",
                "format": "decision-batch",
                "route": "push",
                "dead_letter": f"{server.url}/{name}.rejected",
                "create_topic": True,
                "group": name,
                "ack_wait": 2,
            }
        },
    )


async def publish(server: NatsServer, subject: str, batches: Sequence[object]) -> None:
    client = await client_library.connect(server.url)
    js = client.jetstream()
    for batch in batches:
        await js.publish(subject, json.dumps(batch).encode())
    await client.close()


async def taken(server: NatsServer, subject: str, number: int) -> list[Msg]:
    client = await client_library.connect(server.url)
    reading = await client.jetstream().subscribe(subject, ordered_consumer=True)
    found = [await reading.next_msg(timeout=PATIENCE) for _ in range(number)]
    await client.close()
    return found


def items(word: str, number: int) -> list[dict[str, object]]:
    return [
        {"id": f"{word}-{n}", "data": {"method": "sendPush", "params": {"receivers": [f"u{n}"]}}}
        for n in range(number)
    ]


class Running:
    """Everything of one process, until the block ends."""

    def __init__(self, configured: Settings) -> None:
        self._settings = configured

    async def __aenter__(self) -> Parts:
        self._parts = open_parts(self._settings)
        parts = await self._parts.__aenter__()
        self._worker = open_worker(parts)
        self._sources = open_sources(parts)
        worker = await self._worker.__aenter__()
        ingests = await self._sources.__aenter__()
        self._tasks = [asyncio.ensure_future(worker.run())]
        self._tasks.append(asyncio.ensure_future(run_all(ingests)))
        self._stop = worker.stop
        return parts

    async def __aexit__(self, *_: object) -> None:
        self._tasks[1].cancel()
        self._stop()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for part in (self._sources, self._worker, self._parts):
            await part.__aexit__(None, None, None)


async def made(server: NatsServer, name: str) -> None:
    """Wait for the streams that sink and source make at their start."""
    client = await client_library.connect(server.url)
    js = client.jetstream()
    async with asyncio.timeout(PATIENCE):
        for subject in ("decisions", "dispatch"):
            while True:
                try:
                    await js.find_stream_name_by_subject(f"{name}.{subject}")
                    break
                except client_library.js.errors.NotFoundError:
                    await asyncio.sleep(0.05)
    await client.close()


async def test_every_verdict_of_a_batch_has_its_way_through_nats(nats: NatsServer) -> None:
    name = f"n{uuid.uuid4().hex}"
    soon = int(time.time()) + 2
    async with Running(settings(nats, name)) as parts:
        await made(nats, name)
        await publish(
            nats,
            f"{name}.decisions",
            [
                {"decision": "ALLOW", "notify_msg": items("allow", 3)},
                {"decision": "DEFER", "tta": soon, "notify_msg": items("defer", 2)},
                {"decision": "BLOCK", "notify_msg": items("block", 2)},
                {"decision": "PERHAPS", "notify_msg": items("odd", 1)},
            ],
        )
        sent = await taken(nats, f"{name}.dispatch", 5)
        (rejected,) = await taken(nats, f"{name}.rejected", 1)
        blocked = await parts.store.messages.find(["block-0", "block-1", "odd-0"])
    shapes = [json.loads(msg.data) for msg in sent]
    assert {shape["notify_msg"][0]["id"] for shape in shapes[:3]} == {
        f"allow-{n}" for n in range(3)
    }
    assert {shape["notify_msg"][0]["id"] for shape in shapes[3:]} == {"defer-0", "defer-1"}
    assert all(shape["decision"] == "ALLOW" for shape in shapes)
    stamps = [msg.metadata.timestamp.timestamp() for msg in sent[3:]]
    assert all(stamp >= soon for stamp in stamps)  # never early
    assert [m.state if m else None for m in blocked] == [State.BLOCKED, State.BLOCKED, None]
    assert "PERHAPS" in (rejected.headers or {})["penstock-error"]
    assert json.loads(rejected.data)["decision"] == "PERHAPS"


async def test_nats_restarted_under_source_and_sink_loses_nothing(nats: NatsServer) -> None:
    name = f"n{uuid.uuid4().hex}"
    wanted = {f"{word}-{n}" for word in ("a", "b", "c") for n in range(200)}
    async with Running(settings(nats, name)):
        await made(nats, name)
        for word in ("a", "b", "c"):
            batches = [{"notify_msg": [one]} for one in items(word, 200)]
            await publish(nats, f"{name}.decisions", batches)
            await asyncio.to_thread(nats.kill)
            await asyncio.to_thread(nats.start)
        sent = await taken(nats, f"{name}.dispatch", len(wanted))
    assert {json.loads(msg.data)["notify_msg"][0]["id"] for msg in sent} == wanted
