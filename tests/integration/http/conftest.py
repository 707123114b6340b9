"""A real server on a free port, in the test's own loop, on a store in memory."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol

import httpx
import pytest

from penstock.api.http.server import HttpServer
from penstock.api.verbs import Mount
from penstock.contrib import SYSTEMS, mounts
from penstock.settings import ApiSettings, Settings, given
from penstock.wiring import Parts, open_parts, open_rooms, open_store
from tests.integration.store_probe import StoreProbe

FAR = "2040-01-31T09:00:00Z"
MOUNTS = mounts(given(contrib=[*SYSTEMS]))
"""What every replaced system adds: these tests run with all of them."""


async def put(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    """A message that is not due for long."""
    return await client.post("/v1/messages", json={"at": FAR, **fields})


class Running:
    """A server under test."""

    def __init__(self, server: HttpServer, parts: Parts, probe: StoreProbe) -> None:
        self.server = server
        self.parts = parts
        self.probe = probe

    def client(self, **options: Any) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=self.server.url, timeout=300, **options)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(*self.server.address)

    async def send(self, *pieces: bytes) -> bytes:
        """Send raw bytes, then read until the server closes."""
        reader, writer = await self.connect()
        for piece in pieces:
            writer.write(piece)
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 300)
        writer.close()
        return answer


class Serve(Protocol):
    def __call__(
        self, *, api: dict[str, Any] | None = None, insecure: bool = False, **settings: Any
    ) -> AbstractAsyncContextManager[Running]: ...


@asynccontextmanager
async def _serve(
    *,
    api: dict[str, Any] | None = None,
    insecure: bool = False,
    shutdown: int | None = None,
    max_in_flight: int = 20_000,
    mounted: Iterable[Mount] = MOUNTS,
    **settings: Any,
) -> AsyncIterator[Running]:
    listening = ApiSettings.model_validate({"http": "127.0.0.1:0", **(api or {})})
    tree = Settings(**{"store": "sqlite://", "api": listening, **settings})
    async with AsyncExitStack() as stack:
        store = await open_store(tree)
        stack.push_async_callback(store.close)
        probe = StoreProbe(store.messages)
        parts = await stack.enter_async_context(
            open_parts(tree, store=replace(store, messages=probe))
        )
        rooms = await stack.enter_async_context(open_rooms(parts))
        server = HttpServer(
            parts,
            rooms=rooms,
            insecure=insecure,
            shutdown=shutdown,
            max_in_flight=max_in_flight,
            mounts=mounted,
        )
        await stack.enter_async_context(server)
        yield Running(server, parts, probe)


@pytest.fixture
def serve() -> Callable[..., AbstractAsyncContextManager[Running]]:
    return _serve


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with _serve() as running:
        yield running


@pytest.fixture
async def client(running: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with running.client() as client:
        yield client
