"""A caller's header never makes NATS do anything, in a real flow from store to stream."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter

import nats as nats_client
import pytest
from nats.js.api import StreamConfig

from penstock.model.draft import Draft
from penstock.model.state import State
from penstock.settings import given
from penstock.wiring import open_parts, open_worker
from systems.servers.nats import NatsServer

pytestmark = pytest.mark.slow

PATIENCE = 300.0
INNOCENTS = [f"m-{n}" for n in range(50)]


async def test_a_roll_up_asked_for_by_a_caller_deletes_nothing_and_hurts_no_other(
    nats: NatsServer,
) -> None:
    subject = f"poison.{uuid.uuid4()}"
    client = await nats_client.connect(nats.url)
    js = client.jetstream()
    name = subject.replace(".", "_")
    await js.add_stream(StreamConfig(name=name, subjects=[subject], allow_rollup_hdrs=True))
    for number in range(20):
        await js.publish(subject, b"earlier", headers={"penstock-id": f"earlier-{number}"})
    route = {"sink": f"{nats.url}/{subject}", "max_attempts": 3}
    async with open_parts(given(store="sqlite:///:memory:", routes={"r": route})) as parts:
        drafts = [Draft(id=one, route="r") for one in INNOCENTS]
        drafts.insert(25, Draft(id="p", route="r", headers={"nats-rollup": "all"}))
        drafts.insert(25, Draft(id="q", route="r", headers={"Nats-Rollup": "all"}))
        await parts.intake.schedule(drafts)
        async with open_worker(parts) as worker:
            running = asyncio.ensure_future(worker.run())
            counts = parts.observer.counts
            async with asyncio.timeout(PATIENCE):
                while counts["delivered", "r"] + counts["dead", "r"] < 52:  # noqa: ASYNC110 - a count
                    await asyncio.sleep(0.05)
            worker.stop()
            await running
        poison = await parts.store.messages.find(["p", "q"])
        assert [(one.state, one.attempt) for one in poison if one] == [(State.DEAD, 1)] * 2
    reading = await js.pull_subscribe(subject)
    there = (await js.stream_info(name)).state.messages
    records = await reading.fetch(there, timeout=PATIENCE)
    await client.close()
    seen = Counter(
        (record.headers["penstock-id"], record.headers.get("penstock-attempt"))
        for record in records
        if record.headers
    )
    expected = Counter((one, "1") for one in INNOCENTS)
    assert seen == expected + Counter((f"earlier-{n}", None) for n in range(20))
