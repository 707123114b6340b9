"""The simulated provider: takes, counts and refuses."""

from __future__ import annotations

import asyncio
import random
import time

import httpx
import pytest

from penstock.contrib.sender.provider import MAX_BODY, Allowance, Answered, Manners, Provider, Stats
from penstock.model.signing import Signer


async def _stats(provider: Provider, client: httpx.AsyncClient) -> Stats:
    answer = await client.get(f"{provider.url}/stats")
    assert answer.headers["content-type"] == "application/json"
    return Stats(**answer.json())


async def test_what_is_posted_is_taken_counted_and_told() -> None:
    told: list[Answered] = []
    headers = {
        "penstock-id": "order-42",
        "penstock-attempt": "2",
        "penstock-due": "2026-01-01T00:00:00.000Z",
    }
    async with (
        Provider(on_answered=told.append) as provider,
        httpx.AsyncClient(timeout=300) as client,
    ):
        answer = await client.post(provider.url, content=b'{"order":42}', headers=headers)
        stats = await _stats(provider, client)
    assert (answer.status_code, answer.text) == (200, "ok")
    assert (stats.requests, stats.accepted, stats.repeats, stats.bytes) == (1, 1, 1, 12)
    assert stats.early == 0
    assert stats.lateness_ms["max"] == told[0].late
    assert (told[0].request.id, told[0].request.body) == ("order-42", b'{"order":42}')


async def test_what_comes_before_it_is_due_is_counted_as_early() -> None:
    async with Provider() as provider, httpx.AsyncClient(timeout=300) as client:
        await client.post(provider.url, headers={"penstock-due": "2999-01-01T00:00:00.000Z"})
        assert (await _stats(provider, client)).early == 1


async def test_a_due_time_that_is_none_does_not_disturb_it() -> None:
    async with Provider() as provider, httpx.AsyncClient(timeout=300) as client:
        answer = await client.post(provider.url, headers={"penstock-due": "soon"})
    assert answer.status_code == 200


async def test_only_post_is_taken() -> None:
    async with Provider() as provider, httpx.AsyncClient(timeout=300) as client:
        answer = await client.put(provider.url, content=b"x")
        stats = await _stats(provider, client)
    assert (answer.status_code, answer.headers["allow"]) == (405, "POST")
    assert (stats.refused, stats.accepted) == (1, 0)


async def test_a_body_that_is_too_large_is_refused() -> None:
    async with Provider() as provider, httpx.AsyncClient(timeout=300) as client:
        answer = await client.post(provider.url, content=b"x" * (MAX_BODY + 1))
    assert answer.status_code == 413


async def test_bytes_that_are_not_http_are_answered_and_the_line_is_closed() -> None:
    async with Provider() as provider:
        reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
        writer.write(b"\x00\xff nonsense\r\n\r\n")
        said = await reader.read()
        writer.close()
    assert said.startswith(b"HTTP/1.1 400 ")


SECRET = "whsec_c2VjcmV0LXNlY3JldC1zZWNyZXQ="


def _signed(secret: str, timestamp: int) -> dict[str, str]:
    return {
        "webhook-id": "m1",
        "webhook-timestamp": str(timestamp),
        "webhook-signature": Signer(secret).sign("m1", timestamp, b"body"),
    }


@pytest.mark.parametrize(
    ("secret", "age", "status", "said"),
    [
        (SECRET, 0, 200, "ok"),
        ("another", 0, 401, "the signature does not match"),
        (SECRET, 3600, 401, "the signature's timestamp is too far off"),
        (None, 0, 401, "not signed"),
    ],
)
async def test_with_a_secret_only_what_is_signed_is_taken(
    secret: str | None, age: int, status: int, said: str
) -> None:
    headers = {} if secret is None else _signed(secret, int(time.time()) - age)
    async with (
        Provider(Manners(secret=SECRET)) as provider,
        httpx.AsyncClient(timeout=300) as client,
    ):
        answer = await client.post(provider.url, content=b"body", headers=headers)
    assert (answer.status_code, answer.text) == (status, said)


async def test_it_fails_as_often_as_it_is_told_to() -> None:
    manners = Manners(failure_rate=0.5)
    async with (
        Provider(manners, chance=random.Random(1)) as provider,
        httpx.AsyncClient(timeout=300) as client,
    ):
        codes = [(await client.post(provider.url)).status_code for _ in range(40)]
        stats = await _stats(provider, client)
    assert set(codes) == {200, 500}
    assert (stats.failed, stats.accepted) == (codes.count(500), codes.count(200))


async def test_it_refuses_for_good_as_often_as_it_is_told_to() -> None:
    manners = Manners(failure_rate=0.3, refuse_rate=0.4)
    async with (
        Provider(manners, chance=random.Random(1)) as provider,
        httpx.AsyncClient(timeout=300) as client,
    ):
        codes = [(await client.post(provider.url)).status_code for _ in range(60)]
        stats = await _stats(provider, client)
    assert set(codes) == {200, 400, 500}
    assert (stats.refused, stats.failed) == (codes.count(400), codes.count(500))


async def test_more_than_its_rate_is_answered_429_with_a_time_to_come_back() -> None:
    now = 1_000.0
    async with (
        Provider(Manners(rate_limit=2), now=lambda: now) as provider,
        httpx.AsyncClient(timeout=300) as client,
    ):
        codes = [(await client.post(provider.url)).status_code for _ in range(2)]
        refused = await client.post(provider.url)
        now += 0.5
        codes.append((await client.post(provider.url)).status_code)
    assert codes == [200, 200, 200]
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


def test_an_allowance_says_how_long_to_wait_and_fills_up_to_a_second() -> None:
    allowance = Allowance(10, 0.0)
    assert [allowance.take(0.0) for _ in range(10)] == [0.0] * 10
    assert allowance.take(0.0) == pytest.approx(0.1)
    assert [allowance.take(100.0) for _ in range(10)] == [0.0] * 10
    assert allowance.take(100.0) > 0


async def test_pipelined_requests_are_answered_in_their_order() -> None:
    manners = Manners(latency=0.001)
    async with Provider(manners, chance=random.Random(3)) as provider:
        reader, writer = await asyncio.open_connection("127.0.0.1", provider.port)
        post = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n"
        put = post.replace(b"POST", b"PUT")
        writer.write(post + put + post)
        heads = []
        for _ in range(3):
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
            await reader.readexactly(length)
            heads.append(head[9:12])
        writer.close()
    assert heads == [b"200", b"405", b"200"]


async def test_each_lists_what_was_taken_with_its_receivers() -> None:
    async with Provider(each=True) as provider, httpx.AsyncClient(timeout=300) as client:
        body = {"id": "n", "data": {"params": {"receivers": ["a", "b"]}}}
        headers = {"penstock-id": "n", "penstock-attempt": "2"}
        await client.post(provider.url, json=body, headers=headers)
        await client.post(provider.url, json={"data": 7}, headers={"penstock-id": "m"})
    assert provider.accepted is not None
    told = [(one.id, one.attempt, one.receivers) for one in provider.accepted]
    assert told == [("n", 2, ["a", "b"]), ("m", 0, [])]
    assert provider.arrivals == [one.at for one in provider.accepted]
