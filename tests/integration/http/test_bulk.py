"""Changes to everything a filter finds, and the dead that are sent again."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.integration.deaths import kill_all
from tests.integration.http.conftest import Running, put


async def test_many_are_cancelled_by_filter_and_counted_first(client: httpx.AsyncClient) -> None:
    for number in range(3):
        await put(client, id=f"b{number}", key="k")
    await put(client, id="stays")
    wanted = {"filter": {"key": "k"}}
    dry = await client.post("/v1/messages/cancel", json={**wanted, "dry_run": True})
    assert dry.json() == {"matched": 3, "done": 0}
    done = await client.post("/v1/messages/cancel", json=wanted)
    assert done.json() == {"matched": 3, "done": 3}
    assert (await client.get("/v1/messages/stays")).json()["state"] == "scheduled"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "filter"),
        ({"filter": {"state": "dead"}}, "filter.state"),
        ({"filter": {"state": "odd"}}, "filter.state"),
        ({"filter": {"due_to": "x"}}, "filter.due_to"),
        ({"filter": {"colour": "red"}}, "filter.colour"),
        ({"filter": {}, "dry_run": "yes"}, "dry_run"),
    ],
)
async def test_a_bad_bulk_names_the_field(
    client: httpx.AsyncClient, body: dict[str, Any], field: str
) -> None:
    answer = await client.post("/v1/messages/cancel", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == field


async def test_the_dead_are_redriven_at_a_pace(running: Running, client: httpx.AsyncClient) -> None:
    await client.post("/v1/messages/batch", json=[{"id": f"d{n}"} for n in range(3)])
    await kill_all(running.parts.store.messages)
    answer = await client.post("/v1/dead/redrive", json={"filter": {}, "rate": "2/s"})
    assert answer.json() == {"matched": 3, "done": 3}
    page = (await client.get("/v1/messages?state=scheduled")).json()
    dues = sorted(message.due for message in await held(running, page))
    assert [due - dues[0] for due in dues] == [0, 500, 1000]
    answer = await client.post("/v1/dead/redrive", json={"filter": {}, "rate": "0/s"})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "rate")


async def held(running: Running, page: dict[str, Any]) -> list[Any]:
    return await running.parts.store.messages.find([item["id"] for item in page["items"]])


async def test_what_matches_is_released_in_bulk_and_a_dry_run_only_counts(
    client: httpx.AsyncClient,
) -> None:
    await client.post(
        "/v1/messages/batch",
        json=[{"id": f"m{i}", "key": "a" if i % 2 else "b", "delay": 60 + i} for i in range(5)],
    )
    body = {"filter": {"key": "a"}}
    dry = await client.post("/v1/messages/release", json={**body, "dry_run": True})
    assert dry.json() == {"matched": 2, "done": 0}
    assert (await client.post("/v1/messages/release", json=body)).json() == {
        "matched": 2,
        "done": 2,
    }
    now = (await client.get("/v1/stats")).json()["now"]
    due = {item["id"]: item["due"] for item in (await client.get("/v1/messages")).json()["items"]}
    assert {name for name, at in due.items() if at <= now} == {"m1", "m3"}
    again = await client.post("/v1/messages/release", json=body)
    assert again.json() == {"matched": 0, "done": 0}


async def test_what_matches_is_rescheduled_to_one_moment_each_once(
    client: httpx.AsyncClient,
) -> None:
    at = "2040-02-28T14:16:00.000Z"
    await client.post(
        "/v1/messages/batch",
        json=[
            *({"id": f"m{i}", "delay": 60 + i} for i in range(1_200)),
            {"id": "short", "delay": 60, "expires": "2039-01-01T00:00:00Z"},
            {"id": "there", "at": at},
            {"id": "beyond", "at": "2041-01-01T00:00:00Z"},
        ],
    )
    asked = {"filter": {}, "at": at}
    dry = await client.post("/v1/messages/reschedule", json={**asked, "dry_run": True})
    assert dry.json() == {"matched": 1_202, "done": 0}
    moved = await client.post("/v1/messages/reschedule", json=asked)
    assert moved.json() == {"matched": 1_202, "done": 1_201}
    assert (await client.get("/v1/messages/beyond")).json()["due"] == at
    assert (await client.get("/v1/messages/short")).json()["due"] < "2040"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"filter": {}}, "at"),
        ({"filter": {}, "at": "2040-01-01T00:00:00Z", "delay": 5}, "delay"),
        ({"filter": {"state": "dead"}, "delay": 5}, "filter.state"),
        ({"filter": {}, "delay": "soon"}, "delay"),
    ],
)
async def test_a_bulk_move_that_makes_no_sense_names_the_field(
    client: httpx.AsyncClient, body: dict[str, object], field: str
) -> None:
    answer = await client.post("/v1/messages/reschedule", json=body)
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == field


async def test_the_words_of_bulk_changes_are_ids_like_any_other(
    client: httpx.AsyncClient,
) -> None:
    for word in ("release", "reschedule"):
        await client.post("/v1/messages", json={"id": word, "delay": 60})
        assert (await client.get(f"/v1/messages/{word}")).json()["id"] == word
        assert (await client.delete(f"/v1/messages/{word}")).json()["state"] == "cancelled"


async def test_only_a_dead_message_is_redriven(client: httpx.AsyncClient) -> None:
    await client.post("/v1/messages", json={"id": "alive", "delay": 60})
    answer = await client.post("/v1/messages/alive/redrive")
    assert (answer.status_code, answer.json()["state"]) == (409, "scheduled")
    assert (await client.post("/v1/messages/nobody/redrive")).status_code == 404


async def test_a_dead_message_is_deleted_and_a_waiting_one_cancelled(
    running: Running, client: httpx.AsyncClient
) -> None:
    await client.post("/v1/messages/batch", json=[{"id": f"d{n}"} for n in range(3)])
    await kill_all(running.parts.store.messages)
    answer = await client.delete("/v1/messages/d0", headers={"if-match": "7"})
    assert answer.status_code == 412
    answer = await client.delete("/v1/messages/d0")
    assert (answer.status_code, answer.json()["id"]) == (200, "d0")
    assert (answer.json()["state"], answer.json()["deleted"]) == ("dead", True)
    assert (await client.get("/v1/messages/d0")).status_code == 404
    assert (await client.delete("/v1/messages/d0")).status_code == 404
    assert (await client.post("/v1/messages", json={"id": "d0", "delay": 60})).status_code == 201
    cancelled = await client.delete("/v1/messages/d0")
    assert (cancelled.json()["state"], "deleted" in cancelled.json()) == ("cancelled", False)


async def test_a_delete_may_say_which_of_the_two_it_means(
    running: Running, client: httpx.AsyncClient
) -> None:
    await client.post("/v1/messages", json={"id": "dead"})
    await kill_all(running.parts.store.messages)
    await client.post("/v1/messages", json={"id": "waits", "delay": 60})
    answer = await client.delete("/v1/messages/dead?state=scheduled")
    assert (answer.status_code, answer.json()["state"]) == (409, "dead")
    assert (await client.delete("/v1/messages/waits?state=dead")).status_code == 409
    assert (await client.delete("/v1/messages/waits?state=odd")).status_code == 422
    assert (await client.delete("/v1/messages/dead?state=dead")).status_code == 200
    assert (await client.delete("/v1/messages/waits?state=scheduled")).status_code == 200


async def test_the_dead_are_deleted_by_filter_and_counted_first(
    running: Running, client: httpx.AsyncClient
) -> None:
    await client.post(
        "/v1/messages/batch", json=[{"id": f"d{n}", "key": f"k{n % 2}"} for n in range(5)]
    )
    await kill_all(running.parts.store.messages, error="HTTP 410")
    body: dict[str, Any] = {"filter": {"key": "k0", "error": "410"}}
    dry = await client.post("/v1/dead/delete", json={**body, "dry_run": True})
    assert dry.json() == {"matched": 3, "done": 0}
    done = await client.post("/v1/dead/delete", json=body)
    assert done.json() == {"matched": 3, "done": 3}
    page = (await client.get("/v1/messages?state=dead")).json()
    assert [item["id"] for item in page["items"]] == ["d1", "d3"]
    for wrong, field in (
        ({"filter": {"state": "scheduled"}}, "filter.state"),
        ({"filter": {}, "rate": "1/s"}, "rate"),
        ({}, "filter"),
    ):
        answer = await client.post("/v1/dead/delete", json=wrong)
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)


async def test_everything_of_a_key_is_forgotten_with_a_count(
    running: Running, client: httpx.AsyncClient
) -> None:
    cap = {"kind": "cap", "scope": ["key"], "limit": 5, "window": "24h"}
    await client.put("/v1/policies/five", json=cap)
    await client.put("/v1/suppressions/optout", json={"keys": ["user1"], "legal": True})
    await client.post("/v1/messages", json={"id": "dead", "key": "user1"})
    await kill_all(running.parts.store.messages)
    for name, key in (("a", "user1"), ("b", "user1"), ("c", "user2")):
        await put(client, id=name, key=key)
    answer = await client.post("/v1/forget", json={"key": "user1"})
    assert answer.status_code == 200
    assert answer.json() == {
        "key": "user1",
        "messages": 3,
        "counters": 0,
        "pending": 0,
        "next": None,
    }
    page = (await client.get("/v1/messages")).json()
    assert [item["id"] for item in page["items"]] == ["c"]
    kept = (await client.get("/v1/suppressions/optout")).json()
    assert kept["keys"] == ["user1"]
    for wrong, field in (({}, "key"), ({"key": ""}, "key"), ({"key": "a", "x": 1}, "x")):
        answer = await client.post("/v1/forget", json=wrong)
        assert (answer.status_code, answer.json()["error"]["field"]) == (422, field)
