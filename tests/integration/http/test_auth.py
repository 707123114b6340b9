from __future__ import annotations

import pytest

from penstock.api.http.auth import Guard
from penstock.api.verbs import PAGES, VERBS
from penstock.model.errors import ConfigError
from penstock.settings import ApiSettings
from tests.integration.http.conftest import MOUNTS, Serve

TOKENS = [
    {"name": "scraper", "secret": "metrics-secret", "scope": "metrics"},
    {"name": "eyes", "secret": "read-secret", "scope": "read"},
    {"name": "app", "secret": "write-secret", "scope": "write"},
    "admin-secret",
]
OPEN = (
    *("/", "/docs", "/openapi.json", "/static/docs.js", "/healthz", "/readyz", "/healthy"),
    *("/ui/main.js", "/ui/views/now.js", "/ui/uPlot.iife.js"),
)
EVERY = (*VERBS, *(verb for mount in MOUNTS for verb in mount.verbs))
RANK = {"metrics-secret": 1, "read-secret": 2, "write-secret": 3, "admin-secret": 4}
NEEDED = {"open": 0, "metrics": 1, "read": 2, "write": 3, "admin": 4}


def bearer(secret: str) -> dict[str, str]:
    return {"authorization": f"Bearer {secret}"}


IN_PATH = {"id": "x", "name": "default", "policy": "p", "suppression": "s", "key": "k"}
IN_PATH |= {"room": "x", "user": "y", "rule": "r"}


async def test_health_and_pages_are_open_and_nothing_else_is(serve: Serve) -> None:
    async with serve(api={"tokens": TOKENS}) as running, running.client() as client:
        for path in OPEN:
            assert (await client.get(path)).status_code == 200, path
        for operation in EVERY:
            if operation.scope == "visitor":
                continue  # a ticket opens those: see test_rooms
            path = operation.path.format_map(IN_PATH)
            answer = await client.request(operation.method, path)
            if operation.scope == "open":
                assert answer.status_code == 200
            else:
                assert answer.status_code == 401, operation
                assert answer.json()["error"]["code"] == "unauthorized"
                assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_each_scope_opens_what_it_should_and_no_more(serve: Serve) -> None:
    async with serve(api={"tokens": TOKENS}) as running, running.client() as client:
        for operation in EVERY:
            if operation.path == "/v1/events" or operation.scope == "visitor":
                continue  # it would not end; a ticket opens the others
            path = operation.path.format_map(IN_PATH)
            for secret, rank in RANK.items():
                answer = await client.request(operation.method, path, headers=bearer(secret))
                refused = rank < NEEDED[operation.scope]
                assert (answer.status_code == 403) is refused, (operation, secret)
                assert answer.status_code != 401


@pytest.mark.parametrize(
    "given",
    ["", "Bearer", "Basic YTpi", "Bearer admin", "admin-secret", "Bearer admin-secretx"],
)
async def test_what_is_no_known_token_is_refused(serve: Serve, given: str) -> None:
    async with serve(api={"tokens": TOKENS}) as running, running.client() as client:
        answer = await client.get("/v1/stats", headers={"authorization": given})
        assert answer.status_code == 401
        assert "secret" not in answer.text


async def test_the_word_bearer_may_be_written_as_one_likes(serve: Serve) -> None:
    async with serve(api={"tokens": TOKENS}) as running, running.client() as client:
        headers = {"authorization": "bEARER   read-secret"}
        assert (await client.get("/v1/stats", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://127.0.0.1:{port}", None, True),
        ("http://localhost:{port}", "localhost:{port}", True),
        ("https://localhost", "localhost", True),
        ("http://localhost:80", "localhost", True),
        ("http://LOCALHOST", "localhost", True),
        ("http://localhost:1", "localhost:2", False),
        ("http://evil.example", None, False),
        ("http://127.0.0.1", None, False),
        ("null", None, False),
        ("http://[", None, False),
    ],
)
async def test_a_browser_may_write_only_from_the_same_origin(
    serve: Serve, origin: str, host: str | None, allowed: bool
) -> None:
    async with serve() as running, running.client() as client:
        port = running.server.address[1]
        headers = {"origin": origin.format(port=port)}
        if host is not None:
            headers["host"] = host.format(port=port)
        for method, path in (
            ("POST", "/v1/messages"),
            ("POST", "/v1/routes/default/pause"),
            ("DELETE", "/v1/messages/x"),
        ):
            answer = await client.request(method, path, json={}, headers=headers)
            assert (answer.status_code == 403) is not allowed
        assert (await client.get("/v1/stats", headers=headers)).status_code == 200


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("LOCALHOST:1234", 200),
        ("app.localhost:80", 200),
        ("127.0.0.1", 200),
        ("[::1]:8700", 200),
        ("10.1.2.3", 200),
        ("rebound.example", 403),
        ("localhost.example:8700", 403),
        ("127.0.0.1.example", 403),
        ("", 403),
    ],
)
async def test_without_tokens_a_foreign_host_name_is_refused(
    serve: Serve, host: str, status: int
) -> None:
    async with serve() as running, running.client() as client:
        assert (await client.get("/v1/stats", headers={"host": host})).status_code == status


async def test_with_tokens_any_host_name_will_do(serve: Serve) -> None:
    async with serve(api={"tokens": TOKENS}) as running, running.client() as client:
        headers = {"host": "penstock.internal", **bearer("read-secret")}
        assert (await client.get("/v1/stats", headers=headers)).status_code == 200


@pytest.mark.parametrize("http", ["0.0.0.0:0", "[::]:0", "192.0.2.7:80", "penstock.example:80"])
def test_an_open_bind_without_tokens_is_refused_unless_asked_for(http: str) -> None:
    with pytest.raises(ConfigError, match="without tokens"):
        Guard(ApiSettings(http=http))
    Guard(ApiSettings(http=http), insecure=True).check_host(b"penstock:8700")
    Guard(ApiSettings.model_validate({"http": http, "tokens": ["s"]}))


def test_an_empty_secret_is_refused() -> None:
    with pytest.raises(ConfigError, match="must not be empty"):
        Guard(ApiSettings.model_validate({"tokens": [" "]}))


def test_pages_are_open_and_no_method_on_a_path_is_there_twice() -> None:
    assert {page.scope for page in PAGES} == {"open"}
    calls = [(verb.method, verb.path) for verb in (*EVERY, *PAGES)]
    assert len(set(calls)) == len(calls)
    names = [verb.name for verb in (*EVERY, *PAGES)]
    assert len(set(names)) == len(names)
