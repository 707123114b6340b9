"""What a token may touch, and what the log says that it did."""

from __future__ import annotations

import logging
from typing import Any

import httpx
import pytest

from penstock.api import verbs
from penstock.api.access import Tokens
from penstock.model.errors import ConfigError, StoreUnavailable
from penstock.settings import ApiSettings
from tests.integration.http.conftest import FAR, Running, Serve
from tests.integration.http.test_auth import bearer

PUSH, PROMO, ADMIN, BOTH = "push-only-secret-0001", "promo-only-secret-001", "a" * 32, "b" * 32
TOKENS = [
    {"name": "pusher", "secret": PUSH, "scope": "admin", "routes": ["push"]},
    {"name": "marketing", "secret": PROMO, "scope": "admin", "classes": ["promotional"]},
    {"name": "both", "secret": BOTH, "scope": "write", "routes": ["push", "mail"]},
    {"name": "ops", "secret": ADMIN},
]
ROUTES = {name: {"sink": "log://"} for name in ("push", "mail", "bills")}


def serving(serve: Serve, **more: Any) -> Any:
    return serve(api={"tokens": TOKENS}, routes=ROUTES, **more)


async def ask(
    client: httpx.AsyncClient, secret: str, method: str, path: str, **options: Any
) -> httpx.Response:
    return await client.request(method, path, headers=bearer(secret), **options)


async def schedule(
    client: httpx.AsyncClient, secret: str, route: str, **fields: Any
) -> httpx.Response:
    body = {"route": route, "at": FAR, "payload": 1, **fields}
    return await ask(client, secret, "POST", "/v1/messages", json=body)


@pytest.fixture
def audit(caplog: pytest.LogCaptureFixture) -> Any:
    caplog.set_level(logging.INFO, "penstock.audit")

    def lines() -> list[tuple[str, str, str, int]]:
        found = [r.__dict__ for r in caplog.records if r.name == "penstock.audit"]
        return [(r["who"], r["verb"], r["object"], r["count"]) for r in found]

    return lines


async def test_a_token_of_a_route_schedules_there_and_nowhere_else(serve: Serve) -> None:
    async with serving(serve) as running, running.client() as client:
        for _ in range(3):  # the second time its head is known
            assert (await schedule(client, PUSH, "push")).status_code == 201
            refused = await schedule(client, PUSH, "bills")
            assert refused.status_code == 403
            assert refused.json()["error"]["field"] == "route"
            assert (await schedule(client, ADMIN, "bills")).status_code == 201


async def test_a_token_of_a_class_cannot_declare_another_nor_none(serve: Serve) -> None:
    async with serving(serve) as running, running.client() as client:
        for _ in range(2):
            good = await schedule(client, PROMO, "push", labels={"class": "promotional"})
            assert good.status_code == 201
            for labels in ({"class": "transactional"}, {}, {"channel": "push"}):
                refused = await schedule(client, PROMO, "push", labels=labels)
                assert refused.status_code == 403
                assert refused.json()["error"]["field"] == "labels.class"
            assert (await schedule(client, PROMO, "push")).status_code == 403


async def test_a_batch_refuses_only_the_items_the_token_does_not_cover(serve: Serve) -> None:
    async with serving(serve) as running, running.client() as client:
        items = [
            {"id": f"{route}-1", "route": route, "at": FAR, "payload": 1}
            for route in ("push", "bills", "push", "mail")
        ]
        items[2]["id"] = "push-2"
        answer = await ask(client, PUSH, "POST", "/v1/messages/batch", json=items)
        assert answer.status_code == 207
        outcomes = answer.json()
        assert [outcome["id"] for outcome in outcomes] == ["push-1", "bills-1", "push-2", "mail-1"]
        codes = [outcome.get("error", {}).get("code") for outcome in outcomes]
        assert codes == [None, "forbidden", None, "forbidden"]
        assert (await ask(client, ADMIN, "GET", "/v1/messages/bills-1")).status_code == 404


