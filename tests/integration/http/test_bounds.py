"""What a caller can make the server hold or do is bounded, whoever it is."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import TypeAlias

import pytest

from penstock.api.http.connection import LINGER
from penstock.api.http.context import SMALL_BODY, VISITOR_BODY
from penstock.api.http.visitors import TICKET_STREAMS
from tests.integration.http.conftest import FAR, Running, Serve, put
from tests.integration.http.segments import reads_counted
from tests.integration.http.test_hot import HOST, TYPE, chunked, exchange, hot, with_query

Way: TypeAlias = Callable[[bytes, bytes, bytes], bytes]
ADMIN = {"authorization": "Bearer a-secret-of-sixteen"}
BEARER = b"authorization: Bearer a-secret-of-sixteen\r\n"
TOKENS = {"tokens": ["a-secret-of-sixteen"]}
LONG = b"a" * 3_000
VERY_LONG = b"a" * 1_000_000
MAX_ERROR = 1_500
"""Bytes of an error's body."""


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (b"/v1/messages", b'{"' + VERY_LONG + b'":1}'),
        (b"/v1/messages", b'{"on_conflict":"' + VERY_LONG + b'"}'),
        (b"/v1/messages", b'{"route":"' + VERY_LONG + b'"}'),
        (b"/v1/messages", b'{"labels":{"' + VERY_LONG + b'":"x"}}'),
        (b"/v1/messages", b'{"labels":{"tz":"' + VERY_LONG + b'"}}'),
        (b"/v1/messages", b'{"headers":{"' + VERY_LONG + b'":"x"}}'),
        (b"/v1/messages", b'{"at":"' + VERY_LONG + b'"}'),
        (b"/v1/messages", b'{"delay":"' + VERY_LONG + b'"}'),
        (b"/v1/messages", b'{"x` - at `$' + b".a" * 400_000 + b'":1}'),
        (b"/v1/messages/batch", b'[{"' + VERY_LONG + b'":1},{"on_conflict":"' + VERY_LONG + b'"}]'),
        (b"/v1/messages/cancel", b'{"filter":{"' + LONG + b'":"x"}}'),
        (b"/v1/messages/cancel", b'{"filter":{"state":"' + LONG + b'"}}'),
        (b"/v1/decisions", b'{"' + VERY_LONG + b'":1}'),
        (b"/v1/rooms/sale/join", b'{"' + LONG + b'":1,"user":"x"}'),
        (b"/v1/rooms/sale/join", b'{"user":"x","lane":"' + LONG + b'"}'),
        (b"/v1/rooms/sale/heartbeat", b'{"' + LONG + b'":1,"user":"x"}'),
        (b"/ticks", b'{"item":"x","at":"' + LONG + b'"}'),
    ],
)
async def test_an_error_does_not_repeat_what_is_long(
    running: Running, path: bytes, body: bytes
) -> None:
    for way in (hot, chunked, with_query):
        answer = await exchange(running, way(path, HOST + TYPE, body))
        assert answer.startswith((b"HTTP/1.1 4", b"HTTP/1.1 207")), answer[:200]
        told = answer.partition(b"\r\n\r\n")[2]
        assert len(told) < MAX_ERROR * (2 if path.endswith(b"batch") else 1)
        json.loads(told)


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        (b"/v1/rooms/sale/join", VISITOR_BODY),
        (b"/v1/rooms/sale/heartbeat", VISITOR_BODY),
        (b"/v1/rooms/sale/enter", VISITOR_BODY),
        (b"/ticks", SMALL_BODY),
        (b"/v1/messages/cancel", SMALL_BODY),
        (b"/v1/dead/redrive", SMALL_BODY),
    ],
)
async def test_a_body_without_a_payload_is_small(running: Running, path: bytes, limit: int) -> None:
    for way in (hot, chunked, with_query):
        answer = await exchange(running, way(path, HOST + TYPE, b" " * (limit + 1)))
        assert answer.startswith(b"HTTP/1.1 413 ")
        answer = await exchange(running, way(path, HOST + TYPE, b" " * limit))
        assert not answer.startswith(b"HTTP/1.1 413 ")


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/messages/cancel",
        b"/v1/messages/batch",
        b"/v1/rooms/sale/join",
        b"/v1/rooms/sale/heartbeat",
        b"/v1/rooms/sale/enter",
    ],
)
async def test_a_stranger_is_refused_before_the_body_is_read(serve: Serve, path: bytes) -> None:
    async with serve(api=TOKENS) as running:
        head = b"POST %b HTTP/1.1\r\n" % path + HOST + TYPE + b"content-length: 4000\r\n\r\n{"
        assert (await exchange(running, head)).startswith(b"HTTP/1.1 401 ")


