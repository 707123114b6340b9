"""Waiting rooms over HTTP, as an operator, a service and a visitor use them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest

from penstock.model.room import Room
from penstock.ports.rooms import WaitingVisitors
from penstock.settings import RoomsSettings
from tests.integration.http.conftest import Running, Serve

TOKENS = [{"secret": "write-secret", "scope": "write"}, "admin-secret"]
ADMIN = {"authorization": "Bearer admin-secret"}


@asynccontextmanager
async def promoting(running: Running) -> AsyncIterator[httpx.AsyncClient]:
    """A client, while rooms are promoted."""
    rooms = running.server.api.rooms
    assert rooms is not None
    task = asyncio.create_task(rooms.run())
    async with running.client() as client:
        yield client
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def until(look: Callable[[], Awaitable[dict[str, Any]]], **wanted: object) -> dict[str, Any]:
    async with asyncio.timeout(300):
        while True:
            found = await look()
            if all(found.get(name) == value for name, value in wanted.items()):
                return found
            await asyncio.sleep(0.01)


async def ticket(client: httpx.AsyncClient, user: str, room: str = "sale") -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(f"/v1/rooms/{room}/tickets/{user}")).json()
    return found


async def test_the_path_of_a_visitor(running: Running) -> None:
    async with promoting(running) as client:
        made = await client.put(
            "/v1/rooms/sale",
            json={
                "capacity": 1,
                "admit_rate": "200/s",
                "claim_ttl": "2m",
                "session_ttl": "10m",
                "wait_grace": "90s",
            },
        )
        assert made.status_code == 200
        assert made.json()["admit_rate"] == "200/s"
        joined = (await client.post("/v1/rooms/sale/join", json={"user": "u1"})).json()
        assert (joined["state"], joined["position"], joined["ahead"]) == ("WAITING", 1, 0)
        assert {"low", "high"} == set(joined["eta"])
        assert joined["poll_after_ms"] > 0
        admitted = await until(lambda: ticket(client, "u1"), state="ADMITTED")
        second = (await client.post("/v1/rooms/sale/join", json={"user": "u2"})).json()
        assert (second["state"], second["position"], second["token"]) == ("WAITING", 1, None)

        entered = await client.post("/v1/rooms/sale/enter", json={"token": admitted["token"]})
        assert entered.status_code == 200
        assert set(entered.json()) == {"user", "state", "session_expires"}
        assert entered.json()["state"] == "ENTERED"
        again = await client.post("/v1/rooms/sale/enter", json={"token": admitted["token"]})
        assert (again.status_code, again.json()["error"]["code"]) == (409, "token_used")
        forged = await client.post("/v1/rooms/sale/enter", json={"token": "a.b.c"})
        assert (forged.status_code, forged.json()["error"]["code"]) == (401, "invalid_token")

        beat = await client.post("/v1/rooms/sale/heartbeat", json={"user": "u1"})
        assert beat.json()["session_expires"] >= entered.json()["session_expires"]
        left = await client.delete("/v1/rooms/sale/tickets/u1")
        assert (left.status_code, left.json()["state"]) == (200, "LEFT")
        assert (await client.delete("/v1/rooms/sale/tickets/u1")).json()["state"] == "LEFT"
        await until(lambda: ticket(client, "u2"), state="ADMITTED")
        figures = (await client.get("/v1/rooms/sale")).json()
        assert (figures["joined"], figures["admitted"], figures["left"]) == (2, 1, 1)


async def test_a_paused_room_admits_nobody_and_gives_no_estimate(running: Running) -> None:
    async with promoting(running) as client:
        await client.put("/v1/rooms/sale", json={"capacity": 5})
        assert (await client.post("/v1/rooms/sale/pause")).json()["state"] == "paused"
        await client.post("/v1/rooms/sale/join", json={"user": "u1"})
        found = await ticket(client, "u1")
        assert (found["state"], found["eta"], found["room_state"]) == ("WAITING", None, "paused")
        assert (await client.post("/v1/rooms/sale/resume")).json()["state"] == "open"
        await until(lambda: ticket(client, "u1"), state="ADMITTED")


async def test_a_closed_room_takes_nobody_and_a_reset_one_is_empty(running: Running) -> None:
    async with promoting(running) as client:
        await client.put("/v1/rooms/sale", json={"capacity": 1})
        await client.post("/v1/rooms/sale/join", json={"user": "u1"})
        old = await until(lambda: ticket(client, "u1"), state="ADMITTED")
        await client.post("/v1/rooms/sale/close")
        refused = await client.post("/v1/rooms/sale/join", json={"user": "u2"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (409, "room_closed")
        reset = (await client.post("/v1/rooms/sale/reset")).json()
        assert (reset["epoch"], reset["joined"], reset["in_use"]) == (2, 0, 0)
        void = await client.post("/v1/rooms/sale/enter", json={"token": old["token"]})
        assert void.status_code == 401


async def test_a_stream_tells_when_the_turn_has_come(running: Running) -> None:
    async with promoting(running) as client:
        await client.put("/v1/rooms/sale", json={"capacity": 1})
        await client.post("/v1/rooms/sale/join", json={"user": "u1"})
        await until(lambda: ticket(client, "u1"), state="ADMITTED")
        await client.post("/v1/rooms/sale/join", json={"user": "u2"})
        states = []
        async with client.stream("GET", "/v1/rooms/sale/tickets/u2/events") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    states.append(json.loads(line[6:])["state"])
                    if len(states) == 1:
                        await client.delete("/v1/rooms/sale/tickets/u1")
        assert (states[0], states[-1]) == ("WAITING", "ADMITTED")


@pytest.mark.parametrize("takes_the_name", [False, True])
async def test_a_stream_ends_with_gone_when_a_reset_made_its_ticket_void(
    running: Running, takes_the_name: bool
) -> None:
    async with promoting(running) as client:
        await client.put("/v1/rooms/sale", json={"capacity": 1})
        await client.post("/v1/rooms/sale/join", json={"user": "u1"})
        await until(lambda: ticket(client, "u1"), state="ADMITTED")
        await client.post("/v1/rooms/sale/join", json={"user": "u2"})
        events = []
        async with client.stream("GET", "/v1/rooms/sale/tickets/u2/events") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("event: "):
                    events.append(line[7:])
                    if len(events) == 1:
                        await client.post("/v1/rooms/sale/reset")
                        if takes_the_name:  # another visitor: not a word of theirs in this stream
                            await client.post("/v1/rooms/sale/join", json={"user": "u2"})
        assert events == ["ticket", "gone"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "field"),
    [
        ("PUT", "/v1/rooms/sale", {"capacity": -1}, 422, "capacity"),
        ("PUT", "/v1/rooms/a%20b", {}, 422, "room"),
        ("PUT", "/v1/rooms/sale", {"size": 1}, 422, "size"),
        ("POST", "/v1/rooms/none/join", {"user": "u"}, 404, "room"),
        ("POST", "/v1/rooms/here/join", {"user": ""}, 422, "user"),
        ("POST", "/v1/rooms/here/join", {}, 422, "user"),
        ("POST", "/v1/rooms/here/join", {"user": "u", "lane": "vip"}, 422, "lane"),
        ("POST", "/v1/rooms/here/heartbeat", {"user": "nobody"}, 404, "user"),
        ("GET", "/v1/rooms/here/tickets/nobody", None, 404, "user"),
        ("GET", "/v1/rooms/none", None, 404, "room"),
        ("DELETE", "/v1/rooms/here/tickets/nobody", None, 404, "user"),
        ("GET", "/v1/rooms?limit=0", None, 422, "limit"),
    ],
)
async def test_what_is_wrong_is_named(
    client: httpx.AsyncClient, method: str, path: str, body: object, status: int, field: str
) -> None:
    await client.put("/v1/rooms/here", json={})
    answer = await client.request(method, path, json=body)
    assert (answer.status_code, answer.json()["error"]["field"]) == (status, field)


async def test_rooms_are_listed_in_pages(client: httpx.AsyncClient) -> None:
    for name in ("c", "a", "b"):
        await client.put(f"/v1/rooms/{name}", json={})
    page = (await client.get("/v1/rooms?limit=2")).json()
    assert ([room["room"] for room in page["items"]], page["next"]) == (["a", "b"], "b")
    rest = (await client.get("/v1/rooms?cursor=b&limit=1")).json()
    assert ([room["room"] for room in rest["items"]], rest["next"]) == (["c"], None)


async def test_a_listed_room_has_totals_that_a_reset_does_not_take_back(
    client: httpx.AsyncClient,
) -> None:
    await client.put("/v1/rooms/sale", json={"capacity": 5})
    for user in ("u1", "u2"):
        await client.post("/v1/rooms/sale/join", json={"user": user})
    await client.delete("/v1/rooms/sale/tickets/u1")
    await client.post("/v1/rooms/sale/reset")
    await client.post("/v1/rooms/sale/join", json={"user": "u3"})
    (room,) = (await client.get("/v1/rooms")).json()["items"]
    assert (room["joined"], room["left"]) == (1, 0)
    assert (room["joined_total"], room["left_total"], room["expired_total"]) == (3, 1, 0)


async def test_a_visitor_of_a_public_room_has_nothing_but_the_ticket(serve: Serve) -> None:
    async with serve(api={"tokens": TOKENS}) as running, promoting(running) as client:
        await client.put("/v1/rooms/sale", json={"public": True}, headers=ADMIN)
        await client.put("/v1/rooms/inner", json={}, headers=ADMIN)
        assert (await client.post("/v1/rooms/inner/join", json={"user": "u"})).status_code == 401
        assert (await client.post("/v1/rooms/none/join", json={"user": "u"})).status_code == 401
        joined = (await client.post("/v1/rooms/sale/join", json={"user": "u1"})).json()
        own = {"x-ticket": joined["ticket"]}
        path = "/v1/rooms/sale/tickets/u1"
        for headers in ({}, {"x-ticket": "wrong"}, {"x-ticket": joined["ticket"][:-1]}):
            assert (await client.get(path, headers=headers)).status_code == 401
            assert (await client.delete(path, headers=headers)).status_code == 401
        assert (await client.get("/v1/rooms/sale/tickets/u2", headers=own)).status_code == 401

        async def mine() -> dict[str, Any]:
            found: dict[str, Any] = (await client.get(path, headers=own)).json()
            return found

        assert (await until(mine, state="ADMITTED"))["token"]
        stranger = await client.post("/v1/rooms/sale/join", json={"user": "u1"})
        assert stranger.status_code == 409
        assert stranger.json().keys() == {"error"}, "no fact of another's ticket"
        assert stranger.json()["error"]["code"] == "ticket_taken"
        again = await client.post("/v1/rooms/sale/join", json={"user": "u1"}, headers=own)
        assert (again.json()["ticket"], bool(again.json()["token"])) == (joined["ticket"], True)
        assert (await client.post("/v1/rooms/sale/pause", headers=own)).status_code == 401
        enter = await client.post("/v1/rooms/sale/enter", json={"token": again.json()["token"]})
        assert enter.status_code == 401
        lane = {"user": "u3", "lane": "default", "instance": "i"}
        assert (await client.post("/v1/rooms/sale/join", json=lane)).status_code == 401
        assert (await client.delete(path, headers=own)).json()["state"] == "LEFT"


async def test_a_public_room_is_joined_the_short_way_once_it_is_known_to_be_one(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(api={"tokens": TOKENS}) as running, running.client() as client:
        await client.put("/v1/rooms/sale", json={"public": True}, headers=ADMIN)
        await client.put("/v1/rooms/inner", json={}, headers=ADMIN)
        now = 1_000.0
        visitors = running.server.api.visitors
        monkeypatch.setattr(visitors, "_monotonic", lambda: now)
        rooms = running.server.api.rooms
        assert rooms is not None
        asked: list[str] = []
        find = rooms.store.rooms

        async def counted(names: Sequence[str]) -> list[Room | None]:
            asked.extend(names)
            return await find(names)

        monkeypatch.setattr(rooms.store, "rooms", counted)
        join, path = partial(client.post, "/v1/rooms/sale/join"), "/v1/rooms/sale/tickets/u1"
        first = (await join(json={"user": "u1"})).json()
        second = (await join(json={"user": "u2"})).json()
        assert asked == ["sale"], "the second one needs no question"
        assert (first["position"], second["position"]) == (1, 2)
        own = {"x-ticket": first["ticket"]}
        assert (await client.get(path, headers=own)).status_code == 200
        stranger = await join(json={"user": "u1"})
        assert (stranger.status_code, stranger.json()["error"]["code"]) == (409, "ticket_taken")
        assert (await join(json={"user": "u1"}, headers=own)).json()["ticket"] == first["ticket"]
        assert (await join(json={"user": "u3", "lane": "vip"})).status_code == 401
        assert (await join(json={"user": ""})).status_code == 422
        assert (await client.post("/v1/rooms/inner/join", json={"user": "u"})).status_code == 401
        await client.put("/v1/rooms/sale", json={}, headers=ADMIN)
        now += 1.1
        assert (await join(json={"user": "u3"})).status_code == 401, "it is public no more"


async def test_one_address_cannot_fill_a_public_room_in_no_time(serve: Serve) -> None:
    rooms = RoomsSettings(joins_per_client=2)
    async with serve(api={"tokens": TOKENS}, rooms=rooms) as running, running.client() as client:
        await client.put("/v1/rooms/sale", json={"public": True}, headers=ADMIN)
        seen = [
            (await client.post("/v1/rooms/sale/join", json={"user": f"u{n}"})).status_code
            for n in range(12)
        ]
        assert seen[:6] == [200] * 6
        assert 429 in seen


async def test_the_page_of_a_room_and_its_parts_are_open(serve: Serve) -> None:
    async with serve(api={"tokens": TOKENS}) as running, running.client() as client:
        page = await client.get("/rooms/sale")
        assert page.headers["content-type"].startswith("text/html")
        assert "default-src 'none'" in page.headers["content-security-policy"]
        for name in ("room.js", "room-words.js", "room.css"):
            assert (await client.get(f"/rooms-static/{name}")).status_code == 200
        assert (await client.get("/rooms-static/other.js")).status_code == 404


async def test_the_actuator_answers_as_the_dispatchers_did(running: Running) -> None:
    async with promoting(running) as client:
        await client.put("/v1/rooms/sale", json={"capacity": 5})
        await client.post("/v1/rooms/sale/join", json={"user": "u1"})
        await until(lambda: ticket(client, "u1"), state="ADMITTED")
        health = (await client.get("/actuator/health")).json()
        assert (health["status"], health["queueSize"]) == ("UP", 0)
        assert "threadPoolActive" in health
        dispatcher = health["components"]["dispatcher"]
        assert (dispatcher["status"], dispatcher["details"]["queueSize"]) == ("UP", 0)
        assert dispatcher["details"]["promotions"] == 1
        names = (await client.get("/actuator/metrics")).json()["names"]
        assert {"executor.active", "dispatcher_promotions_total"} <= set(names)
        active = (await client.get("/actuator/metrics/executor.active")).json()
        assert active["measurements"][0]["statistic"] == "VALUE"
        assert (await client.get("/actuator/metrics/none")).status_code == 404
        assert {"dispatcher.promotions.total", "dispatcher.promotion.duration"} <= set(names)
        for name in names:
            assert (await client.get(f"/actuator/metrics/{name}")).json()["name"] == name
        total = (await client.get("/actuator/metrics/dispatcher.promotions.total")).json()
        assert total["measurements"] == [{"statistic": "COUNT", "value": 1}]
        took = (await client.get("/actuator/metrics/dispatcher.promotion.duration")).json()
        assert took["baseUnit"] == "seconds"
        told = [one["statistic"] for one in took["measurements"]]
        assert told == ["COUNT", "TOTAL_TIME", "MAX"]
        spelled = await client.get("/actuator/metrics/dispatcher.thread_pool.active")
        assert spelled.json()["measurements"][0]["statistic"] == "VALUE"
        for path in ("/actuator/prometheus", "/metrics"):
            text = (await client.get(path)).text
            assert "dispatcher_promotions_total 1.0" in text
            for name in (
                "dispatcher_promotion_duration_count",
                'dispatcher_promotion_duration_bucket{le="50"}',
                'dispatcher_promotion_duration_seconds_bucket{le="0.05"}',
                "dispatcher_promotion_duration_seconds_max",
                "dispatcher_promotion_duration_seconds_sum",
                "dispatcher_thread_pool_active",
                "dispatcher_queue_size",
                "dispatcher_lua_script_duration_count",
                "dispatcher_redis_errors_total",
            ):
                assert name in text


async def test_a_stream_too_many_is_refused_before_it_begins(running: Running) -> None:
    async with promoting(running) as client:
        await client.put("/v1/rooms/sale", json={"capacity": 0})
        await client.post("/v1/rooms/sale/join", json={"user": "u1"})
        running.server.api.visitors._most = 0
        events = "/v1/rooms/sale/tickets/u1/events"
        refused = await client.get(events)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "5")
        assert (await client.head(events)).status_code == 405


async def test_a_stream_hears_of_a_turn_that_another_process_gave(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.api.http.rooms.STREAM_SECONDS", 60)
    monkeypatch.setattr("penstock.model.room_admission.IDLE_POLL_MS", 60_000)
    monkeypatch.setattr("penstock.model.room_admission.NEAR_POLL_MS", 60_000)
    rooms = running.server.api.rooms
    assert rooms is not None
    async with running.client() as client, asyncio.timeout(300):
        await client.put("/v1/rooms/sale", json={"capacity": 5, "state": "paused"})
        await client.post("/v1/rooms/sale/join", json={"user": "u1"})

        async def told(waiting: WaitingVisitors) -> dict[str, list[str]]:
            return {room: list(users) for room, users in waiting().items()} if admitted else {}

        admitted = False
        monkeypatch.setattr(rooms.store, "turns_elsewhere", told)
        states = []
        async with client.stream("GET", "/v1/rooms/sale/tickets/u1/events") as stream:
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    states.append(json.loads(line[6:])["state"])
                    if len(states) == 1:
                        await client.post("/v1/rooms/sale/resume")
                        await rooms.store.promote(["sale"], rooms.store.clock.now(), 10)
                        admitted = True
    assert states == ["WAITING", "ADMITTED"]
