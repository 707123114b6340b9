"""A real gRPC server on a free port, in the test's own loop, on a store in memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import grpc
import pytest

from penstock.api.grpc.server import GrpcServer
from penstock.settings import ApiSettings, Settings
from penstock.v1.scheduler_pb2_grpc import SchedulerStub
from penstock.wiring import Parts, open_parts, open_store
from tests.integration.store_probe import StoreProbe

OWN = ("shutdown", "max_in_flight", "beside")
"""Options of the server itself; the others are settings."""


@dataclass(frozen=True)
class Running:
    """A server under test, and a channel to it."""

    server: GrpcServer
    parts: Parts
    probe: StoreProbe
    channel: grpc.aio.Channel

    @property
    def stub(self) -> Any:
        """The stub protoc makes; it has no types."""
        return SchedulerStub(self.channel)


@asynccontextmanager
async def _serve(
    *, api: dict[str, Any] | None = None, insecure: bool = False, **options: Any
) -> AsyncIterator[Running]:
    own = {name: options.pop(name) for name in OWN if name in options}
    listening = ApiSettings.model_validate({"grpc": "127.0.0.1:0", **(api or {})})
    tree = Settings(**{"store": "sqlite://", "api": listening, **options})
    async with AsyncExitStack() as stack:
        store = await open_store(tree)
        stack.push_async_callback(store.close)
        probe = StoreProbe(store.messages)
        parts = await stack.enter_async_context(
            open_parts(tree, store=replace(store, messages=probe))
        )
        server = await stack.enter_async_context(GrpcServer(parts, insecure=insecure, **own))
        channel = grpc.aio.insecure_channel(server.address)
        await stack.enter_async_context(channel)
        yield Running(server, parts, probe, channel)


@pytest.fixture
def serve() -> Callable[..., AbstractAsyncContextManager[Running]]:
    return _serve


@pytest.fixture
async def running() -> AsyncIterator[Running]:
    async with _serve() as running:
        yield running
