"""penstock.GrpcClient: the verbs of the other clients, their errors, and safe retries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import penstock
from penstock import GrpcClient, State
from penstock.model.backoff import Backoff
from penstock.sdk import grpc_client, transport
from systems.servers.ports import free_port
from tests.integration.grpc.conftest import Running

Serve = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
async def client(running: Running) -> AsyncIterator[GrpcClient]:
    async with GrpcClient(running.server.address) as client:
        yield client


@pytest.fixture(autouse=True)
def _no_long_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "PAUSE", Backoff(1, 2))


async def test_a_message_comes_back_as_it_was_given(client: GrpcClient) -> None:
    at = datetime.now(UTC) + timedelta(hours=1)
    receipt = await client.schedule(
        {"a": [1, "ä"]},
        id="m1",
        at=at,
        expires=at + timedelta(hours=1),
        key="user",
        headers={"x-a": "1"},
        priority=0,
        labels={"class": "promotional", "tags": ["a"]},
        topic="orders.new",
    )
    assert (receipt.id, receipt.state, receipt.duplicate) == ("m1", State.SCHEDULED, False)
    held = await client.get("m1")
    assert (held.payload, held.content_type) == ('{"a":[1,"ä"]}'.encode(), "application/json")
    assert (held.key, held.headers, held.priority) == ("user", {"x-a": "1"}, 0)
    assert held.labels == penstock.Labels(class_="promotional", tags=("a",))
    assert (held.topic, held.due, held.version) == ("orders.new", receipt.due, 1)
    assert held.expires == held.due + 3_600_000
    assert [event.event for event in await client.timeline("m1")] == ["accepted"]
    assert (await client.schedule(b"\x00", id="m1", delay="1h")).duplicate


async def test_a_message_is_moved_changed_and_cancelled(client: GrpcClient) -> None:
    await client.schedule(b"\x00\xff", id="m1", delay=60, headers={"a": "1"})
    assert (await client.get("m1")).content_type == "application/octet-stream"
    moved = await client.reschedule("m1", version=1, delay="1h", payload="new", headers={})
    assert (moved.version, moved.payload, moved.headers) == (2, b'"new"', None)
    with pytest.raises(penstock.VersionConflict) as caught:
        await client.cancel("m1", version=1)
    assert (caught.value.version, caught.value.message_id) == (2, "m1")
    assert (await client.cancel("m1")).state is State.CANCELLED
    with pytest.raises(penstock.AlreadyReleased) as too_late:
        await client.reschedule("m1", delay=1)
    assert (too_late.value.state, too_late.value.cancel_pending) == ("cancelled", False)
    with pytest.raises(penstock.UnknownMessage):
        await client.get("never")


async def test_errors_are_those_of_the_engine(client: GrpcClient) -> None:
    with pytest.raises(penstock.UnknownRoute) as unknown:
        await client.schedule(1, route="nowhere")
    assert unknown.value.field == "route"
    with pytest.raises(penstock.InvalidMessage) as invalid:
        await client.schedule(1, priority=12)
    assert (invalid.value.field, invalid.value.reason) == (
        "priority",
        "must be 0-9 (9 leaves first)",
    )
    with pytest.raises(penstock.InvalidMessage, match="delay"):
        await client.schedule(1, delay="soon")
    with pytest.raises(penstock.TooLarge):
        await client.schedule("x" * 300_000)
    with pytest.raises(penstock.TooLarge):
        await client.schedule(b"x" * 9_000_000)
    with pytest.raises(TypeError, match="did you mean 'delay'"):
        await client.schedule(1, delai=3)  # type: ignore[call-arg] # the mistake


async def test_many_have_an_outcome_each_in_order(
    client: GrpcClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grpc_client, "BATCH", 3)
    outcomes = await client.schedule_many(_mixed())
    kinds = [type(outcome).__name__ for outcome in outcomes]
    refused = "InvalidMessage"
    assert kinds == ["Receipt", refused, "Receipt", refused, refused, "Receipt", "Receipt"]
    assert [getattr(outcomes[i], "field", None) for i in (1, 3, 4)] == [
        "wrong",
        "delay",
        "priority",
    ]


def _mixed() -> Iterator[Any]:
    yield {"payload": 1, "id": "a"}
    yield {"payload": 1, "wrong": 1}
    yield penstock.draft(2, id="b")
    yield {"payload": 1, "delay": "soon"}
    yield {"payload": 1, "id": "c", "priority": 99}
    yield {"payload": b"\x00", "id": "d"}
    yield {"payload": 1, "id": "a"}


async def test_a_stream_comes_to_a_summary(client: GrpcClient) -> None:
    summary = await client.schedule_all(_mixed())
    assert (summary.received, summary.accepted) == (7, 4)
    assert (summary.duplicates, summary.refused) == (1, 3)
    told = [(one.index, one.id, one.error.field) for one in summary.refusals]
    assert told[0] == (1, None, "wrong")
    assert (told[1][0], told[1][2]) == (3, "delay")
    assert told[2] == (4, "c", "priority")

    async def later() -> AsyncIterator[dict[str, Any]]:
        for message in _mixed():
            yield message

    assert (await client.schedule_all(later())).duplicates == 4


async def test_what_a_program_raises_while_it_is_read_is_its_own(client: GrpcClient) -> None:
    def broken() -> Iterator[dict[str, Any]]:
        yield {"payload": 1}
        raise LookupError("no more")

    with pytest.raises(LookupError, match="no more"):
        await client.schedule_all(broken())


async def test_a_busy_server_is_asked_again(running: Running) -> None:
    running.probe.fails = penstock.StoreUnavailable("away", retry_after=0.001)
    async with GrpcClient(running.server.address, retries=2) as client:
        with pytest.raises(penstock.StoreUnavailable, match="away"):
            await client.schedule(1, id="m1")
        assert len(running.probe.puts) == 3
        running.probe.fails = None
        assert not (await client.schedule(1, id="m1")).duplicate


async def test_an_answer_that_was_lost_is_asked_for_again_without_doubling(serve: Serve) -> None:
    async with serve() as running:
        running.probe.gate.clear()
        async with GrpcClient(running.server.address, timeout=0.2, retries=3) as client:
            call = client.schedule(1, delay="1h")
            with pytest.raises(penstock.Unreachable, match="did not answer in time"):
                await call
        running.probe.gate.set()
        await running.parts.intake.drain()
        now = running.parts.store.clock.now()
        figures = await running.parts.store.messages.figures(now)
        assert figures.routes["default"].scheduled <= 1


async def test_nobody_there_is_unreachable() -> None:
    address = f"127.0.0.1:{free_port()}"
    async with GrpcClient(address, retries=1, timeout=5) as client:
        with pytest.raises(penstock.Unreachable, match=address):
            await client.get("m1")


async def test_a_token_is_sent_and_must_be_printable(serve: Serve) -> None:
    async with serve(api={"tokens": [{"secret": "s3cret", "scope": "read"}]}) as running:
        where = running.server.address
        async with GrpcClient(where) as nobody:
            with pytest.raises(penstock.Unauthorized):
                await nobody.get("m1")
        async with GrpcClient(where, token="s3cret") as reader:
            with pytest.raises(penstock.UnknownMessage):
                await reader.get("m1")
            with pytest.raises(penstock.Forbidden):
                await reader.schedule(1)
            with pytest.raises(penstock.Forbidden):
                await reader.schedule_all([{"payload": 1}])
    with pytest.raises(penstock.ConfigError, match="token"):
        GrpcClient(token="\n")
