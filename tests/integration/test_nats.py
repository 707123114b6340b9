"""NATS, seen by others: its own client reads what was written; a server that goes loses nothing."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator

import nats as client_library
import pytest
from nats.aio.msg import Msg
from nats.js.api import DiscardPolicy, RetentionPolicy, StreamConfig

from penstock.model.outcome import DELIVERED, Dead, Retry
from penstock.ports.sink import Sink, SinkOptions
from penstock.ports.source import SourceOptions
from penstock.sinks.nats import open_sink
from penstock.sources.nats import open_source
from penstock.testing.source_suite import collect
from systems.servers.nats import NatsServer
from tests.integration.brokers import message, through_the_engine


@pytest.fixture
def subject() -> str:
    return f"s.{uuid.uuid4()}"


@pytest.fixture
async def sink(nats: NatsServer, subject: str) -> AsyncIterator[Sink]:
    options = SinkOptions(topics=("orders.*",), timeout=60.0, more={"create_topic": True})
    opened = await open_sink(f"{nats.url}/{subject}", options)
    await opened.check()
    yield opened
    await opened.close()


async def stored(server: NatsServer, subject: str) -> list[Msg]:
    client = await client_library.connect(server.url)
    js = client.jetstream()
    state = (await js.stream_info(await js.find_stream_name_by_subject(subject))).state
    reading = await js.subscribe(subject, ordered_consumer=True)
    found = [await reading.next_msg(timeout=300) for _ in range(state.messages)]
    await client.close()
    return found


async def stream(server: NatsServer, config: StreamConfig) -> None:
    client = await client_library.connect(server.url)
    await client.jetstream().add_stream(config)
    await client.close()


async def test_the_nats_client_reads_payload_and_headers(
    nats: NatsServer, subject: str, sink: Sink
) -> None:
    sent = message("m-1", b'{"a":1}', key="user1", headers={"x-trace": "t1"})
    assert await sink.send([sent]) == [DELIVERED]
    (got,) = await stored(nats, subject)
    assert got.data == b'{"a":1}'
    assert got.headers == {
        "content-type": "application/json",
        "x-trace": "t1",
        "penstock-id": "m-1",
        "penstock-attempt": "1",
        "penstock-due": "2030-01-01T00:00:00.000Z",
        "penstock-key": "user1",
        "Nats-Msg-Id": "m-1",
    }


async def test_a_subject_no_nats_stream_takes_is_tried_again_and_named(
    nats: NatsServer, sink: Sink
) -> None:
    good, lost = await sink.send([message("a"), message("b", topic="orders.nowhere")])
    assert good == DELIVERED
    assert isinstance(lost, Retry)
    assert not lost.unreachable
    assert "orders.nowhere: no stream takes the subject" in lost.error


async def test_only_a_message_that_nats_does_not_acknowledge_in_time_is_tried_again(
    nats: NatsServer, subject: str
) -> None:
    listening = await client_library.connect(nats.url)
    await listening.subscribe("orders.silent")  # somebody who is no stream and says nothing
    await listening.flush()
    options = SinkOptions(topics=("orders.*",), timeout=1.0, more={"create_topic": True})
    sink = await open_sink(f"{nats.url}/{subject}", options)
    await sink.check()
    first, late, third = await sink.send(
        [message("a"), message("b", topic="orders.silent"), message("c")]
    )
    (alone,) = await sink.send([message("b", topic="orders.silent")])
    (after,) = await sink.send([message("d")])
    await sink.close()
    await listening.close()
    assert (first, third, after) == (DELIVERED,) * 3
    unacknowledged = Retry(f"{nats.address}: no acknowledgement in 1 s", unsure=True)
    assert (late, alone) == (unacknowledged, unacknowledged)


@pytest.mark.parametrize(
    "bad", ["orders.a b", "orders.>", "orders.*", "orders.\r\nPUB x", "orders."]
)
async def test_what_can_never_be_a_nats_subject_is_dead(sink: Sink, bad: str) -> None:
    refused, good = await sink.send([message("a", topic=bad), message("b")])
    assert isinstance(refused, Dead)
    assert good == DELIVERED


async def test_a_message_larger_than_the_nats_server_takes_is_dead_and_its_neighbours_arrive(
    sink: Sink,
) -> None:
    almost = b"x" * (1024 * 1024 - 10)  # with its headers it is too much
    outcomes = await sink.send([message("a"), message("b", almost), message("c")])
    assert [type(o).__name__ for o in outcomes] == ["Delivered", "Dead", "Delivered"]


async def test_a_message_larger_than_the_nats_stream_takes_is_dead(
    nats: NatsServer, subject: str
) -> None:
    await stream(nats, StreamConfig(name=subject[2:], subjects=[subject], max_msg_size=1000))
    sink = await open_sink(f"{nats.url}/{subject}", SinkOptions(timeout=60.0))
    small, large = await sink.send([message("a"), message("b", b"x" * 2000)])
    await sink.close()
    assert small == DELIVERED
    assert isinstance(large, Dead)


async def test_a_full_nats_stream_means_later(nats: NatsServer, subject: str) -> None:
    config = StreamConfig(
        name=subject[2:], subjects=[subject], max_msgs=3, discard=DiscardPolicy.NEW
    )
    await stream(nats, config)
    sink = await open_sink(f"{nats.url}/{subject}", SinkOptions(timeout=60.0))
    outcomes = await sink.send([message(f"m-{n}") for n in range(5)])
    await sink.close()
    assert outcomes[:3] == [DELIVERED] * 3
    assert all(isinstance(o, Retry) and "maximum messages" in o.error for o in outcomes[3:])


@pytest.mark.parametrize("end", ["restart", "kill"])
async def test_nats_going_under_load_loses_nothing(
    nats: NatsServer, subject: str, end: str
) -> None:
    def disturb() -> None:
        for _ in range(3):
            getattr(nats, end)()
            nats.start()

    accepted = await through_the_engine(f"{nats.url}/{subject}", disturb, create_topic=True)
    arrived = [(msg.headers or {})["penstock-id"] for msg in await stored(nats, subject)]
    assert set(arrived) == accepted
    assert len(arrived) == len(accepted)  # JetStream knows the ids: repeats were kept once


async def test_two_nats_readers_share_a_consumer_and_one_takes_over_what_the_other_had(
    nats: NatsServer, subject: str, sink: Sink
) -> None:
    await sink.send([message(f"m-{n}") for n in range(100)])
    options = SourceOptions(source="s", more={"group": "shared-" + subject, "ack_wait": 2})
    first = await open_source(f"{nats.url}/{subject}", options)
    second = await open_source(f"{nats.url}/{subject}", options)
    kept = await collect(first, 20, done=False)
    taken = await collect(second, 80)
    await first.close()
    taken += await collect(second, 20)
    await second.close()
    assert {r.headers["penstock-id"] for r in taken} == {f"m-{n}" for n in range(100)}
    assert {r.origin for r in kept} <= {r.origin for r in taken}


async def test_held_records_are_not_given_to_another_nats_reader(
    nats: NatsServer, subject: str, sink: Sink
) -> None:
    await sink.send([message("a")])
    options = SourceOptions(source="s", more={"group": "held-" + subject, "ack_wait": 1})
    first = await open_source(f"{nats.url}/{subject}", options)
    second = await open_source(f"{nats.url}/{subject}", options)
    held = await collect(first, 1, done=False)
    for _ in range(5):  # each empty read of the other waits half a second
        await first.hold(held)
        assert list(await second.read(1)) == []
    await first.done(held)
    await first.close()
    await second.close()


async def config_of(server: NatsServer, subject: str) -> StreamConfig:
    client = await client_library.connect(server.url)
    js = client.jetstream()
    found = (await js.stream_info(await js.find_stream_name_by_subject(subject))).config
    await client.close()
    return found


async def test_a_nats_stream_made_here_has_limits(
    nats: NatsServer, subject: str, sink: Sink
) -> None:
    assert await sink.send([message("a")]) == [DELIVERED]
    made = await config_of(nats, subject)
    assert (made.max_age, made.retention, made.discard) == (
        *(7 * 86_400, RetentionPolicy.LIMITS, DiscardPolicy.NEW),
    )


async def test_a_nats_stream_is_made_with_the_limits_that_are_set(
    nats: NatsServer, subject: str
) -> None:
    limits = {"retention": "workqueue", "max_age": "90s", "max_bytes": 1_000_000, "discard": "old"}
    source = await open_source(
        f"{nats.url}/{subject}", SourceOptions(source="s", more={"create_topic": True, **limits})
    )
    await source.check()
    await source.close()
    made = await config_of(nats, subject)
    assert (made.retention, made.max_age, made.max_bytes, made.discard) == (
        *(RetentionPolicy.WORK_QUEUE, 90, 1_000_000, DiscardPolicy.OLD),
    )


async def test_a_full_nats_stream_refuses_and_nothing_in_it_is_lost(
    nats: NatsServer, subject: str
) -> None:
    more = {"create_topic": True, "max_bytes": 2_000}
    sink = await open_sink(f"{nats.url}/{subject}", SinkOptions(timeout=60.0, more=more))
    outcomes = await sink.send([message(f"m{n}", b"x" * 500) for n in range(6)])
    await sink.close()
    kept = [outcome for outcome in outcomes if outcome == DELIVERED]
    assert 0 < len(kept) < 6
    assert all(isinstance(outcome, Retry) for outcome in outcomes if outcome != DELIVERED)
    assert len(await stored(nats, subject)) == len(kept)
