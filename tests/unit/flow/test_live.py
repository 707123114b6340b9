"""Live figures: listeners get one event a look, however many looks happen at once."""

from __future__ import annotations

import asyncio

from penstock.api.http.live import Live
from penstock.flow.status import Status
from tests.unit.flow.rig import Engine
from tests.unit.flow.test_fleet import another


async def test_two_looks_at_once_answer_a_listener_once_and_fail_nobody(engine: Engine) -> None:
    status = Status(engine.opened, another(engine, role="api"), {}, version="1")
    live = Live(status, engine.clock, asyncio.Event())
    events = live.events()
    assert (await anext(events)).startswith(b"event: stats")
    waiting = asyncio.ensure_future(anext(events))
    await asyncio.sleep(0)
    await asyncio.gather(live.look(), live.look())
    assert (await waiting).startswith(b"event: point")
    await events.aclose()
