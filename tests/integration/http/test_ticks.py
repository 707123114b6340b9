"""Ticks as the tick service's own clients send them: `/tick`, no content type, chunked bodies."""

from __future__ import annotations

import asyncio
import json
import re

import pytest

from tests.integration.http.conftest import Running, Serve
from tests.integration.http.test_hot import HOST, TYPE, chunked, exchange, hot, with_query

TICK = {"item": "user1234", "at": "2040-02-28T14:16:00Z"}
BODY = json.dumps(TICK).encode()
WAYS = [hot, chunked, with_query]
ORIGINS = [b"http://evil.example", b"http://localhost", b"null", b""]


def made_id(answer: bytes) -> str:
    assert answer.startswith(b"HTTP/1.1 202 "), answer
    made: str = json.loads(answer.partition(b"\r\n\r\n")[2])["id"]
    return made


@pytest.mark.parametrize("path", [b"/ticks", b"/tick"])
@pytest.mark.parametrize("headers", [HOST, HOST + TYPE])
async def test_every_way_of_sending_a_tick_is_taken(
    serve: Serve, path: bytes, headers: bytes
) -> None:
    async with serve(routes={"ticks": {}}) as running, running.client() as client:
        for way in (*WAYS, hot):  # the last time its head is known
            made = made_id(await exchange(running, way(path, headers, BODY)))
            held = (await client.get(f"/v1/messages/{made}")).json()
            assert (held["route"], held["key"], held["payload"]) == ("ticks", TICK["item"], TICK)


@pytest.mark.parametrize("origin", ORIGINS)
@pytest.mark.parametrize("way", WAYS)
async def test_a_page_must_say_what_it_sends(running: Running, way: object, origin: bytes) -> None:
    assert callable(way)
    request = way(b"/tick", HOST + b"origin: %b\r\n" % origin, BODY)
    answer = await exchange(running, request)
    assert answer.startswith((b"HTTP/1.1 403 ", b"HTTP/1.1 415 ")), answer


@pytest.mark.parametrize("way", WAYS)
async def test_a_wrong_content_type_is_refused(running: Running, way: object) -> None:
    assert callable(way)
    request = way(b"/ticks", HOST + b"content-type: text/plain\r\n", BODY)
    assert (await exchange(running, request)).startswith(b"HTTP/1.1 415 ")


@pytest.mark.parametrize("way", WAYS)
async def test_other_paths_want_a_content_type(running: Running, way: object) -> None:
    assert callable(way)
    answer = await exchange(running, way(b"/v1/messages", HOST, b"{}"))
    assert answer.startswith(b"HTTP/1.1 415 ")


async def test_a_chunked_tick_may_come_in_many_pieces(running: Running) -> None:
    reader, writer = await running.connect()
    head = b"POST /tick HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n"
    for piece in (head, *(b"1\r\n%c\r\n" % byte for byte in BODY), b"0\r\nx: trailer\r\n", b"\r\n"):
        writer.write(piece)
        await writer.drain()
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    assert answer.startswith(b"HTTP/1.1 202 ")
    length = re.search(rb"content-length: (\d+)", answer)
    assert length is not None
    await reader.readexactly(int(length[1]))
    writer.write(hot(b"/tick", HOST, BODY))  # the connection goes on with the next request
    assert (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)).startswith(b"HTTP/1.1 202 ")
    writer.close()


async def test_a_chunked_body_without_an_end_is_answered_once_it_is_too_large(
    running: Running,
) -> None:
    reader, writer = await running.connect()
    writer.write(b"POST /tick HTTP/1.1\r\n" + HOST + b"transfer-encoding: chunked\r\n\r\n")
    for _ in range(5):
        writer.write(b"4000\r\n%b\r\n" % (b" " * 0x4000))
    answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 60)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert running.server.api.receiving.held == 0
    writer.close()


async def test_a_host_of_the_settings_is_answered_and_no_other(serve: Serve) -> None:
    async with serve(api={"hosts": ["scheduler", "Ticks.Internal"]}) as running:
        for name in (b"scheduler", b"SCHEDULER:8888", b"ticks.internal", b"127.0.0.1:1"):
            made_id(await exchange(running, hot(b"/tick", b"host: %b\r\n" % name, BODY)))
        for name in (b"evil.example", b"scheduler.evil.example"):
            answer = await exchange(running, hot(b"/tick", b"host: %b\r\n" % name, BODY))
            assert answer.startswith(b"HTTP/1.1 403 ")
            assert b"api.hosts" in answer
