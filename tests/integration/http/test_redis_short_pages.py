"""A page of a list is full where a bounded search can fill it, and says why it is not."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from penstock.flow import control
from penstock.stores.redis.search import search, sources
from systems.servers.redis import RedisServer
from tests.integration.http.conftest import FAR, Serve

MESSAGES, WANTED = 4_000, 20


async def put_many(client: httpx.AsyncClient) -> None:
    """A few messages of one key among many of others, in order of due."""
    step = MESSAGES // WANTED
    start = time.time() + 60  # not due yet, and in the lanes already
    messages = [
        {
            "id": f"m{n:04}",
            "key": "wanted" if n % step == step - 1 else f"k{n}",
            "at": datetime.fromtimestamp(start + n / 1000, UTC).isoformat(),
        }
        for n in range(MESSAGES)
    ]
    answer = await client.post("/v1/messages/batch", json=messages)
    assert answer.status_code == 200


async def pages(client: httpx.AsyncClient) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    while True:
        query = {"key": "wanted", "limit": "100", **cursor}
        found.append((await client.get("/v1/messages", params=query)).json())
        if found[-1]["next"] is None:
            return found
        cursor = {"cursor": found[-1]["next"]}


@pytest.fixture
def little_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """One search looks at few records, as it would at thousands of a large store."""
    monkeypatch.setattr(search, "BUDGET", 60)
    monkeypatch.setattr(sources, "FILTERED", 60)


@pytest.mark.usefixtures("little_work")
async def test_a_page_is_filled_by_several_searches(serve: Serve, redis: RedisServer) -> None:
    async with serve(store=redis.url) as running, running.client() as client:
        await put_many(client)
        (page,) = await pages(client)
    assert len(page["items"]) == WANTED
    assert "short" not in page
    ids = [item["id"] for item in page["items"]]
    assert ids == sorted(ids)


@pytest.mark.usefixtures("little_work")
async def test_a_page_that_is_short_for_its_work_says_so_and_leads_on(
    serve: Serve, redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(control, "LOOKS", 1)
    async with serve(store=redis.url) as running, running.client() as client:
        await put_many(client)
        *before, last = await pages(client)
    assert before
    assert all(page["short"] == "work" for page in before)
    assert "short" not in last
    assert sum(len(page["items"]) for page in (*before, last)) == WANTED


async def test_a_page_that_is_short_for_its_size_says_so(serve: Serve) -> None:
    async with serve() as running, running.client() as client:
        for number in range(25):
            message = {"id": f"m{number}", "at": FAR, "payload": "x" * 200_000}
            assert (await client.post("/v1/messages", json=message)).status_code == 201
        page = (await client.get("/v1/messages")).json()
        rest = (await client.get("/v1/messages", params={"cursor": page["next"]})).json()
    assert page["short"] == "size"
    assert (rest["next"], "short" in rest) == (None, False)
    assert len(page["items"]) + len(rest["items"]) == 25
