"""Routes, figures, health, ticks and the pages."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import httpx

from penstock.model.message import Message
from penstock.model.outcome import SendOutcome
from penstock.wiring import open_worker
from tests.integration.http.conftest import Running, Serve


async def test_routes_show_what_is_held_and_are_paused_and_resumed(
    client: httpx.AsyncClient,
) -> None:
    await client.post("/v1/messages", json={"delay": "1h"})
    paused = await client.post("/v1/routes/default/pause")
    assert (paused.status_code, paused.json()) == (200, {"name": "default", "paused": True})
    (route,) = (await client.get("/v1/routes")).json()["items"]
    assert (route["name"], route["sink"], route["paused"]) == ("default", "log://", True)
    assert (route["scheduled"], route["in_flight"]) == (1, None)
    assert (await client.post("/v1/routes/default/resume")).json()["paused"] is False
    (route,) = (await client.get("/v1/routes")).json()["items"]
    assert route["paused"] is False


async def test_a_sinks_password_is_not_shown(serve: Serve) -> None:
    routes = {"hook": {"sink": "https://user:secret@example.org/x"}}
    async with serve(routes=routes) as running, running.client() as client:
        answer = await client.get("/v1/routes")
        assert "secret" not in answer.text
        assert [route["name"] for route in answer.json()["items"]] == ["default", "hook"]


async def test_stats_count_what_was_done(client: httpx.AsyncClient) -> None:
    await client.post("/v1/messages/batch", json=[{"delay": 60}, {"delay": -1}])
    stats = (await client.get("/v1/stats")).json()
    assert stats["states"]["scheduled"] == 1
    assert stats["totals"] == {"accepted": 1, "rejected": 1}
    assert stats["routes"]["default"]["scheduled"] == 1


async def test_metrics_are_prometheus_text(client: httpx.AsyncClient) -> None:
    await client.post("/v1/messages", json={"delay": 60})
    answer = await client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    assert answer.headers["content-type"].count("charset") == 1
    assert 'penstock_messages_total{route="default",stage="accepted"} 1.0' in answer.text
    assert 'penstock_pending_messages{route="default"} 1.0' in answer.text


async def test_events_are_figures_as_json(running: Running, client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/v1/events") as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.aiter_lines()
        assert await anext(lines) == "event: stats"
        data = (await anext(lines)).removeprefix("data: ")
        assert json.loads(data)["totals"] == {}
        assert running.server.api.live.listeners == 1


async def test_health_tells_details(client: httpx.AsyncClient) -> None:
    assert (await client.get("/healthz")).json()["status"] == "ok"
    ready = (await client.get("/readyz")).json()
    assert (ready["status"], ready["store"], ready["error"]) == ("ready", "sqlite://", None)
    assert (await client.get("/healthy")).status_code == 200


async def test_a_tick_is_a_message_of_its_own_each_time(client: httpx.AsyncClient) -> None:
    tick = {"item": "user1234", "at": "2040-02-28T14:16:00Z"}
    answers = [await client.post("/ticks", json=tick) for _ in range(2)]
    assert [answer.status_code for answer in answers] == [202, 202]
    ids = [answer.json()["id"] for answer in answers]
    assert ids[0] != ids[1]
    held = (await client.get(f"/v1/messages/{ids[0]}")).json()
    assert (held["route"], held["key"], held["payload"]) == ("default", "user1234", tick)
    assert held["due"] == "2040-02-28T14:16:00.000Z"


async def test_ticks_go_to_their_own_route_when_there_is_one(serve: Serve) -> None:
    async with serve(routes={"ticks": {}}) as running, running.client() as client:
        tick = {"item": "u", "at": "2040-02-28T14:16:00Z"}
        for body in (tick, {**tick, "more": "is let be"}):
            made = (await client.post("/ticks", json=body)).json()
            held = (await client.get(f"/v1/messages/{made['id']}")).json()
            assert (held["route"], held["payload"]) == ("ticks", tick)


async def test_pages_work_without_internet(client: httpx.AsyncClient) -> None:
    for path in ("/", "/docs"):
        page = await client.get(path)
        assert page.headers["content-type"] == "text/html; charset=utf-8"
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"
        assert not re.search(r"(?:src|href)=\"(?:https?:)?//", page.text)
        assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\bon\w+=", page.text)
        names = re.findall(r"(?:src|href)=\"((?:static|ui)/[^\"]+)\"", page.text)
        assert names
        for name in names:
            asset = await client.get(f"/{name}")
            assert asset.status_code == 200
            shipped = "uPlot" in name  # its first comment tells where it is from
            assert shipped or "http" not in re.sub(r"https?://www\.w3\.org", "", asset.text)


async def test_the_dashboard_links_relatively_and_is_not_sent_again_unchanged(
    client: httpx.AsyncClient,
) -> None:
    page = await client.get("/")
    assert not re.search(r"(?:src|href)=\"/", page.text)
    again = await client.get("/", headers={"if-none-match": page.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    other = await client.get("/", headers={"if-none-match": '"other"'})
    assert (other.status_code, other.content) == (200, page.content)


async def test_every_reference_in_the_document_leads_somewhere(client: httpx.AsyncClient) -> None:
    answer = await client.get("/openapi.json")
    document = answer.json()
    for reference in set(re.findall(r'"\$ref":"#/([^"]+)"', answer.text)):
        found = document
        for name in reference.split("/"):
            found = found[name]
    assert document["components"]["schemas"]["RouteName"]["enum"] == ["default"]


async def test_with_a_worker_routes_tell_what_it_does(serve: Serve) -> None:
    async with (
        serve() as running,
        open_worker(running.parts, {"default": Quiet()}) as worker,
        running.parts.fleet.joined(worker),
        running.client() as client,
    ):
        running.server.api.worker = worker
        (route,) = (await client.get("/v1/routes")).json()["items"]
        assert (route["in_flight"], route["waiting_for_sink"]) == (0, False)
        assert route["capacity"] == 7
        assert (await client.get("/healthz")).json()["worker"] is True


class Quiet:
    """A sink that is never asked."""

    name = "quiet"
    max_batch = 1
    concurrency = 7

    async def send(self, batch: Sequence[Message]) -> Sequence[SendOutcome]:
        raise AssertionError(batch)

    async def check(self) -> None: ...

    async def close(self) -> None: ...
