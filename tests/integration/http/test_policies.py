"""Policies, suppressions, decisions and counters over HTTP."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from penstock.model.decision import Conclusion, End, Question
from penstock.model.errors import InvalidMessage, UnknownThing
from penstock.model.policy import Suppression
from penstock.model.verdict import Verdict
from penstock.sdk.async_client import AsyncClient
from tests.integration.http.conftest import Running, Serve

CAP: dict[str, Any] = {
    "kind": "cap",
    "scope": ["key", "channel"],
    "limit": 3,
    "window": "24h",
    "on_exceed": "DEFER",
    "max_defer": "3d",
    "applies_to": {"class": ["promotional"]},
    "bypass": ["transactional"],
}
ALWAYS: dict[str, Any] = {
    "kind": "quiet",
    "from": "00:00",
    "to": "23:59",
    "zone": "UTC",
    "bypass": ["transactional"],
}


async def test_a_policy_is_kept_read_listed_and_forgotten(client: httpx.AsyncClient) -> None:
    assert (await client.get("/v1/policies")).json() == {"items": [], "version": 0, "next": None}
    answer = await client.put("/v1/policies/three-a-day", json=CAP)
    assert answer.status_code == 200
    held = (await client.get("/v1/policies/three-a-day")).json()
    assert held["id"] == "three-a-day"
    assert held["limit"] == 3
    listed = (await client.get("/v1/policies")).json()
    assert [item["id"] for item in listed["items"]] == ["three-a-day"]
    assert (await client.delete("/v1/policies/three-a-day")).status_code == 200
    assert (await client.delete("/v1/policies/three-a-day")).status_code == 404
    assert (await client.get("/v1/policies/three-a-day")).status_code == 404


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"limit": 0}, "limit"),
        ({"window": "0s"}, "window"),
        ({"window": {"calendar": "day", "zone": "Mars/Base"}}, "window.zone"),
        ({"colour": "red"}, "colour"),
        ({"kind": "hat"}, "kind"),
    ],
)
async def test_nonsense_is_refused_with_the_field_named(
    client: httpx.AsyncClient, change: dict[str, Any], field: str
) -> None:
    answer = await client.put("/v1/policies/p", json={**CAP, **change})
    assert answer.status_code == 422
    assert answer.json()["error"]["field"] == field
    assert (await client.get("/v1/policies")).json()["items"] == []


async def test_names_are_plain(client: httpx.AsyncClient) -> None:
    assert (await client.put("/v1/policies/a%2Fb", json=CAP)).status_code == 422
    assert (await client.put("/v1/policies/p", content=b"{")).status_code in (400, 415)


async def test_an_explanation_names_the_rule_that_binds_and_every_other(
    client: httpx.AsyncClient,
) -> None:
    await client.put("/v1/policies/nights", json=ALWAYS)
    await client.put("/v1/policies/three-a-day", json=CAP)
    question = {
        "route": "default",
        "key": "user1",
        "labels": {"class": "promotional", "channel": "push", "tz": "Asia/Seoul"},
    }
    told = (await client.post("/v1/decisions", json=question)).json()
    assert told["verdict"] == "DEFER"
    assert told["until"].endswith("14:59:00.000Z")
    assert told["reason"] == {"policy": "nights", "detail": "quiet until 23:59 Asia/Seoul"}
    rules = {rule["policy"]: rule for rule in told["rules"]}
    assert rules["nights"]["verdict"] == "DEFER"
    assert rules["three-a-day"]["verdict"] == "ALLOW"
    assert rules["three-a-day"]["detail"] == "0 of 3 in 24h for channel push"
    question["labels"] = {"class": "transactional"}
    many = (await client.post("/v1/decisions", json=[question, question])).json()
    assert [item["verdict"] for item in many] == ["ALLOW", "ALLOW"]
    assert {"policy": "nights", "verdict": "ALLOW", "until": None, "detail": "bypassed",
            "shadow": False} in many[0]["rules"]  # fmt: skip


async def test_a_question_without_a_key_is_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/decisions", json={})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "key")
    answer = await client.post("/v1/decisions", json={"key": "a", "labels": {"tz": "Mars"}})
    assert (answer.status_code, answer.json()["error"]["field"]) == (422, "labels.tz")


async def test_suppressions_block_and_single_keys_come_and_go(client: httpx.AsyncClient) -> None:
    put = await client.put("/v1/suppressions/optout", json={"keys": ["user1"], "legal": True})
    assert put.json() == {"id": "optout", "legal": True, "keys": ["user1"]}
    told = (await client.post("/v1/decisions", json={"key": "user1"})).json()
    assert (told["verdict"], told["reason"]["policy"]) == ("BLOCK", "optout")
    assert (await client.put("/v1/suppressions/optout/keys/%C3%A9")).status_code == 200
    assert (await client.delete("/v1/suppressions/optout/keys/user1")).status_code == 200
    assert (await client.get("/v1/suppressions/optout")).json()["keys"] == ["é"]
    assert (await client.post("/v1/decisions", json={"key": "user1"})).json()["verdict"] == "ALLOW"
    listed = (await client.get("/v1/suppressions")).json()["items"]
    assert listed == [{"id": "optout", "legal": True}]
    assert (await client.put("/v1/suppressions/none/keys/a")).status_code == 404
    assert (await client.delete("/v1/suppressions/optout")).status_code == 200
    assert (await client.get("/v1/suppressions/optout")).status_code == 404


async def test_counters_show_used_limit_and_when_it_goes_down(
    running: Running, client: httpx.AsyncClient
) -> None:
    await client.put(
        "/v1/policies/daily", json={"kind": "cap", "scope": ["key"], "limit": 2, "window": "24h"}
    )
    policies = running.parts.policies
    assert policies is not None
    now = running.parts.store.clock.now()
    question = Question(id="m", key="user1", due=now)
    await policies._store.decide([question], now, 60_000)
    await policies.conclude([Conclusion(question, End.COMMIT)], now)
    (counter,) = (await client.get("/v1/counters/user1")).json()["items"]
    assert counter["policy"] == "daily"
    assert counter["scope"] == {"key": "user1"}
    assert (counter["used"], counter["limit"]) == (1, 2)
    assert counter["resets"] is not None
    (unused,) = (await client.get("/v1/counters/user2")).json()["items"]
    assert (unused["used"], unused["resets"]) == (0, None)


async def test_only_an_admin_changes_policies(serve: Serve) -> None:
    tokens = [{"name": "r", "secret": "reads", "scope": "read"}, {"secret": "admins"}]
    async with serve(api={"tokens": tokens}) as running, running.client() as client:
        reads = {"authorization": "Bearer reads"}
        admins = {"authorization": "Bearer admins"}
        denied = await client.put("/v1/policies/p", json=CAP, headers=reads)
        assert denied.status_code == 403
        assert (await client.put("/v1/policies/p", json=CAP, headers=admins)).status_code == 200
        asked = await client.post("/v1/decisions", json={"key": "a"}, headers=reads)
        assert asked.status_code == 200


async def test_the_client_has_the_same_verbs(running: Running) -> None:
    async with AsyncClient(running.server.url) as client:
        cap = {"kind": "cap", "scope": ["key"], "limit": 3, "window": "24h"}
        await client.put_policy("daily", cap)
        assert list(await client.policies()) == ["daily"]
        decision = await client.explain(key="user 1/é", labels={"channel": "push"})
        assert decision.verdict is Verdict.ALLOW
        (figure,) = await client.counters("user 1/é")
        assert (figure.scope, figure.used, figure.limit) == ({"key": "user 1/é"}, 0, 3)
        await client.drop_policy("daily")
        with pytest.raises(UnknownThing):
            await client.drop_policy("daily")


async def test_the_client_keeps_suppression_lists(running: Running) -> None:
    async with AsyncClient(running.server.url) as client:
        await client.put_suppression("optout", {"keys": ["ann", "user 1/é"], "legal": True})
        await client.suppress("optout", "bob", "cid/1")
        await client.unsuppress("optout", "ann")
        kept = Suppression(keys=("bob", "cid/1", "user 1/é"), legal=True)
        assert await client.suppression("optout") == kept
        assert await client.suppressions() == {"optout": Suppression(legal=True)}
        assert (await client.explain(key="bob")).verdict is Verdict.BLOCK
        (clear,) = (await client.explain(key="ann")).rules
        assert (clear.policy, clear.detail) == ("optout", "not on the list")
        await client.drop_suppression("optout")
        assert (await client.explain(key="bob")).verdict is Verdict.ALLOW
        with pytest.raises(UnknownThing):
            await client.suppress("optout", "bob")
        with pytest.raises(InvalidMessage):
            await client.put_suppression("optout", {"keys": [""]})