@pytest.mark.parametrize("on_conflict", ["keep", "replace", "earliest"])
async def test_a_put_neither_changes_nor_shows_a_message_of_another_route_or_class(
    serve: Serve, on_conflict: str
) -> None:
    async with serving(serve) as running, running.client() as client:
        await schedule(client, ADMIN, "bills", id="x", labels={"class": "transactional"})
        for _ in range(2):
            for secret in (PUSH, PROMO):
                fields: dict[str, Any] = {"id": "x", "on_conflict": on_conflict}
                fields["labels"] = {"class": "promotional"}
                assert (await schedule(client, secret, "push", **fields)).status_code == 403
                item = {"route": "push", "payload": 2, **fields}
                batch = await ask(client, secret, "POST", "/v1/messages/batch", json=[item])
                assert batch.json()[0]["error"]["code"] == "forbidden"
        kept = (await ask(client, ADMIN, "GET", "/v1/messages/x")).json()
        assert (kept["route"], kept["payload"]) == ("bills", 1)
        fields = {"id": "mine", "on_conflict": on_conflict}
        assert (await schedule(client, PUSH, "push", **fields)).status_code == 201
        assert (await schedule(client, PUSH, "push", **fields)).status_code == 200


VERBS: list[tuple[str, str, Any]] = [
    ("PATCH", "/v1/messages/x", {"priority": 9}),
    ("POST", "/v1/messages/x/release", {}),
    ("POST", "/v1/messages/x/redrive", {}),
    ("DELETE", "/v1/messages/x", None),
]


@pytest.mark.parametrize(("method", "path", "body"), VERBS)
async def test_a_message_of_another_route_or_class_is_not_changed(
    serve: Serve, method: str, path: str, body: Any
) -> None:
    async with serving(serve) as running, running.client() as client:
        await schedule(client, ADMIN, "bills", id="x", labels={"class": "transactional"})
        for secret in (PUSH, PROMO):
            refused = await ask(client, secret, method, path, json=body)
            assert refused.status_code == 403, refused.text
        assert (await ask(client, ADMIN, "GET", "/v1/messages/x")).json()["version"] == 1


async def test_a_message_of_ones_own_is_changed_but_not_into_another_class(serve: Serve) -> None:
    async with serving(serve) as running, running.client() as client:
        await schedule(client, PROMO, "push", id="x", labels={"class": "promotional"})
        for secret in (PUSH, PROMO):
            changed = await ask(client, secret, "PATCH", "/v1/messages/x", json={"priority": 9})
            assert changed.status_code == 200
        other = {"labels": {"class": "transactional"}}
        assert (await ask(client, PROMO, "PATCH", "/v1/messages/x", json=other)).status_code == 403
        assert (await ask(client, PUSH, "DELETE", "/v1/messages/x")).status_code == 200


async def test_reads_are_of_the_tokens_routes_alone(serve: Serve) -> None:
    async with serving(serve) as running, running.client() as client:
        for route in ("push", "mail", "bills"):
            await schedule(client, ADMIN, route, id=route)
        assert (await ask(client, PUSH, "GET", "/v1/messages/push")).status_code == 200
        assert (await ask(client, PUSH, "GET", "/v1/messages/bills")).status_code == 403
        listed = (await ask(client, PUSH, "GET", "/v1/messages")).json()["items"]
        assert [item["id"] for item in listed] == ["push"]
        foreign = await ask(client, PUSH, "GET", "/v1/messages?route=bills")
        assert foreign.status_code == 403
        which = await ask(client, BOTH, "GET", "/v1/messages")
        assert which.status_code == 403
        assert "mail, push" in which.json()["error"]["message"]
        named = await ask(client, BOTH, "GET", "/v1/messages?route=mail")
        assert [item["id"] for item in named.json()["items"]] == ["mail"]
        routes = (await ask(client, PUSH, "GET", "/v1/routes")).json()["items"]
        assert [route["name"] for route in routes] == ["push"]
        assert (await ask(client, PUSH, "GET", "/v1/dead/groups")).status_code == 200
        assert (await ask(client, PUSH, "GET", "/v1/dead/groups?route=bills")).status_code == 403
        for path in ("/v1/stats", "/v1/history", "/v1/forecast", "/v1/policies", "/metrics"):
            assert (await ask(client, PUSH, "GET", path)).status_code == 403, path
            assert (await ask(client, PROMO, "GET", path)).status_code == 200, path


