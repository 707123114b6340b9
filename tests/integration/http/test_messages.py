from __future__ import annotations

import base64
from typing import Any

import httpx
import pytest

from tests.integration.http.conftest import FAR, Running, put


async def test_a_message_is_created_once_and_known_the_second_time(
    client: httpx.AsyncClient,
) -> None:
    first = await put(client, id="one")
    second = await put(client, id="one")
    assert (first.status_code, second.status_code) == (201, 200)
    assert first.json() == {
        "id": "one",
        "state": "scheduled",
        "due": "2040-01-31T09:00:00.000Z",
        "duplicate": False,
    }
    assert second.json() == {**first.json(), "duplicate": True}


async def test_without_an_id_one_is_made_and_without_a_moment_it_is_due_now(
    client: httpx.AsyncClient,
) -> None:
    answer = (await client.post("/v1/messages", json={})).json()
    held = (await client.get(f"/v1/messages/{answer['id']}")).json()
    assert held["due"] == held["created"]
    assert held["key"] == answer["id"]
    assert held["payload"] is None


async def test_a_message_is_shown_with_everything_it_has(client: httpx.AsyncClient) -> None:
    await put(
        client,
        id="full",
        key="user1",
        payload={"a": [1, 2]},
        headers={"x-a": "b"},
        expires="2041-01-01T00:00:00+01:00",
        priority=9,
        labels={"channel": "push", "class": "promotional", "tags": ["t"], "tz": "Asia/Seoul"},
        topic="orders.eu",
    )
    held = (await client.get("/v1/messages/full")).json()
    (scheduled,) = held.pop("timeline")
    assert set(scheduled) == {"at", "event", "detail", "attempt"}
    created = held.pop("created")
    assert created.endswith("Z")
    assert len(created) == len("2040-01-31T09:00:00.000Z")
    assert held == {
        "id": "full",
        "route": "default",
        "key": "user1",
        "payload": {"a": [1, 2]},
        "content_type": "application/json",
        "headers": {"x-a": "b"},
        "due": "2040-01-31T09:00:00.000Z",
        "expires": "2040-12-31T23:00:00.000Z",
        "priority": 9,
        "labels": {"channel": "push", "class": "promotional", "tags": ["t"], "tz": "Asia/Seoul"},
        "topic": "orders.eu",
        "state": "scheduled",
        "version": 1,
        "attempt": 0,
        "last_error": None,
        "claimed": None,
        "settled": None,
    }


async def test_the_payload_comes_back_as_the_text_it_was(client: httpx.AsyncClient) -> None:
    text = b'{ "b":1.50,  "a":1e999 }'
    headers = {"content-type": "application/json"}
    body = b'{"id":"raw","at":"2040-01-01T00:00:00Z","payload":' + text + b"}"
    await client.post("/v1/messages", content=body, headers=headers)
    assert b'"payload":' + text + b"," in (await client.get("/v1/messages/raw")).content


async def test_raw_bytes_come_back_as_base64(client: httpx.AsyncClient) -> None:
    raw = base64.b64encode(b"\x00\xff").decode()
    await put(client, id="bytes", payload_base64=raw, content_type="image/png")
    held = (await client.get("/v1/messages/bytes")).json()
    assert "payload" not in held
    assert (held["payload_base64"], held["content_type"]) == (raw, "image/png")


async def test_what_claims_to_be_json_and_is_not_comes_back_as_base64(
    client: httpx.AsyncClient,
) -> None:
    raw = base64.b64encode(b"{not json").decode()
    await put(client, id="odd", payload_base64=raw, content_type="application/json")
    assert (await client.get("/v1/messages/odd")).json()["payload_base64"] == raw


