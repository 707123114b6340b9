"""Streams of any length: group commit, flow control, constant memory, an orderly end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc
import psutil
import pytest
from google.protobuf.duration_pb2 import Duration

from penstock.api.grpc.server import WINDOW
from penstock.api.grpc.stream import CHUNK, CHUNK_BYTES, HELD, MAX_REFUSALS
from penstock.model.errors import StoreUnavailable
from penstock.v1 import scheduler_pb2 as pb
from tests.integration.grpc.conftest import Running
from tests.integration.grpc.details import detail, refusal

Serve = Callable[..., AbstractAsyncContextManager[Running]]
CODE = grpc.StatusCode


def messages(number: int, start: int = 0, size: int = 100) -> Iterator[pb.ScheduleRequest]:
    for i in range(start, start + number):
        yield pb.ScheduleRequest(id=f"m{i:07}", payload=b"x" * size, delay=Duration(seconds=3600))


async def test_a_stream_is_answered_with_what_it_came_to(running: Running) -> None:
    mixed = [
        *messages(10),
        *messages(3),
        pb.ScheduleRequest(id="bad", priority=99),
        pb.ScheduleRequest(id="worse", delay=Duration(seconds=-1)),
    ]
    answer = await running.stub.ScheduleStream(iter(mixed))
    assert (answer.received, answer.accepted) == (15, 13)
    assert (answer.duplicates, answer.refused) == (3, 2)
    assert [(one.index, one.id, one.field) for one in answer.refusals] == [
        (13, "bad", "priority"),
        (14, "worse", "delay"),
    ]
    assert not (await running.stub.ScheduleStream(iter([]))).received


async def test_only_the_first_refusals_are_told_and_all_are_counted(running: Running) -> None:
    many = (pb.ScheduleRequest(priority=99) for _ in range(MAX_REFUSALS + 5))
    answer = await running.stub.ScheduleStream(many)
    assert (answer.refused, len(answer.refusals)) == (MAX_REFUSALS + 5, MAX_REFUSALS)


async def test_bytes_that_are_no_message_do_not_end_the_stream(running: Running) -> None:
    call: Any = running.channel.stream_unary("/penstock.v1.Scheduler/ScheduleStream")
    good = next(messages(1)).SerializeToString()
    answer = pb.ScheduleStreamResponse.FromString(await call(iter([good, b"\xff\xff", good])))
    assert (answer.accepted, answer.duplicates, answer.refused) == (2, 1, 1)
    assert answer.refusals[0].code == "malformed"


async def test_what_comes_is_durable_while_the_stream_is_open(running: Running) -> None:
    call = running.stub.ScheduleStream()
    await call.write(next(messages(1)))
    while not running.probe.puts:  # noqa: ASYNC110 - the other side's progress
        await asyncio.sleep(0.005)
    assert (await running.stub.Get(pb.GetRequest(id="m0000000"))).id == "m0000000"
    await call.done_writing()
    assert (await call).accepted == 1


async def test_a_store_that_waits_holds_the_client_back(running: Running) -> None:
    running.probe.gate.clear()
    sent = 0
    large = b"x" * 10_000

    async def counted() -> AsyncIterator[pb.ScheduleRequest]:
        nonlocal sent
        for i in range(20_000):
            yield pb.ScheduleRequest(id=f"m{i}", payload=large)
            sent += 1

    call = asyncio.ensure_future(running.stub.ScheduleStream(counted()))
    before = -1
    while before != sent or sent == 0:  # until it does not move any more
        before = sent
        await asyncio.sleep(0.3)
    held = HELD * CHUNK_BYTES + 4 * WINDOW  # … of which one is the client's own
    assert sent * len(large) < held, "it goes on sending what nobody takes"
    call.cancel()
    running.probe.gate.set()


@pytest.mark.slow
async def test_a_hundred_megabytes_go_through_in_constant_memory(
    serve: Serve, tmp_path: Path
) -> None:
    """Both sides are in this process: all the messages would be there twice."""
    memory = psutil.Process().memory_info
    async with serve(store=f"sqlite:///{tmp_path}/m.db?synchronous=normal") as running:
        await running.stub.ScheduleStream(messages(1_500, start=1_000_000, size=8_000))
        before = memory().rss
        answer = await running.stub.ScheduleStream(messages(12_500, size=8_000))
        assert (answer.received, answer.accepted, answer.duplicates) == (12_500, 12_500, 0)
        assert memory().rss - before < 40_000_000
        assert max(running.probe.puts) <= CHUNK
        figures = await running.parts.store.messages.figures(running.parts.store.clock.now())
        assert figures.routes["default"].scheduled == 14_000


async def test_a_store_that_goes_away_ends_the_stream_and_says_how_far_it_came(
    running: Running,
) -> None:
    call = running.stub.ScheduleStream()
    await call.write(next(messages(1)))
    while not running.probe.puts:  # noqa: ASYNC110 - the other side's progress
        await asyncio.sleep(0.005)
    running.probe.fails = StoreUnavailable("away", retry_after=3)
    await call.write(next(messages(1, start=5)))
    error = await refusal(call)
    assert error.code() is CODE.UNAVAILABLE
    assert "1 messages of the stream are durable" in (error.details() or "")
    assert detail(error, "RetryInfo").retry_delay.seconds == 3


async def test_a_deadline_ends_a_stream(running: Running) -> None:
    call = running.stub.ScheduleStream(timeout=0.3)
    await call.write(next(messages(1)))
    assert (await refusal(call)).code() is CODE.DEADLINE_EXCEEDED
    while running.server.streams:  # noqa: ASYNC110 - the server hears of it a little later
        await asyncio.sleep(0.005)


async def test_stopping_stores_what_was_read_and_tells_the_stream(serve: Serve) -> None:
    async with serve(shutdown=5_000) as running:
        call = running.stub.ScheduleStream()
        for one in messages(3):
            await call.write(one)
        while not running.probe.puts:  # noqa: ASYNC110 - the other side's progress
            await asyncio.sleep(0.005)
        running.server.stop()
        error = await refusal(call)
        assert error.code() is CODE.UNAVAILABLE
        assert "stopping" in (error.details() or "")
        durable = int((error.details() or "").split("; ")[1].split()[0])
        held = await running.parts.store.messages.find(["m0000000", "m0000001", "m0000002"])
        assert sum(one is not None for one in held) == durable >= 1


async def test_a_call_under_way_is_answered_before_the_server_ends(serve: Serve) -> None:
    async with serve() as running:
        running.probe.gate.clear()
        call = asyncio.ensure_future(running.stub.Schedule(pb.ScheduleRequest(id="m1")))
        await running.probe.called.wait()
        running.server.stop()
        await asyncio.sleep(0)
        running.probe.gate.set()
        assert (await call).id == "m1"
