"""A port for Prometheus and health: what a process without an API serves."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from penstock.api.http.scrape import MAX_HEAD, ScrapeServer
from penstock.model.errors import ConfigError
from penstock.settings import given
from penstock.settings.ports import PortRange, port_range
from penstock.wiring import Parts, open_parts, open_worker

ANY = PortRange("127.0.0.1", 0, 0)


@asynccontextmanager
async def opened(**settings: Any) -> AsyncIterator[Parts]:
    async with open_parts(given(store="sqlite://", **settings), role="worker") as parts:
        yield parts


@asynccontextmanager
async def serving(where: PortRange = ANY, **settings: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with (
        opened(**settings) as parts,
        open_worker(parts) as worker,
        parts.fleet.joined(worker),
        ScrapeServer(where, "worker.metrics", parts, worker) as server,
        httpx.AsyncClient(base_url=server.url.removesuffix("/metrics"), timeout=300) as client,
    ):
        yield client


async def test_a_workers_metrics_are_served() -> None:
    async with serving() as client:
        answer = await client.get("/metrics")
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/plain; version=")
        assert 'penstock_capacity_messages{route="default"}' in answer.text


async def test_a_workers_health_is_served() -> None:
    async with serving() as client:
        assert (await client.get("/healthz")).json() == {"status": "ok"}
        ready = await client.get("/readyz")
        assert ready.status_code == 200
        parts = ready.json()["parts"]
        assert {name: part["status"] for name, part in parts.items()} == {
            "store": "ok",
            "worker": "ok",
            "sink.default": "ok",
        }
        assert parts["sink.default"]["facts"]["breaker_open"] is False


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/", 404), ("POST", "/metrics", 404), ("HEAD", "/metrics", 200)],
)
async def test_nothing_else_is_answered(method: str, path: str, status: int) -> None:
    async with serving() as client:
        answer = await client.request(method, path)
        assert answer.status_code == status
        assert status == 404 or not answer.content


async def test_with_tokens_metrics_need_one_and_health_does_not() -> None:
    tokens = [{"name": "p", "secret": "s3cret-token", "scope": "read"}]
    async with serving(api={"tokens": tokens}) as client:
        assert (await client.get("/metrics")).status_code == 401
        bearer = {"authorization": "Bearer s3cret-token"}
        assert (await client.get("/metrics", headers=bearer)).status_code == 200
        assert (await client.get("/healthz")).status_code == 200


async def test_another_name_of_this_machine_is_refused() -> None:
    async with serving() as client:
        answer = await client.get("/metrics", headers={"host": "evil.example"})
        assert answer.status_code == 403


@pytest.mark.parametrize("sent", [b"\0\0\r\n\r\n", b"GET\r\n\r\n", b"x" * (MAX_HEAD + 10)])
async def test_what_is_no_request_is_refused(sent: bytes) -> None:
    async with serving() as client:
        host, port = client.base_url.host, client.base_url.port
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(sent)
        assert (await reader.read()).startswith(b"HTTP/1.1 400")
        writer.close()


async def test_a_taken_port_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        async with opened() as parts:
            with pytest.raises(ConfigError, match=f"worker.metrics: 127.0.0.1:{port} is taken"):
                ScrapeServer(PortRange("127.0.0.1", port, port), "worker.metrics", parts)


async def test_of_a_range_the_first_free_port_is_taken() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        where = PortRange("127.0.0.1", port, min(port + 50, 65_535))
        async with serving(where) as client:
            assert client.base_url.port is not None
            assert port < client.base_url.port <= where.last


async def test_beyond_loopback_it_needs_tokens() -> None:
    async with opened() as parts:
        with pytest.raises(ConfigError, match=r"refusing to listen on 0\.0\.0\.0:0 without"):
            ScrapeServer(PortRange("0.0.0.0", 0, 0), "worker.metrics", parts)


@pytest.mark.parametrize("written", ["none", "0", "", "off", 0])
def test_it_can_be_turned_off(written: object) -> None:
    assert given(worker={"metrics": written}).worker.metrics is None


def test_a_range_is_written_as_it_is_read() -> None:
    for text in ("127.0.0.1:9101-9199", "127.0.0.1:9101", "[::1]:1-2"):
        assert str(port_range(text)) == text


@pytest.mark.parametrize("written", ["9101", "h:x", "h:9-8", "h:1-99999", ":5"])
def test_what_is_no_address_is_refused(written: str) -> None:
    with pytest.raises(ConfigError, match=r"worker\.metrics"):
        given(worker={"metrics": written})
