"""What other programs make of requests: a JDK's own client, and proxies that reuse connections."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.integration.http.conftest import FAR, Running
from tests.integration.http.test_upgrade import HIDDEN, in_chunks, with_length
from tests.servers.proxies import HAProxy, Nginx, ReverseProxy

pytestmark = pytest.mark.slow

CLIENT = Path(__file__).with_name("JdkClient.java")
OFFER = b"host: 127.0.0.1\r\nconnection: upgrade\r\nupgrade: %b\r\n"
PATIENCE = 300.0


async def run_jdk_client(url: str) -> list[str]:
    process = await asyncio.create_subprocess_exec(
        "java", "-XX:TieredStopAtLevel=1", str(CLIENT), url, stdout=asyncio.subprocess.PIPE
    )
    said, _ = await asyncio.wait_for(process.communicate(), 10 * PATIENCE)
    assert process.returncode == 0
    return said.decode().splitlines()


JDK_ANSWERS = [
    "HTTP_1_1 201 1",
    "HTTP_1_1 201 1",
    "HTTP_1_1 200 3000",
    "HTTP_1_1 200 1",
    "HTTP_1_1 202 1",
    "HTTP_1_1 200 1",
    "HTTP_1_1 404 1",
    "HTTP_1_1 200 1",
    "HTTP_1_1 200 1",
]


async def open_room(running: Running) -> None:
    async with running.client() as client:
        await client.put("/v1/rooms/sale", json={"capacity": 0})


async def test_a_stock_jdk_client_is_served_whole(running: Running) -> None:
    await open_room(running)
    assert await run_jdk_client(running.server.url) == JDK_ANSWERS


@pytest.fixture(params=[Nginx, HAProxy], ids=["nginx", "haproxy"])
async def proxy(
    request: pytest.FixtureRequest, running: Running, tmp_path: Path
) -> AsyncIterator[ReverseProxy]:
    server: ReverseProxy = request.param(tmp_path / "proxy", running.server.address)
    await asyncio.to_thread(server.start)
    yield server
    await asyncio.to_thread(server.stop)


async def test_a_stock_jdk_client_is_served_whole_through_a_proxy(
    running: Running, proxy: ReverseProxy
) -> None:
    await open_room(running)
    assert await run_jdk_client(proxy.url) == JDK_ANSWERS


@pytest.mark.parametrize("way", [with_length, in_chunks])
async def test_a_request_inside_a_body_does_not_pass_a_proxy(
    proxy: ReverseProxy, way: object
) -> None:
    """Each of many requests over reused connections gets its own answer and no other."""
    assert callable(way)
    for number in range(20):
        offer = OFFER % (b"foo", b"h2c", b"websocket")[number % 3]
        head, rest = way(b"/healthz", b"application/json", HIDDEN, offer)
        first = await ask(proxy, head.replace(b"POST", b"GET", 1) + rest)
        assert b'"status"' in first or first.startswith(b"HTTP/1.1 40"), first
        assert b"scheduled" not in first
        body = b'{"id":"m%d","at":"%b"}' % (number, FAR.encode())
        head, rest = way(b"/v1/messages", b"application/json", body, OFFER % b"h2c")
        second = await ask(proxy, head + rest)
        assert second.startswith(b"HTTP/1.1 201 ")
        assert b'{"id":"m%d"' % number in second
        plain = b"GET /v1/messages/m%d HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n" % number
        third = await ask(proxy, plain)
        assert b'{"id":"m%d"' % number in third


async def ask(proxy: ReverseProxy, request: bytes) -> bytes:
    """The one answer to a request on a connection of its own."""
    reader, writer = await asyncio.open_connection(*proxy.address)
    writer.write(request)
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), PATIENCE)
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    body = b""
    if length is not None:
        body = await asyncio.wait_for(reader.readexactly(int(length[1])), PATIENCE)
    writer.close()
    return head + body
