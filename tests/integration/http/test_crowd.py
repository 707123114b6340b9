"""The simulated crowd against a real server, its waits shortened."""

from __future__ import annotations

import asyncio
import random

import pytest

from penstock.model.errors import Unauthorized
from penstock.sdk.async_client import AsyncClient
from penstock.sim.crowd import Crowd, CrowdSimulation
from tests.integration.http.conftest import Running, Serve
from tests.integration.http.test_rooms import promoting

FASTER = 5


async def sooner(seconds: float) -> None:
    await asyncio.sleep(seconds / FASTER)


@pytest.mark.slow
async def test_everybody_of_a_crowd_is_accounted_for(running: Running) -> None:
    crowd = Crowd(room="sale", users=40, within=2, abandon=0.3, patience=0.02, stay=0.5)
    async with promoting(running), AsyncClient(running.server.url) as client:
        # Who vanished is missed soon.
        await client.rooms.put("sale", capacity=5, claim_ttl="3s", wait_grace="3s")
        simulation = CrowdSimulation(crowd, client, chance=random.Random(7), sleep=sooner)
        totals = await simulation.run()
        room = await client.rooms.get("sale")
    assert (totals.arrived, totals.waiting, totals.inside, totals.errors) == (40, 0, 0, {})
    assert totals.left + totals.gave_up + totals.vanished + totals.lost == 40
    assert totals.lost == 0
    assert totals.gave_up > 0
    assert totals.vanished > 0
    assert 1 <= totals.most_inside <= totals.capacity == 5
    assert totals.wait_ms["p50"] <= totals.wait_ms["p95"] <= totals.wait_ms["max"]
    assert (room.joined, room.left) == (40, totals.left + totals.gave_up)


async def test_whoever_waits_when_the_crowd_is_stopped_is_told_of(running: Running) -> None:
    async with AsyncClient(running.server.url) as client:
        await client.rooms.put("sale", capacity=0)
        simulation = CrowdSimulation(Crowd(room="sale", users=3, within=0, abandon=0), client)
        going = asyncio.create_task(simulation.run())
        async with asyncio.timeout(300):
            while simulation.totals.waiting < 3:  # noqa: ASYNC110 - they come over HTTP
                await asyncio.sleep(0.01)
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
    assert (simulation.totals.arrived, simulation.finished().waiting) == (3, 3)


async def test_what_is_refused_is_counted_and_ends_only_that_visit(running: Running) -> None:
    async with AsyncClient(running.server.url) as client:
        await client.rooms.put("sale", capacity=1)
        await client.rooms.close("sale")
        crowd = Crowd(room="sale", users=3, within=0)
        totals = await CrowdSimulation(crowd, client, sleep=sooner).run()
    assert (totals.arrived, totals.lost, totals.errors) == (3, 3, {"room_closed": 3})


async def test_a_crowd_without_a_token_is_told_at_once(serve: Serve) -> None:
    async with serve(api={"tokens": ["t"]}) as running, AsyncClient(running.server.url) as client:
        with pytest.raises(Unauthorized):
            await CrowdSimulation(Crowd(room="sale", users=3), client).run()


async def test_a_crowd_that_sets_the_capacity_keeps_the_rest_of_the_room(running: Running) -> None:
    async with AsyncClient(running.server.url) as client:
        await client.rooms.put("sale", capacity=1, admit_rate="5/m", public=True)
        await CrowdSimulation(Crowd(room="sale", users=0, capacity=7), client).run()
        room = await client.rooms.get("sale")
    assert (room.capacity, room.admit_rate, room.public) == (7, "5/m", True)
