"""Bad and slow clients, the limits of a connection, and an orderly end."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

import httpx
import pytest

from penstock.api.http.listen import listen
from penstock.api.http.server import HttpServer
from penstock.model.errors import ConfigError
from penstock.settings import ApiSettings, Settings
from penstock.wiring import open_parts
from tests.integration.http.conftest import Running, Serve

HEAD = b"POST %b HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
QUICK = {"body_timeout": "100ms"}


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nbad header\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx: a\x00b\r\n\r\n",
        HEAD % b"/v1/messages" + b"content-length: 2\r\ncontent-length: 3\r\n\r\n{}",
        HEAD % b"/v1/messages" + b"content-length: -2\r\n\r\n{}",
        HEAD % b"/v1/messages" + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
        HEAD % b"/v1/messages" + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
        b"GET /\xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"CONNECT example.org:443 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
)
async def test_what_is_not_http_is_a_clear_error(running: Running, garbage: bytes) -> None:
    answer = await running.send(garbage)
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b'{"error":{"code":"malformed"' in answer


async def test_garbage_after_a_request_does_not_take_its_answer(running: Running) -> None:
    running.probe.gate.clear()
    reader, writer = await running.connect()
    body = b'{"id":"a"}'
    writer.write(HEAD % b"/v1/messages" + b"content-length: %d\r\n\r\n%b" % (len(body), body))
    await running.probe.called.wait()
    writer.write(b"\x00\x01\x02garbage\r\n\r\n")
    running.probe.gate.set()
    answer = await asyncio.wait_for(reader.read(), 300)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize(
    "start",
    [
        b"GET /v1/messages/" + b"x" * 1_000,
        b"GET / HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"x" * 1_000,
        b"GET / HTTP/1.1\r\nhost: localhost\r\n",
    ],
)
async def test_ten_megabytes_of_head_are_refused(running: Running, start: bytes) -> None:
    reader, writer = await running.connect()
    filling = b"x-more: " + b"y" * 1_000 + b"\r\n" if start.endswith(b"\r\n") else b"x" * 1_010
    writer.write(start)
    sent = 0
    try:
        while sent < 10_000_000:
            writer.write(filling * 100)
            await writer.drain()
            sent += 100_000
        answer = await asyncio.wait_for(reader.read(), 300)
    except ConnectionError:
        answer = b""  # it was cut while we still talked
    writer.close()
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    async with running.client() as client:
        assert (await client.get("/healthz")).status_code == 200


async def test_a_head_a_little_too_large_is_told_so(running: Running) -> None:
    reader, writer = await running.connect()
    writer.write(b"GET / HTTP/1.1\r\nhost: localhost\r\n")
    await writer.drain()
    await asyncio.sleep(0.05)
    writer.write(b"x-long: " + b"x" * 70_000)
    answer = await asyncio.wait_for(reader.read(), 300)
    writer.close()
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"code":"head_too_large"' in answer


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/messages/batch", b"/v1/messages/cancel"])
@pytest.mark.parametrize("length", [b"content-length: 500\r\n", b"transfer-encoding: chunked\r\n"])
async def test_a_body_that_stops_arriving_is_cut_with_408(
    serve: Serve, path: bytes, length: bytes
) -> None:
    async with serve(api=QUICK) as running:
        answer = await running.send(HEAD % path + length + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert b'{"error":{"code":"timeout"' in answer
        assert b"connection: close" in answer


async def test_a_head_that_stops_arriving_is_cut_with_408(serve: Serve) -> None:
    async with serve(api=QUICK) as running:
        answer = await running.send(b"GET / HTTP/1.1\r\nhost: lo")
        assert answer.startswith(b"HTTP/1.1 408 ")


async def test_a_body_that_only_drips_is_cut(serve: Serve) -> None:
    async with serve(api=QUICK) as running:
        reader, writer = await running.connect()
        writer.write(HEAD % b"/v1/messages" + b"content-length: 100000\r\n\r\n")
        answer = asyncio.create_task(reader.readline())  # what drips in after it resets the rest
        while not answer.done():
            writer.write(b" ")
            await asyncio.sleep(0.02)
        assert (await answer).startswith(b"HTTP/1.1 408 ")
        writer.close()


async def test_a_slow_store_is_not_the_clients_fault(serve: Serve) -> None:
    async with serve(api=QUICK) as running, running.client() as client:
        running.probe.gate.clear()
        call = asyncio.create_task(client.post("/v1/messages", json={"id": "a"}))
        batch = asyncio.create_task(client.post("/v1/messages/batch", json=[{"id": "b"}]))
        await asyncio.sleep(0.4)
        running.probe.gate.set()
        assert (await call).status_code == 201
        assert (await batch).status_code == 200


async def test_an_idle_connection_is_closed(serve: Serve) -> None:
    async with serve(api={"keep_alive": "100ms"}) as running:
        reader, writer = await running.connect()
        writer.write(b"GET /healthy HTTP/1.1\r\nhost: localhost\r\n\r\n")
        answer = await asyncio.wait_for(reader.read(), 300)  # until it is closed
        assert answer.endswith(b'{"status":"ok"}')
        writer.close()


async def test_a_truncated_body_is_no_message(running: Running) -> None:
    reader, writer = await running.connect()
    writer.write(HEAD % b"/v1/messages" + b'content-length: 100\r\n\r\n{"id":"half"}')
    writer.write_eof()
    await asyncio.wait_for(reader.read(), 300)
    writer.close()
    assert await running.parts.store.messages.find(["half"]) == [None]


async def test_a_client_that_asks_first_is_told_to_go_on(running: Running) -> None:
    reader, writer = await running.connect()
    writer.write(HEAD % b"/v1/messages" + b"content-length: 2\r\nexpect: 100-continue\r\n\r\n")
    assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
    writer.write(b"{}")
    assert (await reader.readuntil(b"\r\n")).startswith(b"HTTP/1.1 201 ")
    writer.close()


async def test_http_1_0_is_answered_and_closed(running: Running) -> None:
    head = b"POST /v1/messages HTTP/1.0\r\ncontent-type: application/json\r\n"
    answer = await running.send(head + b"content-length: 2\r\n\r\n{}")
    assert answer.startswith(b"HTTP/1.1 201 ")


@pytest.mark.parametrize("way", ["content-length", "chunked"])
async def test_a_body_too_large_is_refused(serve: Serve, way: str) -> None:
    async with serve(api={"max_body": 1024}) as running, running.client() as client:
        body = b'{"payload":"' + b"x" * 2_000_000 + b'"}'

        async def pieces() -> Any:
            for start in range(0, len(body), 65536):
                yield body[start : start + 65536]

        for path in ("/v1/messages", "/v1/messages/cancel", "/ticks"):
            content = body if way == "content-length" else pieces()
            answer = await client.post(
                path, content=content, headers={"content-type": "application/json"}
            )
            assert answer.status_code == 413
            assert answer.json()["error"]["code"] == "too_large"


async def test_what_was_acknowledged_before_the_end_is_kept(tmp_path: Any, serve: Serve) -> None:
    acknowledged: list[str] = []
    async with serve() as running:

        async def keep_sending(worker: int) -> None:
            async with running.client() as client:
                number = 0
                while True:
                    name = f"{worker}-{number}"
                    try:
                        answer = await client.post("/v1/messages", json={"id": name, "delay": 60})
                    except httpx.TransportError:
                        return
                    assert answer.status_code == 201
                    acknowledged.append(name)
                    number += 1

        senders = [asyncio.create_task(keep_sending(worker)) for worker in range(8)]
        while len(acknowledged) < 50:  # noqa: ASYNC110 - the senders run until they are cut
            await asyncio.sleep(0.001)
        running.server.stop()
        await asyncio.gather(*senders)
        found = await running.parts.store.messages.find(acknowledged)
        assert None not in found


async def test_requests_in_flight_are_answered_before_the_end(running: Running) -> None:
    running.probe.gate.clear()
    body = b'{"id":"a"}'
    request = HEAD % b"/v1/messages" + b"content-length: %d\r\n\r\n%b" % (len(body), body)
    hot = asyncio.create_task(running.send(request))
    async with running.client() as client:
        ordinary = asyncio.create_task(client.post("/v1/messages/batch", json=[{"id": "b"}]))
        while len(running.probe.puts) < 2:  # noqa: ASYNC110 - two calls, one event
            await asyncio.sleep(0.001)
        running.server.stop()
        await asyncio.sleep(0.05)
        running.probe.gate.set()
        assert (await hot).startswith(b"HTTP/1.1 201 ")
        assert (await ordinary).status_code == 200
    with pytest.raises(OSError):  # noqa: PT011 - refused or reset, as the kernel likes
        await running.send(request)


async def test_a_request_that_never_ends_does_not_hold_up_the_end(serve: Serve) -> None:
    async with serve(shutdown=100) as running:
        _, writer = await running.connect()
        writer.write(HEAD % b"/v1/messages" + b"content-length: 100\r\n\r\n{")
        _, other = await running.connect()
        other.write(HEAD % b"/v1/messages/batch" + b"content-length: 100\r\n\r\n[")
        await asyncio.sleep(0.05)
        running.server.stop()
    writer.close()
    other.close()


async def test_streams_end_with_the_server(running: Running) -> None:
    async with running.client() as client, client.stream("GET", "/v1/events") as stream:
        lines = stream.aiter_lines()
        assert await anext(lines) == "event: stats"
        running.server.stop()
        rest = [line async for line in lines]
    assert rest[0].startswith("data: {")


async def test_a_port_that_is_taken_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        settings = Settings(store="sqlite://", api=ApiSettings(http=address))
        async with open_parts(settings) as parts:
            with pytest.raises(ConfigError, match=f"{address} is taken.*PENSTOCK_API__HTTP"):
                HttpServer(parts).bind()


async def test_an_address_that_is_not_ours_is_a_clear_error() -> None:
    settings = Settings(store="sqlite://", api=ApiSettings(http="192.0.2.1:80"))
    async with open_parts(settings) as parts:
        with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1:80"):
            HttpServer(parts, insecure=True).bind()


async def test_ipv6_is_served_too(serve: Serve) -> None:
    async with serve(api={"http": "[::1]:0"}) as running, running.client() as client:
        assert running.server.url.startswith("http://[::1]:")
        assert (await client.get("/v1/stats")).status_code == 200


async def test_answers_are_sent_at_once_on_every_event_loop() -> None:
    accepted: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def look(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("socket")
        accepted.set_result(peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = listen("127.0.0.1", 0, "api.http")
    async with await asyncio.start_server(look, sock=listener) as server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        assert await accepted == 1
        writer.close()
