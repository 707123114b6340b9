from __future__ import annotations

import httpx
import pytest

from penstock.model.errors import StoreUnavailable
from tests.integration.http.conftest import Running


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/v1", 404, "not_found"),
        ("GET", "/v1/messages/a/b", 404, "not_found"),
        ("GET", "/static/../server.py", 404, "not_found"),
        ("GET", "/static/%2e%2e%2fserver.py", 404, "not_found"),
        ("GET", "/static/home.html", 404, "not_found"),
        ("GET", "/ui/%2e%2e%2ffiles.py", 404, "not_found"),
        ("GET", "/ui/views%2fnow.js", 404, "not_found"),
        ("GET", "/v1/messages/none", 404, "not_found"),
        ("POST", "/v1/routes/none/pause", 404, "not_found"),
        ("POST", "/v1/routes/%FF/pause", 404, "not_found"),
        ("PUT", "/v1/messages", 405, "method_not_allowed"),
        ("GET", "/ticks", 405, "method_not_allowed"),
        ("POST", "/v1/messages/x", 405, "method_not_allowed"),
        ("HEAD", "/v1/events", 405, None),
        ("PUT", "/v1/messages/batch", 405, "method_not_allowed"),
        ("OPTIONS", "/nowhere", 404, "not_found"),
        ("TRACE", "/v1/stats", 405, "method_not_allowed"),
    ],
)
async def test_every_error_has_the_one_shape(
    client: httpx.AsyncClient, method: str, path: str, status: int, code: str | None
) -> None:
    url = client.base_url.copy_with(raw_path=path.encode())
    answer = await client.send(client.build_request(method, url))
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/json"
    if status == 405:
        assert method not in answer.headers["allow"].split(", ")
    if code is not None:
        error = answer.json()["error"]
        assert set(error) == {"code", "message", "field"}
        assert error["code"] == code


async def test_a_fault_of_ours_says_nothing_of_the_inside(
    running: Running, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: object) -> None:
        raise RuntimeError("a secret detail")

    running.probe.figures = broken  # type: ignore[attr-defined]
    answer = await client.get("/v1/stats")
    assert answer.status_code == 500
    assert answer.json()["error"]["code"] == "internal"
    assert "secret" not in answer.text
    assert "a secret detail" in caplog.text
    assert "GET /v1/stats failed with an unexpected error" in caplog.text


async def test_a_store_that_is_away_is_503_with_a_time_to_come_again(
    running: Running, client: httpx.AsyncClient
) -> None:
    async def away(*_: object) -> None:
        raise StoreUnavailable("the disk is full")

    running.probe.get = away  # type: ignore[attr-defined]
    running.probe.check = away  # type: ignore[attr-defined]
    answer = await client.get("/v1/messages/a")
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    assert answer.json()["error"]["code"] == "store_unavailable"
    ready = await client.get("/readyz")
    assert (ready.status_code, ready.json()["error"]) == (503, "the disk is full")
    assert (await client.get("/healthz")).status_code == 200


async def test_head_is_get_without_the_body(client: httpx.AsyncClient) -> None:
    for path in ("/healthz", "/", "/openapi.json", "/nowhere"):
        got, headed = await client.get(path), await client.head(path)
        assert headed.status_code == got.status_code
        assert headed.headers["content-type"] == got.headers["content-type"]
        assert headed.content == b""


async def test_options_tells_what_may_be_asked(client: httpx.AsyncClient) -> None:
    answer = await client.options("/v1/messages/x")
    assert answer.status_code == 204
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH"
