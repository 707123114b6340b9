"""A request that offers another protocol is the plain request it also is, and the last one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import TypeAlias

import pytest

from penstock.api.http.hot import HotRoutes
from tests.integration.http.conftest import FAR, Running, Serve
from tests.integration.http.segments import reads_counted, send_pieces, undated

OFFER = (
    b"connection: Upgrade, HTTP2-Settings\r\n"
    b"host: localhost\r\n"
    b"http2-settings: AAEAAEAAAAIAAAABAAMAAABkAAQBAAAAAAUAAEAA\r\n"
    b"upgrade: h2c\r\n"
)
"""What a JDK's HttpClient says on a plain connection."""
LINES = b"".join(b'{"id":"line%d","at":"%b"}\n' % (n, FAR.encode()) for n in range(2))
BODIES: dict[bytes, tuple[bytes, bytes, bytes]] = {
    # path → content type, body, what the answer begins with
    b"/v1/messages": (
        b"application/json",
        b'{"id":"one","at":"%b"}' % FAR.encode(),
        b"HTTP/1.1 201 ",
    ),
    b"/v1/messages/batch": (b"application/x-ndjson", LINES, b"HTTP/1.1 200 "),
    b"/ticks": (b"application/json", b'{"item":"u","at":"%b"}' % FAR.encode(), b"HTTP/1.1 202 "),
    b"/v1/rooms/sale/join": (b"application/json", b'{"user":"ann"}', b"HTTP/1.1 200 "),
}
HIDDEN = b"GET /v1/stats HTTP/1.1\r\nhost: localhost\r\n\r\n"
"""A body that is itself a request."""


Way: TypeAlias = Callable[..., tuple[bytes, bytes]]


def with_length(path: bytes, kind: bytes, body: bytes, offer: bytes = OFFER) -> tuple[bytes, bytes]:
    head = b"POST %b HTTP/1.1\r\n%bcontent-type: %b\r\ncontent-length: %d\r\n\r\n"
    return head % (path, offer, kind, len(body)), body


def in_chunks(path: bytes, kind: bytes, body: bytes, offer: bytes = OFFER) -> tuple[bytes, bytes]:
    head = b"POST %b HTTP/1.1\r\n%bcontent-type: %b\r\ntransfer-encoding: chunked\r\n\r\n"
    half = len(body) // 2
    chunks = [b"%x\r\n%b\r\n" % (len(each), each) for each in (body[:half], body[half:])]
    return head % (path, offer, kind), b"".join(chunks) + b"0\r\n\r\n"


def answered(answer: bytes) -> int:
    return len(re.findall(rb"HTTP/1\.1 \d{3} ", answer))


@pytest.fixture
async def open_room(running: Running) -> None:
    async with running.client() as client:
        await client.put("/v1/rooms/sale", json={"capacity": 0})


@pytest.mark.parametrize("path", BODIES)
@pytest.mark.parametrize("way", [with_length, in_chunks])
@pytest.mark.parametrize("segments", [1, 2])
@pytest.mark.usefixtures("open_room")
async def test_a_body_behind_an_upgrade_is_read_whole(
    running: Running, monkeypatch: pytest.MonkeyPatch, path: bytes, way: Way, segments: int
) -> None:
    kind, body, status = BODIES[path]
    head, rest = way(path, kind, body)
    with reads_counted(monkeypatch) as reads:
        pieces = (head + rest,) if segments == 1 else (head, rest)
        answer = await send_pieces(running, reads, *pieces)
    assert answer.startswith(status)
    assert b"\r\nconnection: close\r\n" in answer
    assert answered(answer) == 1


async def test_both_lines_of_a_batch_behind_an_upgrade_are_stored(running: Running) -> None:
    kind, body, _ = BODIES[b"/v1/messages/batch"]
    answer = await running.send(b"".join(with_length(b"/v1/messages/batch", kind, body)))
    told = [json.loads(line) for line in answer.partition(b"\r\n\r\n")[2].splitlines()]
    assert [each["id"] for each in told] == ["line0", "line1"]
    async with running.client() as client:
        assert (await client.get("/v1/messages/line1")).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("way", [with_length, in_chunks])