async def test_a_bulk_change_touches_only_what_the_token_covers(serve: Serve) -> None:
    async with serving(serve) as running, running.client() as client:
        for route in ("push", "bills"):
            for kind in ("promotional", "transactional"):
                await schedule(client, ADMIN, route, id=f"{route}-{kind}", labels={"class": kind})
        path = "/v1/messages/cancel"
        everything: dict[str, Any] = {"filter": {}}
        foreign = {"filter": {"route": "bills"}}
        assert (await ask(client, PUSH, "POST", path, json=foreign)).status_code == 403
        done = await ask(client, PUSH, "POST", path, json=everything)
        assert done.json() == {"matched": 2, "done": 2}
        for verb, more in (("release", {}), ("reschedule", {"at": "2041-01-01T00:00:00Z"})):
            body = {"filter": {}, "dry_run": True, **more}
            counted = await ask(client, PROMO, "POST", f"/v1/messages/{verb}", json=body)
            assert counted.json()["matched"] == 1
        done = await ask(client, PROMO, "POST", path, json=everything)
        assert done.json() == {"matched": 1, "done": 1}
        left = (await ask(client, ADMIN, "GET", "/v1/messages?state=scheduled")).json()["items"]
        assert [item["id"] for item in left] == ["bills-transactional"]


async def test_a_route_is_paused_by_a_token_of_that_route_alone(serve: Serve) -> None:
    async with serving(serve) as running, running.client() as client:
        for verb in ("pause", "resume"):
            assert (await ask(client, PUSH, "POST", f"/v1/routes/push/{verb}")).status_code == 200
            assert (await ask(client, PUSH, "POST", f"/v1/routes/bills/{verb}")).status_code == 403
            assert (await ask(client, PROMO, "POST", f"/v1/routes/push/{verb}")).status_code == 403


async def test_what_a_limited_token_was_not_made_for_is_refused(serve: Serve) -> None:
    """A verb that says nothing of limits is closed to tokens that have any."""
    async with serving(serve) as running, running.client() as client:
        closed = 0
        for verb in verbs.VERBS:
            if verb.limited or verb.method == "GET":
                continue
            path = verb.path.replace("{room}", "sale").replace("{user}", "u")
            path = path.replace("{", "").replace("}", "")
            body = {"user": "u"}
            for secret in (PUSH, PROMO):
                refused = await ask(client, secret, verb.method, path, json=body)
                reads = verb.scope == "read" and secret == PROMO  # classes limit writes alone
                assert (refused.status_code == 403) is not reads, (path, refused.text)
            closed += 1
        assert closed > 10


