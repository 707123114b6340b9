"""A running `penstock serve` under simulated traffic, and the dashboard in a browser before it."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeAlias

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Page, expect

from penstock.sim.receiver import Receiver
from penstock.sim.replies import Reply
from penstock.sim.requests import Received
from tests.browser.conftest import OpenPage
from tests.servers.penstock import run_penstock

XSS = "<img src=x onerror='window.hacked=1'><script>window.hacked=1</script>"
TOKENS = {scope: f"{scope}-secret" for scope in ("read", "write", "admin")}
CONFIG = """
store = "sqlite:///penstock.db"
[api]
http = "127.0.0.1:@PORT@"
tokens = [
  {name = "eyes", secret = "read-secret", scope = "read"},
  {name = "hands", secret = "write-secret", scope = "write"},
  {name = "head", secret = "admin-secret", scope = "admin"},
]
[routes.steady]
sink = "@RECEIVER@/ok"
[routes.gone]
sink = "@RECEIVER@/gone"
[routes.quiet]
sink = "@RECEIVER@/ok"
[policies.one-a-day]
kind = "cap"
scope = ["key"]
limit = 1
window = "24h"
on_exceed = "DEFER"
applies_to = {class = ["promotional"]}
"""


class Shop(Receiver):
    """Takes everything but what comes to /gone, which it refuses for good until it is mended."""

    mended = False

    async def take(self, request: Received) -> Reply:
        await super().take(request)
        if request.path == "/gone" and not self.mended:
            return Reply(status=410, body=f"gone {XSS}")
        return Reply()


class World:
    """The server, seen by an administrator's program."""

    def __init__(self, url: str, http: httpx.AsyncClient, shop: Shop) -> None:
        self.url = url
        self.shop = shop
        self._http = http
        self._names = itertools.count()

    async def ask(self, method: str, path: str, body: object = None) -> dict[str, Any]:
        answer = await self._http.request(method, path, json=body)
        answer.raise_for_status()
        found: dict[str, Any] = answer.json()
        return found

    async def schedule(self, **fields: object) -> str:
        """A message an hour ahead, unless said otherwise; its id."""
        when = {} if "at" in fields else {"delay": "1h"}
        given = {"id": f"m-{next(self._names)}", "route": "quiet", **when, **fields}
        return str((await self.ask("POST", "/v1/messages", given))["id"])

    async def state(self, message_id: str) -> str:
        return str((await self.ask("GET", f"/v1/messages/{message_id}"))["state"])

    async def is_gone(self, message_id: str) -> bool:
        return (await self._http.get(f"/v1/messages/{message_id}")).status_code == 404

    async def becomes(self, message_id: str, state: str) -> None:
        async with asyncio.timeout(300):
            while await self.state(message_id) != state:  # noqa: ASYNC110 - it is another process
                await asyncio.sleep(0.05)

    async def traffic(self) -> None:
        """Some messages every tenth of a second, until cancelled."""
        while True:
            labels = {"class": "promotional"}
            batch = [
                {"route": "steady", "payload": 1, "delay": 0.2, "key": f"k{i}"} for i in (1, 2)
            ]
            batch.append({"route": "steady", "payload": 1, "key": "same", "labels": labels})
            with contextlib.suppress(httpx.HTTPStatusError):
                await self.ask("POST", "/v1/messages/batch", batch)
            await asyncio.sleep(0.1)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    shop = Shop()
    config = CONFIG.replace("@RECEIVER@", shop.url)
    headers = {"authorization": f"Bearer {TOKENS['admin']}"}
    async with (
        shop,
        run_penstock(tmp_path_factory.mktemp("dashboard"), config) as process,
        httpx.AsyncClient(base_url=process.url, headers=headers, timeout=300) as http,
    ):
        world = World(process.url, http, shop)
        traffic = asyncio.create_task(world.traffic())
        yield world
        traffic.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await traffic


OpenDashboard: TypeAlias = Callable[..., Awaitable[Page]]
"""(view, scope of the token or None, options of the browser's context) → the page, live."""


@pytest_asyncio.fixture(loop_scope="session")
async def dashboard(world: World, open_page: OpenPage) -> OpenDashboard:
    async def opened(view: str = "now", scope: str | None = "admin", **options: Any) -> Page:
        page = await open_page(**options)
        if scope is not None:
            secret = json.dumps(TOKENS[scope])
            await page.add_init_script(f"sessionStorage.setItem('penstock-token', {secret})")
        await page.goto(f"{world.url}/#/{view}")
        if scope is not None:
            await expect(page.locator("#link-text")).to_have_text("live")
        return page

    return opened
