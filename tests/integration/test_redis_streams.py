"""Redis Streams, seen by others: redis-cli reads what was written."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator

import pytest

from penstock.model.outcome import DELIVERED, Dead, Retry
from penstock.ports.sink import Sink, SinkOptions
from penstock.sinks.redis_streams import open_sink
from systems.servers.redis import RedisServer
from tests.integration.brokers import message, through_the_engine


@pytest.fixture
async def sink(redis: RedisServer) -> AsyncIterator[Sink]:
    options = SinkOptions(topics=("orders.*",), timeout=60.0)
    opened = await open_sink(f"redis://127.0.0.1:{redis.port}/events", options)
    yield opened
    await opened.close()


def cli(server: RedisServer, *words: str) -> str:
    asked = ["redis-cli", "-p", str(server.port), "--raw", *words]
    return subprocess.run(asked, capture_output=True, text=True, check=True).stdout


async def test_redis_cli_reads_payload_key_and_headers(redis: RedisServer, sink: Sink) -> None:
    sent = message("m-1", b'{"a":1}', key="user1", headers={"x-trace": "t1", "payload": "mine"})
    assert await sink.send([sent]) == [DELIVERED]
    lines = cli(redis, "XRANGE", "events", "-", "+").splitlines()[1:]
    assert dict(zip(lines[::2], lines[1::2], strict=True)) == {
        "payload": '{"a":1}',
        "key": "user1",
        "content-type": "application/json",
        "x-trace": "t1",
        "penstock-id": "m-1",
        "penstock-attempt": "1",
        "penstock-due": "2030-01-01T00:00:00.000Z",
    }


async def test_a_stream_is_trimmed_as_it_grows(redis: RedisServer) -> None:
    url = f"redis://127.0.0.1:{redis.port}/3/trimmed?maxlen=100"
    sink = await open_sink(url, SinkOptions(timeout=60.0))
    for start in range(0, 2000, 500):
        await sink.send([message(f"m-{start + n}") for n in range(500)])
    await sink.close()
    length = int(cli(redis, "-n", "3", "XLEN", "trimmed"))
    assert 100 <= length < 400  # "about": Redis drops whole nodes


async def test_a_key_that_is_no_stream_is_dead_and_the_others_arrive(
    redis: RedisServer, sink: Sink
) -> None:
    cli(redis, "SET", "orders.eu", "text")
    good, bad = await sink.send([message("a"), message("b", topic="orders.eu")])
    assert good == DELIVERED
    assert isinstance(bad, Dead)


async def test_a_redis_that_is_full_means_later(redis: RedisServer, sink: Sink) -> None:
    cli(redis, "CONFIG", "SET", "maxmemory", "1")
    try:
        (outcome,) = await sink.send([message("a")])
    finally:
        cli(redis, "CONFIG", "SET", "maxmemory", "0")
    assert isinstance(outcome, Retry)
    assert not outcome.unreachable
    assert "maxmemory" in outcome.error


async def test_create_topic_makes_an_empty_stream(redis: RedisServer) -> None:
    url = f"redis://127.0.0.1:{redis.port}/new"
    sink = await open_sink(url, SinkOptions(more={"create_topic": True}))
    await sink.check()
    await sink.close()
    assert cli(redis, "TYPE", "new").strip() == "stream"
    assert cli(redis, "XLEN", "new").strip() == "0"


@pytest.mark.parametrize("end", ["restart", "kill"])
@pytest.mark.slow
async def test_redis_going_under_load_loses_nothing_it_has_on_disk(end: str) -> None:
    with RedisServer("--appendfsync", "always", aof=True) as server:

        def disturb() -> None:
            for _ in range(3):
                server.stop() if end == "restart" else server.kill()
                server.start()

        accepted = await through_the_engine(f"redis://127.0.0.1:{server.port}/s", disturb)
        lines = cli(server, "XRANGE", "s", "-", "+").splitlines()
        arrived = {lines[n + 1] for n, line in enumerate(lines) if line == "penstock-id"}
        assert arrived == accepted