@pytest.mark.parametrize("hot", [True, False], ids=["hot", "ordinary"])
async def test_wherever_a_request_is_cut_its_answer_is_the_same(
    running: Running, monkeypatch: pytest.MonkeyPatch, way: Way, hot: bool
) -> None:
    """With the offer and without it, in two pieces cut at every byte."""
    if not hot:
        monkeypatch.setattr(HotRoutes, "find", lambda *_: None)
    kind, body, _ = BODIES[b"/v1/messages"]
    await running.send(b"".join(with_length(b"/v1/messages", kind, body)))  # a duplicate from now
    plain = b"host: localhost\r\nconnection: close\r\n"
    answers = set()
    with reads_counted(monkeypatch) as reads:
        for offer in (OFFER, plain):
            request = b"".join(way(b"/v1/messages", kind, body, offer))
            for at in range(1, len(request)):
                answers.add(undated(await send_pieces(running, reads, request[:at], request[at:])))
    (answer,) = answers
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"connection: close" in answer


@pytest.mark.parametrize("method", [b"GET", b"POST"])
@pytest.mark.parametrize("path", [b"/healthz", b"/v1/messages", b"/v1/messages/batch", b"/nowhere"])
@pytest.mark.parametrize("way", [with_length, in_chunks])
@pytest.mark.parametrize("offer", [b"foo", b"h2c", b"websocket"])
async def test_a_body_is_never_read_as_a_request(
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    method: bytes,
    path: bytes,
    way: Way,
    offer: bytes,
) -> None:
    lines = b"host: localhost\r\nconnection: upgrade\r\nupgrade: %b\r\n" % offer
    head, rest = way(path, b"application/json", HIDDEN, lines)
    head = head.replace(b"POST", method, 1)
    with reads_counted(monkeypatch) as reads:
        for pieces in ((head + rest,), (head, rest), (head, rest + HIDDEN)):
            answer = await send_pieces(running, reads, *pieces)
            assert answered(answer) == 1
            assert b"connection: close" in answer
            assert b'"scheduled"' not in answer.partition(b"\r\n\r\n")[2] or path == b"/v1/messages"


async def test_a_request_before_an_upgrade_is_answered_and_none_after_it(running: Running) -> None:
    before = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"
    kind, body, _ = BODIES[b"/v1/messages"]
    upgrade = b"".join(with_length(b"/v1/messages", kind, body))
    answer = await running.send(before + upgrade + HIDDEN)
    statuses = [part[:3] for part in answer.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"201"]
    assert b'{"id":"one"' in answer


@pytest.mark.parametrize(
    "request_",
    [
        b"CONNECT example.org:443 HTTP/1.1\r\n" + OFFER + b"\r\n",
        b"CONNECT / HTTP/1.1\r\n" + OFFER + b"\r\n",
        b"POST /v1/messages HTTP/1.1\r\n" + OFFER + b"transfer-encoding: chunked\r\n\r\nzz\r\n",
        b"POST /v1/messages HTTP/1.1\r\n" + OFFER + b"content-length: x\r\n\r\nzz\r\n",
    ],
)
async def test_an_upgrade_that_is_not_http_is_400(running: Running, request_: bytes) -> None:
    answer = await running.send(request_)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answered(answer) == 1


async def test_an_offer_in_http_1_0_is_served_too(running: Running) -> None:
    answer = await running.send(b"GET /healthz HTTP/1.0\r\n" + OFFER + b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


async def test_a_body_behind_an_upgrade_that_stops_arriving_is_cut(serve: Serve) -> None:
    async with serve(api={"body_timeout": "100ms"}) as running:
        head, _ = with_length(b"/v1/messages", b"application/json", b"{}")
        assert (await running.send(head)).startswith(b"HTTP/1.1 408 ")
