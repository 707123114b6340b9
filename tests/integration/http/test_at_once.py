"""`BoundedProtocol._answer_at_once` writes the bytes that ASGI's `send` would have written."""

from __future__ import annotations

import pytest

from tests.integration.http.conftest import Running
from tests.integration.http.test_hot import HOST, TYPE, exchange

CLOSE = b"connection: close\r\n"


def request(method: bytes, path: bytes, headers: bytes = b"", body: bytes = b"") -> bytes:
    length = b"content-length: %d\r\n" % len(body) if body else b""
    return b"%b %b HTTP/1.1\r\n%b%b%b\r\n%b" % (method, path, HOST, headers, length, body)


REQUESTS = [
    request(b"GET", b"/v1/messages/x"),
    request(b"GET", b"/v1/messages/nobody"),
    request(b"GET", b"/v1/messages?state=nothing"),
    request(b"GET", b"/v1/routes", CLOSE),
    request(b"GET", b"/docs"),
    request(b"GET", b"/nowhere"),
    request(b"PUT", b"/v1/messages"),
    request(b"POST", b"/v1/messages?", TYPE, b'{"id":"x","at":"2040-01-01T00:00:00Z"}'),
    request(b"POST", b"/v1/messages?", TYPE, b"{"),
    request(b"POST", b"/v1/messages?", b"content-type: text/plain\r\n", b"{}"),
    request(b"DELETE", b"/v1/messages/nobody", b"if-match: x\r\n"),
]


@pytest.mark.parametrize("number", range(len(REQUESTS)))
async def test_an_answer_in_one_write_is_the_same_bytes(
    running: Running, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    await exchange(running, request(b"POST", b"/v1/messages?", TYPE, b'{"id":"x","delay":"1h"}'))
    at_once = await exchange(running, REQUESTS[number])
    monkeypatch.setattr("penstock.api.http.router.AT_ONCE", "nowhere")
    assert await exchange(running, REQUESTS[number]) == at_once