async def test_every_change_by_a_token_is_a_line_in_the_log(serve: Serve, audit: Any) -> None:
    async with serving(serve) as running, running.client() as client:
        await schedule(client, ADMIN, "push", id="x")
        await ask(client, ADMIN, "PATCH", "/v1/messages/x", json={"priority": 9})
        await ask(client, ADMIN, "POST", "/v1/messages/x/release")
        await ask(client, ADMIN, "DELETE", "/v1/messages/x")
        await ask(client, ADMIN, "DELETE", "/v1/messages/unknown")
        await ask(client, ADMIN, "POST", "/v1/routes/push/pause")
        for n in range(3):
            await schedule(client, PUSH, "push", id=f"n{n}")
        cancel = {"filter": {"route": "push"}}
        await ask(client, PUSH, "POST", "/v1/messages/cancel", json=cancel | {"dry_run": True})
        await ask(client, PUSH, "POST", "/v1/messages/cancel", json=cancel)
        cap = {"kind": "cap", "scope": ["key"], "limit": 1, "window": "1h"}
        await ask(client, ADMIN, "PUT", "/v1/policies/one", json=cap)
        await ask(client, ADMIN, "DELETE", "/v1/policies/one")
        await ask(client, ADMIN, "PUT", "/v1/suppressions/out", json={"keys": ["a", "b"]})
        await ask(client, ADMIN, "PUT", "/v1/rooms/sale", json={"capacity": 1})
        await ask(client, ADMIN, "POST", "/v1/rooms/sale/pause")
        one_by_one = [line for line in audit() if line[1] != "schedule"]  # those are counted
        assert one_by_one == [
            ("ops", "change", "x", 1),
            ("ops", "release", "x", 1),
            ("ops", "cancel", "x", 1),
            ("ops", "pause", "route push", 1),
            ("pusher", "cancel", "route=push", 3),
            ("ops", "put", "policy one", 1),
            ("ops", "delete", "policy one", 1),
            ("ops", "put", "suppression out", 2),
            ("ops", "put", "room sale", 1),
            ("ops", "pause", "room sale", 1),
        ]