async def test_what_a_stranger_sends_to_the_hot_way_is_not_kept(serve: Serve) -> None:
    async with serve(api=TOKENS) as running:
        _reader, writer = await running.connect()
        writer.write(hot(b"/v1/messages", HOST + TYPE, b"x" * 1_000_000)[:-1])
        await writer.drain()
        assert (await exchange(running, b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n"))[
            9:12
        ] == b"200"
        assert running.server.api.receiving.held == 0
        writer.close()


@pytest.mark.parametrize("way", [hot, chunked, with_query])
async def test_bodies_that_arrive_are_bounded_together(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, way: Way
) -> None:
    """A second large body is answered 429 while the first one holds most of what there may be."""
    limits = {"max_body": 100_000, "max_receiving": 100_000}
    async with serve(api=limits) as running:
        receiving = running.server.api.receiving
        body = b'{"at":"%b","payload":"' % FAR.encode() + b"x" * 70_000 + b'"}'
        first = hot(b"/v1/messages", HOST + TYPE, body)
        reader, writer = await running.connect()
        writer.write(first[:-10_000])
        await _until(lambda: receiving.held > 50_000)
        second = way(b"/v1/messages", HOST + TYPE, body)
        late, late_writer = await running.connect()
        with reads_counted(monkeypatch) as reads:
            late_writer.write(second[:60_000])
            await reads.reach(60_000)
            late_writer.write(second[60_000:])
            answer = await asyncio.wait_for(late.readuntil(b"\r\n\r\n"), 300)
        late_writer.close()
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1" in answer
        writer.write(first[-10_000:])
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 300)
        assert head.startswith(b"HTTP/1.1 201 ")
        writer.close()
        await _until(lambda: receiving.held == 0)


async def test_a_client_that_leaves_holds_nothing(running: Running) -> None:
    receiving = running.server.api.receiving
    for path in (b"/v1/messages", b"/v1/messages/cancel", b"/v1/messages/batch"):
        _reader, writer = await running.connect()
        writer.write(hot(path, HOST + TYPE, b"[" + b" " * 10_000)[:-1_000])
        await writer.drain()
        if path == b"/v1/messages":
            await _until(lambda: receiving.held > 0)
        writer.close()
        await _until(lambda: receiving.held == 0)


async def _until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(300):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0.005)


async def test_a_connection_too_many_is_told_so(serve: Serve) -> None:
    async with serve(api={"max_connections": 3}) as running:
        open_ones = [await running.connect() for _ in range(3)]
        for reader, writer in open_ones:
            writer.write(b"GET /healthz HTTP/1.1\r\n" + HOST + b"\r\n")
            await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 300)
        answer = await running.send(hot(b"/v1/messages", HOST + TYPE, b"{}"))
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in answer
        assert b"connection: close\r\n" in answer
        assert await running.send(b"") == b""  # one that says nothing is closed
        for _reader, writer in open_ones:
            writer.close()
        await _until(lambda: not running.server._server.server_state.connections)
        async with running.client() as client:
            assert (await put(client)).status_code == 201


async def test_wrong_tickets_are_soon_refused(serve: Serve) -> None:
    async with serve(api=TOKENS) as running, running.client() as client:
        await client.put("/v1/rooms/sale", json={"public": True, "capacity": 0}, headers=ADMIN)
        joined = (await client.post("/v1/rooms/sale/join", json={"user": "u1"})).json()
        path, own = "/v1/rooms/sale/tickets/u1", {"x-ticket": joined["ticket"]}
        assert (await client.get(path)).status_code == 401
        assert (await client.get(path, headers=own)).status_code == 200
        statuses = [
            (await client.get(path, headers={"x-ticket": "wrong"})).status_code for _ in range(200)
        ]
        assert statuses[0] == 401
        assert 429 in statuses


