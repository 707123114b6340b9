"""What the dashboard reads: figures of the fleet, history, forecast, dead letters by error."""

from __future__ import annotations

import asyncio
import json
from datetime import datetime, timedelta
from typing import Any

import httpx
import pytest

from penstock.api.http.live import Live
from penstock.flow.history import LENGTH, RATES, History
from penstock.model.fleet import Heartbeat, LaneState
from penstock.model.state import State
from penstock.rooms.history import RoomHistory
from penstock.testing.store_cases.base import claim_one, ending, settle
from tests.integration.http.conftest import Running, Serve


async def test_two_looks_at_the_same_time_answer_a_listener_once(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(_: Live) -> bytes:
        await asyncio.sleep(0)  # the other look goes on here
        return b""

    monkeypatch.setattr(Live, "_event", slow)
    parts = running.parts
    live = Live(parts.status(), parts.store.clock, asyncio.Event())
    following = live._following()
    await asyncio.gather(live.look(), live.look())
    assert following.result().startswith(b"event: point")


def elsewhere(running: Running, **fields: object) -> Heartbeat:
    """Another process's heartbeat, seen just now."""
    now = running.parts.store.clock.now()
    facts = {"role": "worker", "host": "far", "pid": 7, "version": "1", "started": now, **fields}
    return Heartbeat(id="other", seen=now, **facts)  # type: ignore[arg-type] # a test's shorthand


async def beat(running: Running, heartbeat: Heartbeat) -> None:
    fleet = running.parts.store.fleet
    assert fleet is not None
    await fleet.beat(heartbeat)


async def stats_with(client: httpx.AsyncClient, process: str) -> dict[str, Any]:
    """What others told is read twice a second: until this process is known."""
    while True:
        stats: dict[str, Any] = (await client.get("/v1/stats")).json()
        if any(each["id"] == process for each in stats["processes"]):
            return stats
        await asyncio.sleep(0.05)


async def test_stats_are_of_every_process_on_the_store(
    running: Running, client: httpx.AsyncClient
) -> None:
    lane = LaneState(sink="kafka://b/t", in_flight=3, capacity=9, waiting_for_sink=True)
    counts = {"push": {"released": 5, "retry": 2}}
    metrics = "http://127.0.0.1:9101/metrics"
    await beat(running, elsewhere(running, counts=counts, routes={"push": lane}, metrics=metrics))
    await client.post("/v1/messages", json={"delay": 60})
    stats = await stats_with(client, "other")
    assert stats["totals"] == {"accepted": 1, "released": 5, "retry": 2}
    push = stats["routes"]["push"]
    assert (push["sink"], push["paused"], push["errors"]) == ("kafka://b/t", False, 2)
    assert (push["in_flight"], push["capacity"], push["waiting_for_sink"]) == (3, 9, True)
    assert stats["routes"]["default"]["sink"] == "log://"
    (process,) = [each for each in stats["processes"] if each["id"] == "other"]
    assert (process["role"], process["host"], process["pid"]) == ("worker", "far", 7)
    assert process["metrics"] == metrics
    assert process["routes"]["push"]["in_flight"] == 3
    assert datetime.fromisoformat(process["last_seen"]) >= datetime.fromisoformat(
        process["started"]
    )


async def test_a_route_nobody_serves_has_no_sink(serve: Serve) -> None:
    async with serve() as running, running.client() as client:
        await claim_one(running.parts.store.messages, route="orphan")
        stats = (await client.get("/v1/stats")).json()
        assert stats["routes"]["orphan"]["sink"] is None
        assert stats["routes"]["orphan"]["capacity"] is None


async def test_a_paused_route_is_told_as_such(client: httpx.AsyncClient) -> None:
    await client.post("/v1/routes/default/pause")
    assert (await client.get("/v1/stats")).json()["routes"]["default"]["paused"] is True


async def test_history_is_curves_of_one_length(client: httpx.AsyncClient) -> None:
    history = (await client.get("/v1/history")).json()
    assert history["step"] == 1
    assert set(history["points"]) == {*RATES, "pending", "late_p50", "late_p99"}
    assert {len(curve) for curve in history["points"].values()} == {LENGTH}
    assert history["from"].endswith(".000Z")


async def test_history_is_brought_up_to_date_for_whoever_asks(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens: it is looked at seldom, and here not at all."""
    monkeypatch.setattr(Live, "_next_look", lambda live: live._clock.now() + 86_400_000)
    async with serve() as running, running.client() as client:
        running.server.api.live.history = History()  # no look so far
        await client.post("/v1/messages", json={"delay": "1h"})
        history = (await client.get("/v1/history")).json()
        assert history["points"]["pending"][-1] == 1


async def test_the_lines_of_rooms_are_remembered(running: Running) -> None:
    async with running.client() as client:
        await client.put("/v1/rooms/sale", json={"capacity": 1})
        for user in ("u1", "u2"):
            await client.post("/v1/rooms/sale/join", json={"user": user})
        running.server.api.live.room_history = RoomHistory()  # no look so far
        await running.server.api.live.look_at_rooms()
        history = (await client.get("/v1/history/rooms")).json()
        assert history["step"] == 5
        curves = history["rooms"]["sale"]
        assert curves["waiting"][-1] + curves["inside"][-1] == 2
        assert curves["capacity"] == [1]


async def test_the_forecast_tells_what_is_coming(client: httpx.AsyncClient) -> None:
    await client.post(
        "/v1/messages/batch", json=[{}, {"delay": "2h"}, {"delay": "2h"}, {"delay": "90d"}]
    )
    forecast = (await client.get("/v1/forecast")).json()
    assert (len(forecast["minutes"]), len(forecast["hours"])) == (60, 168)
    assert forecast["minutes"][0]["routes"] == {"default": 1}
    assert sum(hour["routes"].get("default", 0) for hour in forecast["hours"]) == 3
    assert forecast["later"] == {"default": 1}
    assert forecast["exact"] is True
    first, second = (datetime.fromisoformat(hour["from"]) for hour in forecast["hours"][:2])
    assert first <= datetime.fromisoformat(forecast["now"]) < second
    assert second - first == timedelta(hours=1)


async def test_dead_letters_come_in_groups(running: Running, client: httpx.AsyncClient) -> None:
    store = running.parts.store.messages
    for error in ("HTTP 500 in 3 ms", "HTTP 500 in 44 ms", "no such user"):
        message, token = await claim_one(store, route="hook")
        await settle(store, ending(message, token, State.DEAD, error=error))
    answer = (await client.get("/v1/dead/groups?route=hook")).json()
    assert [(group["error"], group["count"]) for group in answer["items"]] == [
        ("HTTP # in # ms", 2),
        ("no such user", 1),
    ]
    assert answer["truncated"] is False
    example = await client.get(f"/v1/messages/{answer['items'][0]['example_id']}")
    assert example.json()["state"] == "dead"
    assert (await client.get("/v1/dead/groups?route=other")).json()["items"] == []
    assert (await client.get("/v1/dead/groups?state=dead")).status_code == 422


async def test_figures_are_encoded_once_for_everybody_who_listens(
    running: Running, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[bytes] = []
    make = Live._event

    async def counted(live: Live) -> bytes:
        made.append(await make(live))
        return made[-1]

    monkeypatch.setattr(Live, "_event", counted)
    heard: list[list[str]] = [[], []]

    async def listen(into: list[str]) -> None:
        async with client.stream("GET", "/v1/events") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    into.append(line)
                if len(into) == 3:
                    return

    await asyncio.gather(*(listen(into) for into in heard))
    assert len(made) <= 5  # one each at first, then one a second for both
    assert heard[0][1:] == heard[1][1:]
    assert set(json.loads(heard[0][0].removeprefix("data: "))) >= {"processes", "policies"}
