"""Recurring rules over HTTP."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from penstock.flow.recur import Planter
from penstock.model.errors import UnknownThing, VersionConflict
from penstock.model.recurrence import Rule
from penstock.sdk.async_client import AsyncClient
from penstock.sdk.client import Client
from tests.integration.http.conftest import Running, Serve

DAILY: dict[str, Any] = {
    "cron": "0 9 * * mon-fri",
    "zone": "Europe/Berlin",
    "payload": {"report": "daily"},
    "key": "k",
    "labels": {"class": "transactional"},
    "headers": {"x": "y"},
    "priority": 5,
    "expires_after": "1h",
    "start": "2026-01-01T00:00:00Z",
    "end": "2046-01-01T00:00:00Z",
    "limit": 100,
    "jitter": "30s",
    "misfire": "latest",
    "catch_up": "1d",
    "overlap": "allow",
    "paused": False,
}


async def test_a_rule_is_made_read_changed_listed_and_deleted(client: httpx.AsyncClient) -> None:
    made = await client.put("/v1/recurring/daily-report", json=DAILY)
    assert made.status_code == 201, made.text
    put = made.json()
    assert set(put) == {"id", "version", "next", "words"}
    assert (put["id"], put["version"], len(put["next"])) == ("daily-report", 1, 5)
    assert put["words"] == "At 09:00, Monday to Friday (Europe/Berlin)"
    again = await client.put("/v1/recurring/daily-report", json=DAILY)
    assert (again.status_code, again.json()["version"]) == (200, 1)
    changed = await client.put("/v1/recurring/daily-report", json={**DAILY, "priority": 9})
    assert (changed.status_code, changed.json()["version"]) == (200, 2)
    shown = (await client.get("/v1/recurring/daily-report")).json()
    moments = {"start": "2026-01-01T00:00:00.000Z", "end": "2046-01-01T00:00:00.000Z"}
    assert {name: shown[name] for name in DAILY} == {**DAILY, **moments, "priority": 9}
    assert (shown["state"], shown["last"], len(shown["next"])) == ("active", [], 5)
    listed = (await client.get("/v1/recurring")).json()
    assert [rule["id"] for rule in listed["items"]] == ["daily-report"]
    assert listed["next"] is None
    gone = await client.delete("/v1/recurring/daily-report")
    assert gone.json() == {"id": "daily-report", "deleted": True}
    assert (await client.get("/v1/recurring/daily-report")).status_code == 404
    assert (await client.delete("/v1/recurring/daily-report")).status_code == 404


@pytest.mark.parametrize("body", [DAILY, {"every": "1h"}, {"every": 90, "payload_base64": "AA=="}])
async def test_the_answer_to_a_get_put_again_changes_nothing(
    client: httpx.AsyncClient, body: dict[str, Any]
) -> None:
    await client.put("/v1/recurring/r", json=body)
    shown = (await client.get("/v1/recurring/r")).json()
    written = {name: shown[name] for name in Rule.__struct_fields__ if name in shown}
    again = await client.put("/v1/recurring/r", json=written)
    assert (again.status_code, again.json()["version"]) == (200, 1), again.text


async def test_answers_have_their_moments_in_utc_with_milliseconds(
    client: httpx.AsyncClient,
) -> None:
    body = {
        "every": "1h",
        "anchor": "2026-01-01T02:00:00+02:00",
        "start": "2026-01-01 00:00:00z",
        "end": "2046-01-01T00:00:00.5-01:00",
    }
    put = (await client.put("/v1/recurring/r", json=body)).json()
    shown = (await client.get("/v1/recurring/r")).json()
    (listed,) = (await client.get("/v1/recurring")).json()["items"]
    for one in (shown, listed):
        assert (one["anchor"], one["start"], one["end"]) == (
            "2026-01-01T00:00:00.000Z",
            "2026-01-01T00:00:00.000Z",
            "2046-01-01T01:00:00.500Z",
        )
    said = "Every hour, counted from 2026-01-01T00:00:00.000Z"
    assert (put["words"], shown["words"]) == (said, said)


async def test_a_list_goes_on_behind_its_cursor(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await client.put(f"/v1/recurring/r{number}", json={"every": "1h"})
    page = (await client.get("/v1/recurring?limit=3")).json()
    rest = (await client.get(f"/v1/recurring?limit=3&cursor={page['next']}")).json()
    ids = [rule["id"] for rule in page["items"] + rest["items"]]
    assert (ids, rest["next"]) == ([f"r{number}" for number in range(5)], None)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"cron": "0 0 30 2 *"}, "cron"),
        ({"cron": "0 9 * * *", "zone": "Europe/Nowhere"}, "zone"),
        ({"every": "0.5s"}, "every"),
        ({"every": "1m", "cron": "* * * * *"}, "every"),
        ({}, "cron"),
        ({"every": "1m", "start": "2027-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z"}, "end"),
        ({"every": "1m", "route": "nowhere"}, "route"),
        ({"every": "1m", "limit": 0}, "limit"),
        ({"every": "1m", "overlap": "sometimes"}, "overlap"),
        ({"evry": "1m"}, "evry"),
    ],
)
async def test_what_makes_no_sense_names_its_field(
    client: httpx.AsyncClient, body: dict[str, Any], field: str
) -> None:
    answer = await client.put("/v1/recurring/r", json=body)
    assert answer.status_code == 422, answer.text
    assert answer.json()["error"]["field"] == field
    assert (await client.get("/v1/recurring/r")).status_code == 404


async def test_a_change_may_name_the_version_it_is_for(client: httpx.AsyncClient) -> None:
    await client.put("/v1/recurring/r", json={"every": "1h"})
    stale = await client.put("/v1/recurring/r", json={"every": "2h"}, headers={"if-match": "7"})
    assert stale.status_code == 412
    assert stale.json()["error"]["code"] == "version_conflict"
    done = await client.put("/v1/recurring/r", json={"every": "2h"}, headers={"if-match": '"1"'})
    assert (done.status_code, done.json()["version"]) == (200, 2)
    for method, path in (("POST", "/pause"), ("DELETE", "")):
        refused = await client.request(method, f"/v1/recurring/r{path}", headers={"if-match": "1"})
        assert refused.status_code == 412


async def test_a_rule_has_its_version_as_etag(client: httpx.AsyncClient) -> None:
    put, path = {"every": "1h"}, "/v1/recurring/r"
    none = await client.put(path, json=put, headers={"if-match": "1"})
    assert (none.status_code, none.headers["etag"]) == (412, '"0"'), "one that is not there"
    made = await client.put(path, json=put, headers={"if-match": '"0"'})
    assert (made.status_code, made.headers["etag"]) == (201, '"1"')
    again = await client.put(path, json=put, headers={"if-match": made.headers["etag"]})
    assert (again.status_code, again.headers["etag"]) == (200, '"1"')
    paused = await client.post(f"{path}/pause", headers={"if-match": again.headers["etag"]})
    assert paused.headers["etag"] == '"2"'
    shown = await client.get(path)
    assert (shown.headers["etag"], shown.json()["version"]) == ('"2"', 2)
    any_version = await client.put("/v1/recurring/new", json=put, headers={"if-match": "*"})
    assert any_version.status_code == 201


async def test_a_rule_is_paused_and_resumed(client: httpx.AsyncClient) -> None:
    made = (await client.put("/v1/recurring/r", json={"cron": "0 0 1 1 *"})).json()
    paused = (await client.post("/v1/recurring/r/pause")).json()
    assert (paused["state"], paused["paused"]) == ("paused", True)
    assert paused["next"] == made["next"], "what it would be if it was resumed now"
    resumed = (await client.post("/v1/recurring/r/resume")).json()
    assert (resumed["state"], resumed["paused"], len(resumed["next"])) == ("active", False, 5)
    assert (await client.post("/v1/recurring/nobody/pause")).status_code == 404


@pytest.mark.parametrize("word", ["pause", "resume", "trigger"])
async def test_a_call_without_fields_refuses_them(client: httpx.AsyncClient, word: str) -> None:
    await client.put("/v1/recurring/r", json={"every": "1h"})
    path = f"/v1/recurring/r/{word}"
    refused = await client.post(path, json={"payload": {"a": 1}})
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "payload")
    assert (await client.get("/v1/recurring/r")).json()["version"] == 1
    assert (await client.post(path, json={})).status_code == 200
    assert (await client.post(path)).status_code == 200


async def test_a_trigger_is_an_ordinary_message(client: httpx.AsyncClient) -> None:
    await client.put("/v1/recurring/r", json={"cron": "0 0 1 1 *", "payload": {"a": 1}})
    name = (await client.post("/v1/recurring/r/trigger")).json()["id"]
    message = (await client.get(f"/v1/messages/{name}")).json()
    assert message["headers"]["penstock-recurring"] == "r"
    assert message["payload"] == {"a": 1}
    last = (await client.get("/v1/recurring/r")).json()["last"]
    assert [(one["id"], one["state"]) for one in last] == [(name, "scheduled")]


async def test_a_backfill_says_how_many_it_planted(client: httpx.AsyncClient) -> None:
    await client.put("/v1/recurring/r", json={"every": "1h"})
    span = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T05:00:00Z"}
    assert (await client.post("/v1/recurring/r/backfill", json=span)).json() == {"planted": 6}
    assert (await client.post("/v1/recurring/r/backfill", json=span)).json() == {"planted": 0}
    assert (await client.get("/v1/messages/r@2026-01-01T03:00:00Z")).status_code == 200
    far = {**span, "from": "1990-01-01T00:00:00Z"}
    refused = await client.post("/v1/recurring/r/backfill", json=far)
    assert (refused.status_code, refused.json()["error"]["field"]) == (422, "to")


async def test_a_preview_stores_nothing(client: httpx.AsyncClient) -> None:
    body = {"cron": "30 2 * * *", "zone": "Europe/Berlin"}
    preview = (await client.post("/v1/recurring/preview", json=body)).json()
    assert set(preview) == {"next", "words"}
    assert (len(preview["next"]), preview["words"]) == (5, "At 02:30 every day (Europe/Berlin)")
    assert (await client.get("/v1/recurring")).json()["items"] == []


async def test_a_rule_may_be_called_preview(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/recurring/preview", json={"every": "1h"})).status_code == 201
    assert (await client.get("/v1/recurring/preview")).json()["id"] == "preview"


async def test_a_moment_that_comes_is_planted(running: Running, client: httpx.AsyncClient) -> None:
    soon = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=1)
    body = {"every": "1h", "anchor": soon.isoformat(), "limit": 1}
    made = (await client.put("/v1/recurring/r", json=body)).json()
    parts = running.parts
    assert parts.store.recurring is not None
    assert parts.plant is not None
    planter = Planter(parts.store.recurring, parts.store, parts.plant)
    until = 1
    while until is not None:
        until = await planter._look()  # type: ignore[assignment]
        if (await client.get("/v1/recurring/r")).json()["planted"]:
            break
        await parts.store.clock.sleep_until(until or 0)
    name = f"r@{soon:%Y-%m-%dT%H:%M:%SZ}"
    assert made["next"] == [f"{soon:%Y-%m-%dT%H:%M:%S}.000Z"]
    assert (await client.get(f"/v1/messages/{name}")).json()["due"] == made["next"][0]
    assert (await client.get("/v1/recurring/r")).json()["state"] == "ended"


async def test_a_rule_needs_the_scope(serve: Serve) -> None:
    tokens = [{"name": "r", "secret": "reads-0123456789", "scope": "read"}]
    async with serve(api={"tokens": tokens}) as running, running.client() as client:
        client.headers["authorization"] = "Bearer reads-0123456789"
        assert (await client.get("/v1/recurring")).status_code == 200
        refused = await client.put("/v1/recurring/r", json={"every": "1h"})
        assert refused.status_code == 403


async def test_both_clients_speak_of_rules(running: Running) -> None:
    async with AsyncClient(running.server.url) as client:
        put = await client.recurring.put("r", every=timedelta(hours=1), payload={"a": 1})
        assert put.words == "Every hour"
        for refused in (
            client.recurring.put("r", every="2h", version=9),
            client.recurring.pause("r", version=9),
            client.recurring.resume("r", version=9),
            client.recurring.delete("r", version=9),
        ):
            with pytest.raises(VersionConflict, match="rule 'r' is at version 1") as caught:
                await refused
            assert caught.value.message_id == "r"
        assert (await client.recurring.pause("r")).state == "paused"
        assert (await client.recurring.resume("r")).state == "active"
        name = await client.recurring.trigger("r")
        assert (await client.get(name)).payload == b'{"a":1}'
        first, last = "2026-01-01T00:00:00Z", datetime(2026, 1, 1, 2, tzinfo=UTC)
        assert await client.recurring.backfill("r", first, last) == 3
        assert len((await client.recurring.preview(cron="0 9 * * *")).next) == 5

    def without_a_loop() -> None:
        with Client(running.server.url) as client:
            shown = client.recurring.get("r")
            assert shown.payload == b'{"a":1}'
            assert (shown.state, shown.every) == ("active", 3600.0)
            rules, cursor = client.recurring.list()
            assert ([rule.id for rule in rules], cursor) == (["r"], None)
            with pytest.raises(VersionConflict, match="rule 'r' is at version 3"):
                client.recurring.delete("r", version=9)
            client.recurring.delete("r")
            with pytest.raises(UnknownThing):
                client.recurring.get("r")

    await asyncio.to_thread(without_a_loop)