async def test_every_change_of_a_rule_by_a_token_is_a_line_in_the_log(
    serve: Serve, audit: Any
) -> None:
    async with serving(serve) as running, running.client() as client:
        path = "/v1/recurring/poll"
        await ask(client, ADMIN, "PUT", path, json={"every": "1h", "route": "push"})
        await ask(client, ADMIN, "PUT", path, json={"every": "1ms"})
        for word in ("pause", "resume", "trigger"):
            await ask(client, ADMIN, "POST", f"{path}/{word}")
        span = {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T03:00:00Z"}
        await ask(client, ADMIN, "POST", f"{path}/backfill", json=span)
        await ask(client, ADMIN, "DELETE", path)
        words = ("put", "pause", "resume", "trigger", "backfill", "delete")
        assert audit() == [
            ("ops", word, "recurring poll", 4 if word == "backfill" else 1) for word in words
        ]


async def test_a_change_that_the_store_did_not_answer_is_recorded_as_unsure(
    serve: Serve, audit: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unanswered(*_: object) -> list[Any]:
        raise StoreUnavailable("no answer in time")

    async with serving(serve) as running, running.client() as client:
        await schedule(client, ADMIN, "push", id="x")
        monkeypatch.setattr(running.probe, "amend", unanswered, raising=False)
        cancel = {"filter": {"route": "push"}}
        answer = await ask(client, ADMIN, "POST", "/v1/messages/cancel", json=cancel)
        assert answer.status_code == 503
        assert ("ops", "unsure", "POST /v1/messages/cancel", 0) in audit()


async def test_what_is_scheduled_is_counted_by_token_and_route(serve: Serve, audit: Any) -> None:
    async with serving(serve) as running, running.client() as client:
        for n in range(4):
            await schedule(client, ADMIN, "push", id=f"n{n}")
        await schedule(client, ADMIN, "nowhere")
        await schedule(client, BOTH, "bills")
        items = [{"route": route, "payload": 1, "at": FAR} for route in ("mail", "push", "bills")]
        await ask(client, BOTH, "POST", "/v1/messages/batch", json=items)
        await ask(client, ADMIN, "PUT", "/v1/rooms/sale", json={"capacity": 9})
        for user in ("a", "b"):
            await ask(client, ADMIN, "POST", "/v1/rooms/sale/join", json={"user": user})
        running.server.api.audit.flush()
        counted: dict[tuple[str, str, str], int] = {}
        for who, verb, target, number in audit():
            change = who, verb, target
            counted[change] = counted.get(change, 0) + number
        del counted["ops", "put", "room sale"]
        assert counted == {
            ("ops", "schedule", "push"): 4,
            ("both", "schedule", "mail"): 1,
            ("both", "schedule", "push"): 1,
            ("ops", "join", "room sale"): 2,
        }


async def test_what_was_counted_is_told_when_the_server_stops(serve: Serve, audit: Any) -> None:
    async with serving(serve) as running, running.client() as client:
        await schedule(client, ADMIN, "push")
    assert sum(number for *_, number in audit()) == 1


async def test_without_tokens_nothing_is_recorded(serve: Serve, audit: Any) -> None:
    async with serve() as running, running.client() as client:
        made = await client.post("/v1/messages", json={"at": FAR, "payload": 1})
        await client.delete(f"/v1/messages/{made.json()['id']}")
    assert audit() == []


async def test_short_secrets_are_warned_of_without_showing_them(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    tokens = ["fifteen-bytes-1", "sixteen-bytes-16", {"name": "ci", "secret": "short"}]
    async with serve(api={"tokens": tokens}):
        told = [r.getMessage() for r in caplog.records if "shorter than 16 bytes" in r.getMessage()]
    assert len(told) == 2
    assert "'token-1'" in told[0]
    assert "'ci'" in told[1]
    assert "fifteen" not in caplog.text


def test_a_secret_of_two_tokens_is_refused() -> None:
    with pytest.raises(ConfigError, match="same secret"):
        Tokens(ApiSettings.model_validate({"tokens": ["s", {"name": "b", "secret": "s"}]}))


async def _fail() -> dict[str, str]:
    raise StoreUnavailable("10.0.0.7:6379 refused the connection")


async def test_without_a_token_readyz_says_status_and_names_of_parts(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serving(serve) as running, running.client() as client:
        bare = await client.get("/readyz")
        assert bare.json() == {
            "status": "ready",
            "parts": {"store": {"status": "ok"}, "worker": {"status": "none"}},
        }
        for secret in (PUSH, "unknown"):
            assert (await ask(client, secret, "GET", "/readyz")).json() == bare.json()
        full = (await ask(client, ADMIN, "GET", "/readyz")).json()
        assert full["facts"]
        monkeypatch.setattr(running.probe, "check", _fail, raising=False)
        failed = await client.get("/readyz")
        assert failed.status_code == 503
        assert failed.json() == {"status": "not ready", "parts": {"store": {"status": "failed"}}}


async def test_without_a_token_the_api_document_names_no_route(serve: Serve) -> None:
    async with serving(serve) as running, running.client() as client:
        assert "bills" not in (await client.get("/openapi.json")).text
        assert "bills" not in (await ask(client, PUSH, "GET", "/openapi.json")).text
        assert "bills" in (await ask(client, ADMIN, "GET", "/openapi.json")).text


async def test_answers_of_the_api_are_kept_by_no_cache(running: Running) -> None:
    async with running.client() as client:
        one = {"at": FAR, "payload": 1, "id": "x"}
        for method, path, body in (
            ("POST", "/v1/messages", one),
            ("POST", "/v1/messages", one),
            ("POST", "/v1/messages", {"at": "never"}),
            ("POST", "/v1/messages/batch", [one]),
            ("GET", "/v1/messages/x", None),
            ("GET", "/v1/messages/y", None),
            ("GET", "/v1/stats", None),
            ("GET", "/metrics", None),
            ("GET", "/readyz", None),
            ("GET", "/no/such/path", None),
            ("DELETE", "/v1/messages", None),
        ):
            answer = await client.request(method, path, json=body)
            assert answer.headers.get_list("cache-control") == ["no-store"], (method, path)
        page = await client.get("/")
        assert page.headers.get_list("cache-control") == ["no-cache"]