async def test_one_ticket_has_a_few_streams(serve: Serve) -> None:
    async with serve(api=TOKENS) as running, running.client() as client:
        await client.put("/v1/rooms/sale", json={"public": True, "capacity": 0}, headers=ADMIN)
        joined = (await client.post("/v1/rooms/sale/join", json={"user": "u1"})).json()
        path, own = "/v1/rooms/sale/tickets/u1/events", {"x-ticket": joined["ticket"]}
        reading = []
        async with AsyncExitStack() as stack:
            for _ in range(TICKET_STREAMS):
                stream = await stack.enter_async_context(client.stream("GET", path, headers=own))
                assert stream.status_code == 200
                reading.append(stream.aiter_lines())  # kept: it closes the stream when it goes
                assert await anext(reading[-1]) == "event: ticket"
            refused = await client.get(path, headers=own)
            assert refused.status_code == 429
            assert refused.headers["retry-after"] == "5"


async def test_visitors_behind_a_trusted_proxy_have_budgets_of_their_own(serve: Serve) -> None:
    api = {**TOKENS, "trusted_proxies": ["127.0.0.1"]}
    async with serve(api=api, rooms={"joins_per_client": 1}) as running, running.client() as client:
        await client.put("/v1/rooms/sale", json={"public": True, "capacity": 0}, headers=ADMIN)

        async def join(user: str, address: str) -> int:
            headers = {"x-forwarded-for": f"1.1.1.1, {address}"}
            path = "/v1/rooms/sale/join"
            return (await client.post(path, json={"user": user}, headers=headers)).status_code

        greedy = [await join(f"g{number}", "203.0.113.9") for number in range(40)]
        assert greedy[:3] == [200, 200, 200]
        assert 429 in greedy
        others = [await join(f"o{number}", f"203.0.113.{number + 10}") for number in range(10)]
        assert others == [200] * 10
        neighbours = [await join(f"n{number}", f"2001:db8::{number}") for number in range(40)]
        assert 429 in neighbours


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
@pytest.mark.parametrize("path", [b"/v1/messages/cancel", b"/v1/messages/batch", b"/v1/nowhere"])
async def test_a_refusal_reaches_a_client_that_is_still_sending(
    serve: Serve, version: bytes, path: bytes
) -> None:
    """The connection is to close, and is not reset under an answer that nobody has read yet."""
    async with serve(api=TOKENS) as running:
        reader, writer = await running.connect()
        closing = HOST + TYPE + b"connection: close\r\n"
        request = hot(path, closing, b" " * 4_000_000).replace(b"HTTP/1.1", b"HTTP/" + version, 1)
        writer.write(request[:1_000])
        await _until(lambda: running.server._server.server_state.total_requests > 0)
        writer.write(request[1_000:])
        await writer.drain()
        answer = await asyncio.wait_for(reader.read(), 300)
        writer.close()
        assert answer.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 404 "))
        assert answer.endswith(b"}")


async def test_a_long_answer_is_not_cut_because_its_connection_closes(serve: Serve) -> None:
    """The client reads late: what is still to be sent is not given up with the request."""
    async with serve() as running:
        async with running.client() as client:
            for number in range(30):
                await put(client, id=f"m{number}", payload="x" * 250_000)
        state = running.server._server.server_state
        answered = state.total_requests
        reader, writer = await running.connect()
        offer = b"upgrade: h2c\r\nconnection: upgrade\r\n"
        writer.write(b"GET /v1/messages HTTP/1.1\r\n" + offer + HOST + b"\r\n")
        await _until(lambda: state.total_requests > answered)
        later = asyncio.get_running_loop().time() + LINGER + 1
        for connection in running.server._server._connections():
            connection.look_after(later)
        answer = await asyncio.wait_for(reader.read(), 60)
        writer.close()
        length = int(answer.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        assert len(answer.partition(b"\r\n\r\n")[2]) == length
