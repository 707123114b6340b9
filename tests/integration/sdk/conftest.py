"""The verbs three ways: the engine itself, and both clients against a real server over it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, cast

import pytest

import penstock
from penstock.api.http.server import HttpServer
from penstock.sdk.async_client import AsyncClient
from penstock.sdk.embedded import engine_over
from penstock.settings import given
from penstock.wiring import Parts, open_parts

TOKEN = "a-token"


class Threaded:
    """The synchronous client with every call in a thread, so that one test serves all three."""

    def __init__(self, client: penstock.Client) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        verb = getattr(self._client, name)

        async def call(*args: Any, **fields: Any) -> Any:
            return await asyncio.to_thread(verb, *args, **fields)

        return call


@pytest.fixture
async def parts() -> AsyncIterator[Parts]:
    settings = given(
        store="sqlite://",
        api={"http": "127.0.0.1:0", "tokens": [TOKEN]},
        routes={"push": {"sink": "log://"}},
        limits={"max_payload": 10_000},
    )
    async with open_parts(settings) as opened:
        yield opened


@pytest.fixture
async def url(parts: Parts) -> AsyncIterator[str]:
    async with HttpServer(parts) as server:
        yield server.url


@pytest.fixture(params=["engine", "async client", "client"])
async def verbs(request: pytest.FixtureRequest, parts: Parts) -> AsyncIterator[AsyncClient]:
    """Typed as one of the three; that all have the same verbs is tested apart."""
    async with AsyncExitStack() as stack:
        if request.param == "engine":
            yield cast("AsyncClient", await stack.enter_async_context(engine_over(parts, {})))
            return
        server = await stack.enter_async_context(HttpServer(parts))
        if request.param == "async client":
            yield await stack.enter_async_context(AsyncClient(server.url, token=TOKEN))
            return
        with penstock.Client(server.url, token=TOKEN) as client:
            yield cast("AsyncClient", Threaded(client))
