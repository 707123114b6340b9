"""What a head may say: each thing once, before the body, of a path as it is written."""

from __future__ import annotations

import pytest

from tests.integration.http.conftest import Running, Serve
from tests.integration.http.test_hot import HOST, TYPE, exchange

TOKENS = {"tokens": ["a-secret-of-sixteen"]}
BEARER = b"authorization: Bearer a-secret-of-sixteen\r\n"
CHUNKS = b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"


@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/messages/cancel"])
async def test_a_trailer_is_no_header(serve: Serve, path: bytes) -> None:
    async with serve(api=TOKENS) as running:
        head = b"POST %b HTTP/1.1\r\n" % path + HOST + TYPE
        answer = await exchange(running, head + CHUNKS + BEARER + b"\r\n")
        assert answer.startswith(b"HTTP/1.1 401 ")
        answer = await exchange(running, head + BEARER + CHUNKS + b"x-more: 1\r\n\r\n")
        assert not answer.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("twice", [HOST, TYPE, BEARER])
@pytest.mark.parametrize("path", [b"/v1/messages", b"/v1/messages/cancel"])
async def test_what_decides_is_said_once(running: Running, twice: bytes, path: bytes) -> None:
    head = b"POST %b HTTP/1.1\r\n%b%b%bcontent-length: 2\r\n" % (path, HOST, TYPE, BEARER)
    answer = await exchange(running, head + twice + b"\r\n{}")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"more than once" in answer


@pytest.mark.parametrize(
    "path",
    [
        b"//v1/messages",
        b"//v1/stats",
        b"/v1//messages",
        b"/v1/messages/",
        b"/v1/stats/",
        b"/v1/rooms//join",
        b"/healthz/",
        b"//",
    ],
)
@pytest.mark.parametrize("method", [b"GET", b"POST"])
async def test_a_path_is_matched_as_it_is_written(
    running: Running, path: bytes, method: bytes
) -> None:
    request = b"%b %b HTTP/1.1\r\n%b%bcontent-length: 2\r\n\r\n{}" % (method, path, HOST, TYPE)
    answer = await exchange(running, request)
    assert answer.startswith(b"HTTP/1.1 404 ")
    assert b'"code":"not_found"' in answer