@pytest.mark.parametrize(
    ("message_id", "path"),
    [
        ("a/b", "a%2Fb"),
        ("a/b", "a%2fb"),
        ("batch", "batch"),
        ("cancel", "cancel"),
        ("..", "%2E%2E"),
        ("../", "..%2F"),
        ("..", ".."),
        ("%41", "%2541"),
        ("a b?c#d&e=f", "a%20b%3Fc%23d%26e%3Df"),
        ('"\\', "%22%5C"),
        ("release", "release"),
        ("x" * 200, "x" * 200),
    ],
)
async def test_an_id_is_the_raw_path_segment_decoded_once(
    running: Running, client: httpx.AsyncClient, message_id: str, path: str
) -> None:
    created = await put(client, id=message_id)
    assert created.status_code == 201
    raw = f"GET /v1/messages/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    answer = await running.send(raw.encode())
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert httpx.Response(200, content=answer.split(b"\r\n\r\n", 1)[1]).json()["id"] == message_id
    raw = (
        f"POST /v1/messages/{path}/release HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    )
    assert (await running.send(raw.encode())).startswith(b"HTTP/1.1 200 ")
    raw = f"DELETE /v1/messages/{path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
    assert (await running.send(raw.encode())).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("path", ["%00", "%0A", "%FF", "x" * 201, "a%7F"])
async def test_what_no_id_can_be_is_not_found(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(f"/v1/messages/{path}")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "not_found"


async def test_a_message_is_cancelled_and_stays_so(client: httpx.AsyncClient) -> None:
    await put(client, id="c")
    first, second = await client.delete("/v1/messages/c"), await client.delete("/v1/messages/c")
    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["state"] == second.json()["state"] == "cancelled"
    unknown = await client.delete("/v1/messages/never")
    assert unknown.status_code == 404


async def test_a_message_being_sent_is_marked_and_the_answer_says_so(
    running: Running, client: httpx.AsyncClient
) -> None:
    await client.post("/v1/messages", json={"id": "leased"})
    store = running.parts.store.messages
    await store.claim("default", 10, 30_000, store.clock.now())
    answer = await client.delete("/v1/messages/leased")
    assert answer.status_code == 409
    body = answer.json()
    assert body["error"]["code"] == "already_released"
    assert (body["state"], body["cancel_pending"]) == ("leased", True)
    assert (await client.get("/v1/messages/leased")).json()["cancel_pending"] is True


async def test_a_change_of_another_version_is_refused_with_the_right_one(
    client: httpx.AsyncClient,
) -> None:
    await put(client, id="v")
    answer = await client.patch("/v1/messages/v", json={"delay": "1h"}, headers={"if-match": '"7"'})
    assert answer.status_code == 412
    assert (answer.json()["version"], answer.headers["etag"]) == (1, '"1"')
    for version in ("1", '"2"', "*"):
        headers = {"if-match": version}
        answer = await client.patch("/v1/messages/v", json={"delay": "1h"}, headers=headers)
        assert answer.status_code == 200
    assert answer.json()["version"] == 4
    assert answer.headers["etag"] == '"4"'


@pytest.mark.parametrize("nonsense", ["abc", '"', "-1", "1.5", '"1', "9" * 30])
async def test_a_version_that_is_none_is_an_error(client: httpx.AsyncClient, nonsense: str) -> None:
    await put(client, id="v")
    answer = await client.delete("/v1/messages/v", headers={"if-match": nonsense})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == "if-match"


async def test_everything_a_patch_may_change_is_changed(client: httpx.AsyncClient) -> None:
    await put(client, id="p", payload=1)
    change = {
        "at": "2041-01-01T00:00:00Z",
        "payload": {"new": True},
        "headers": {"x": "y"},
        "expires": "2042-01-01T00:00:00Z",
        "priority": 0,
        "labels": {"channel": "sms"},
    }
    held = (await client.patch("/v1/messages/p", json=change)).json()
    assert held["due"] == "2041-01-01T00:00:00.000Z"
    assert held["expires"] == "2042-01-01T00:00:00.000Z"
    assert {name: held[name] for name in ("payload", "headers", "priority", "labels")} == {
        name: change[name] for name in ("payload", "headers", "priority", "labels")
    }


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({}, "body"),
        ({"at": FAR, "delay": 1}, "delay"),
        ({"priority": 10}, "priority"),
        ({"content_type": "a/b"}, "content_type"),
        ({"payload": 1, "payload_base64": ""}, "payload_base64"),
        ({"headers": {"penstock-id": "x"}}, "headers"),
        ({"labels": {"tz": "Mars/Olympus"}}, "labels.tz"),
        ({"id": "other"}, "id"),
        ({"expires": "2020-01-01T00:00:00Z"}, "expires"),
        ({"at": "2040-01-01T00:00:00"}, "at"),
    ],
)
async def test_a_bad_patch_names_the_field(
    client: httpx.AsyncClient, change: dict[str, Any], field: str
) -> None:
    await put(client, id="p")
    answer = await client.patch("/v1/messages/p", json=change)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == field


async def test_a_released_message_is_due_now(client: httpx.AsyncClient) -> None:
    await put(client, id="r")
    held = (await client.post("/v1/messages/r/release")).json()
    assert held["due"] < "2039"
    assert (await client.post("/v1/messages/none/release")).status_code == 404


async def test_pages_follow_each_other_in_order_of_due(client: httpx.AsyncClient) -> None:
    for number in range(5):
        await put(client, id=f"m{number}", key="k", at=f"2040-01-0{number + 1}T00:00:00Z")
    await put(client, id="other", key="else")
    seen: list[str] = []
    cursor = ""
    while True:
        page = (await client.get(f"/v1/messages?key=k&limit=2&cursor={cursor}")).json()
        seen += [item["id"] for item in page["items"]]
        if page["next"] is None:
            break
        cursor = page["next"]
    assert seen == [f"m{number}" for number in range(5)]
    window = {"due_from": "2040-01-02T00:00:00Z", "due_to": "2040-01-04T00:00:00Z"}
    page = (await client.get("/v1/messages", params=window)).json()
    assert [item["id"] for item in page["items"]] == ["m1", "m2"]
    page = (await client.get("/v1/messages?state=cancelled")).json()
    assert page == {"items": [], "next": None}


@pytest.mark.parametrize(
    ("query", "status", "field"),
    [
        ("state=gone", 422, "state"),
        ("limit=0", 422, "limit"),
        ("limit=1001", 422, "limit"),
        ("limit=x", 422, "limit"),
        ("stat=scheduled", 422, "stat"),
        ("state=dead&state=dead", 422, "state"),
        ("due_from=2040-01-01", 422, "due_from"),
        ("cursor=%21%21", 400, "cursor"),
        ("cursor=AAAA", 400, "cursor"),
        ("key=%FF", 400, None),
    ],
)
async def test_a_bad_query_is_told(
    client: httpx.AsyncClient, query: str, status: int, field: str | None
) -> None:
    answer = await client.get(f"/v1/messages?{query}")
    assert (answer.status_code, answer.json()["error"]["field"]) == (status, field)
