"""Every verb of the service over a real connection, and every status it can end with."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from penstock.model.errors import StoreCorrupt, StoreUnavailable
from penstock.v1 import scheduler_pb2 as pb
from tests.integration.deaths import kill_all
from tests.integration.grpc.conftest import Running
from tests.integration.grpc.details import detail, field_of, refusal

Serve = Callable[..., AbstractAsyncContextManager[Running]]
CODE = grpc.StatusCode


def ahead(seconds: float) -> Timestamp:
    return stamp(datetime.now(UTC) + timedelta(seconds=seconds))


def stamp(moment: datetime) -> Timestamp:
    made = Timestamp()
    made.FromDatetime(moment)
    return made


async def test_a_message_is_kept_as_it_was_given(running: Running) -> None:
    at, expires = ahead(3600), ahead(7200)
    asked = pb.ScheduleRequest(
        id="m1",
        key="user-1",
        payload=b"\x00\xff raw",
        content_type="image/png",
        headers={"x-a": "1"},
        at=at,
        expires=expires,
        priority=0,
        labels={"channel": "push", "class": "promotional", "tags": ["a", "b"], "tz": "Asia/Seoul"},
        topic="orders.new",
    )
    answer = await running.stub.Schedule(asked)
    assert (answer.id, answer.state, answer.duplicate) == ("m1", pb.STATE_SCHEDULED, False)
    rounded_up = -(-at.ToNanoseconds() // 1_000_000)
    assert answer.due.ToMilliseconds() == rounded_up
    held = await running.stub.Get(pb.GetRequest(id="m1"))
    assert (held.key, held.payload, held.content_type) == ("user-1", b"\x00\xff raw", "image/png")
    assert (dict(held.headers), held.priority, held.topic) == ({"x-a": "1"}, 0, "orders.new")
    assert (held.route, held.version, held.attempt) == ("default", 1, 0)
    assert (getattr(held.labels, "class"), list(held.labels.tags)) == ("promotional", ["a", "b"])
    assert held.expires.ToMilliseconds() == -(-expires.ToNanoseconds() // 1_000_000)
    assert not held.HasField("settled")
    assert [event.event for event in held.timeline] == ["accepted"]


async def test_what_is_not_given_is_what_it_is_on_http(running: Running) -> None:
    answer = await running.stub.Schedule(pb.ScheduleRequest())
    held = await running.stub.Get(pb.GetRequest(id=answer.id))
    assert held.key == held.id == answer.id
    assert (held.route, held.priority) == ("default", 5)
    assert (held.payload, held.content_type) == (b"", "application/octet-stream")
    assert held.due.ToMilliseconds() == held.created.ToMilliseconds()


async def test_messages_go_on_with_the_trace_of_the_call_that_brought_them(
    running: Running,
) -> None:
    caller = f"00-{1:032x}-{1:016x}-01"
    own = {"Traceparent": f"00-{2:032x}-{2:016x}-01"}
    later = Duration(seconds=60)
    traced: Any = {"metadata": (("traceparent", caller),)}
    asked = pb.ScheduleRequest(id="single", delay=later)
    await running.stub.Schedule(asked, **traced)
    batch = [
        pb.ScheduleRequest(id="batch", delay=later, headers={"x-tenant": "acme"}),
        pb.ScheduleRequest(id="own", delay=later, headers=own),
    ]
    await running.stub.ScheduleBatch(pb.ScheduleBatchRequest(messages=batch), **traced)
    streamed = iter([pb.ScheduleRequest(id="stream", delay=later)])
    await running.stub.ScheduleStream(streamed, **traced)
    unread: Any = {"metadata": (("traceparent", "no trace"),)}
    await running.stub.Schedule(pb.ScheduleRequest(id="unread", delay=later), **unread)

    ids = ("single", "batch", "own", "stream", "unread")
    held = [await running.stub.Get(pb.GetRequest(id=one)) for one in ids]
    assert [dict(one.headers) for one in held] == [
        {"traceparent": caller},
        {"x-tenant": "acme", "traceparent": caller},
        own,
        {"traceparent": caller},
        {},
    ]


async def test_a_known_id_is_success_and_says_so(running: Running) -> None:
    first = await running.stub.Schedule(pb.ScheduleRequest(id="m1", delay=Duration(seconds=60)))
    again = await running.stub.Schedule(pb.ScheduleRequest(id="m1", delay=Duration(seconds=10)))
    assert (again.duplicate, again.due) == (True, first.due)
    sooner = pb.ScheduleRequest(
        id="m1", delay=Duration(seconds=10), on_conflict=pb.ON_CONFLICT_EARLIEST
    )
    moved = await running.stub.Schedule(sooner)
    assert moved.duplicate
    assert moved.due.ToMilliseconds() < first.due.ToMilliseconds()


@pytest.mark.parametrize(
    ("field", "asked"),
    [
        ("id", {"id": "ä"}),
        ("route", {"route": "nowhere"}),
        ("key", {"key": "\n"}),
        ("payload", {"payload": b"x" * (256 * 1024 + 1)}),
        ("content_type", {"content_type": "a\n"}),
        ("headers", {"headers": {"penstock-id": "x"}}),
        ("headers.a", {"headers": {"a": "\n"}}),
        ("at", {"at": Timestamp(seconds=-1)}),
        ("at", {"at": Timestamp(seconds=1 << 40)}),
        ("at", {"at": Timestamp(nanos=-1)}),
        ("delay", {"delay": Duration(seconds=-1)}),
        ("delay", {"delay": Duration(nanos=2_000_000_000)}),
        ("delay", {"delay": Duration(seconds=1), "at": Timestamp(seconds=1)}),
        ("delay", {"delay": Duration(seconds=315_576_000_000)}),
        ("expires", {"expires": Timestamp(seconds=1)}),
        ("priority", {"priority": 10}),
        ("labels.tz", {"labels": {"tz": "Mars/Base"}}),
        ("topic", {"topic": "\n"}),
        ("on_conflict", {"on_conflict": 99}),
    ],
)
async def test_a_field_that_cannot_be_is_named(
    running: Running, field: str, asked: dict[str, Any]
) -> None:
    error = await refusal(running.stub.Schedule(pb.ScheduleRequest(**asked)))
    assert field_of(error) == field
    assert detail(error, "ErrorInfo").domain == "penstock"


async def test_bytes_that_are_no_request_are_invalid(running: Running) -> None:
    call: Any = running.channel.unary_unary("/penstock.v1.Scheduler/Schedule")
    error = await refusal(call(b"\xff\xff\xff"))
    assert error.code() is CODE.INVALID_ARGUMENT
    assert detail(error, "ErrorInfo").reason == "MALFORMED"


async def test_a_batch_has_an_outcome_for_each(running: Running) -> None:
    messages = [
        pb.ScheduleRequest(id="a", delay=Duration(seconds=5)),
        pb.ScheduleRequest(id="b", priority=77),
        pb.ScheduleRequest(id="c", delay=Duration(seconds=-5)),
        pb.ScheduleRequest(id="a"),
    ]
    answer = await running.stub.ScheduleBatch(pb.ScheduleBatchRequest(messages=messages))
    kinds = [outcome.WhichOneof("result") for outcome in answer.outcomes]
    assert kinds == ["accepted", "refused", "refused", "accepted"]
    refused = answer.outcomes[1].refused
    assert (refused.index, refused.id, refused.field) == (1, "b", "priority")
    assert (refused.status, refused.code) == (CODE.INVALID_ARGUMENT.value[0], "invalid")
    assert answer.outcomes[2].refused.field == "delay"
    assert answer.outcomes[3].accepted.duplicate
    assert not (await running.stub.ScheduleBatch(pb.ScheduleBatchRequest())).outcomes


async def test_a_message_is_moved_and_changed(running: Running) -> None:
    await running.stub.Schedule(
        pb.ScheduleRequest(
            id="m1", delay=Duration(seconds=60), expires=ahead(7200), headers={"a": "1"}
        )
    )
    moved = await running.stub.Reschedule(
        pb.RescheduleRequest(
            id="m1",
            version=1,
            delay=Duration(seconds=600),
            payload=b"new",
            content_type="text/plain",
            headers={"b": "2"},
            priority=9,
            labels={"channel": "sms"},
        )
    )
    assert (moved.version, moved.payload, moved.content_type) == (2, b"new", "text/plain")
    assert (dict(moved.headers), moved.priority, moved.labels.channel) == ({"b": "2"}, 9, "sms")
    cleared = await running.stub.Reschedule(
        pb.RescheduleRequest(id="m1", clear_expires=True, clear_headers=True, labels={})
    )
    assert not cleared.HasField("expires")
    assert (dict(cleared.headers), cleared.labels.channel) == ({}, "")
    assert cleared.due == moved.due


@pytest.mark.parametrize(
    ("field", "change"),
    [
        ("at", {}),
        ("at", {"version": 1}),
        ("headers", {"clear_headers": True, "headers": {"a": "1"}}),
        ("expires", {"clear_expires": True, "expires": Timestamp(seconds=1)}),
        ("expires", {"expires": Timestamp(seconds=1)}),
        ("content_type", {"content_type": "text/plain"}),
        ("at", {"at": Timestamp(seconds=-1)}),
    ],
)
async def test_a_change_that_cannot_be_is_named(
    running: Running, field: str, change: dict[str, Any]
) -> None:
    await running.stub.Schedule(pb.ScheduleRequest(id="m1", delay=Duration(seconds=60)))
    error = await refusal(running.stub.Reschedule(pb.RescheduleRequest(id="m1", **change)))
    assert field_of(error) == field


async def test_cancelling_twice_is_the_same_answer_twice(running: Running) -> None:
    await running.stub.Schedule(pb.ScheduleRequest(id="m1", delay=Duration(seconds=60)))
    for _ in range(2):
        answer = await running.stub.Cancel(pb.CancelRequest(id="m1"))
        assert (answer.id, answer.state) == ("m1", pb.STATE_CANCELLED)
    error = await refusal(
        running.stub.Reschedule(pb.RescheduleRequest(id="m1", delay=Duration(seconds=1)))
    )
    assert error.code() is CODE.FAILED_PRECONDITION
    info = detail(error, "ErrorInfo")
    assert (info.reason, info.metadata["state"]) == ("ALREADY_RELEASED", "cancelled")


async def test_a_message_that_is_leaving_is_not_cancelled_and_says_so(running: Running) -> None:
    await running.stub.Schedule(pb.ScheduleRequest(id="m1"))
    store = running.parts.store.messages
    await store.claim("default", 1, 30_000, store.clock.now())
    error = await refusal(running.stub.Cancel(pb.CancelRequest(id="m1")))
    assert error.code() is CODE.FAILED_PRECONDITION
    info = detail(error, "ErrorInfo")
    assert (info.metadata["state"], info.metadata["cancel_pending"]) == ("leased", "true")


async def test_the_dead_are_deleted_one_by_one_or_by_filter(running: Running) -> None:
    for name in ("m1", "m2", "m3"):
        await running.stub.Schedule(pb.ScheduleRequest(id=name, key=name))
    await kill_all(running.parts.store.messages, error="HTTP 410")
    await running.stub.Schedule(pb.ScheduleRequest(id="waits", delay=Duration(seconds=60)))
    gone = await running.stub.Delete(pb.DeleteRequest(id="m1", version=1))
    assert (gone.id, gone.state, gone.last_error) == ("m1", pb.STATE_DEAD, "HTTP 410")
    for wrong, code in (("m1", CODE.NOT_FOUND), ("waits", CODE.FAILED_PRECONDITION)):
        error = await refusal(running.stub.Delete(pb.DeleteRequest(id=wrong)))
        assert error.code() is code
    dry = pb.DeleteDeadRequest(error="410", dry_run=True)
    counted = await running.stub.DeleteDead(dry)
    assert (counted.matched, counted.done) == (2, 0)
    deleted = await running.stub.DeleteDead(pb.DeleteDeadRequest(key="m2", due_to=ahead(60)))
    assert (deleted.matched, deleted.done) == (1, 1)
    assert (await running.stub.Get(pb.GetRequest(id="m3"))).state == pb.STATE_DEAD
    assert (await running.stub.DeleteDead(pb.DeleteDeadRequest(key="m2"))).matched == 0


async def test_an_id_that_is_not_given_is_named(running: Running) -> None:
    calls = (
        running.stub.Get(pb.GetRequest()),
        running.stub.Cancel(pb.CancelRequest()),
        running.stub.Reschedule(pb.RescheduleRequest(delay=Duration(seconds=1))),
    )
    assert [field_of(await refusal(call)) for call in calls] == ["id", "id", "id"]


@pytest.mark.parametrize("message_id", ["unknown", "ä", "x" * 500])
async def test_an_id_that_is_not_known_is_not_found(running: Running, message_id: str) -> None:
    change = pb.RescheduleRequest(id=message_id, delay=Duration(seconds=1))
    calls = (
        running.stub.Get(pb.GetRequest(id=message_id)),
        running.stub.Cancel(pb.CancelRequest(id=message_id)),
        running.stub.Reschedule(change),
    )
    for call in calls:
        error = await refusal(call)
        assert error.code() is CODE.NOT_FOUND
        assert detail(error, "ErrorInfo").reason == "NOT_FOUND"


async def test_another_version_aborts(running: Running) -> None:
    await running.stub.Schedule(pb.ScheduleRequest(id="m1", delay=Duration(seconds=60)))
    for call in (
        running.stub.Cancel(pb.CancelRequest(id="m1", version=7)),
        running.stub.Reschedule(
            pb.RescheduleRequest(id="m1", version=7, delay=Duration(seconds=1))
        ),
    ):
        error = await refusal(call)
        assert error.code() is CODE.ABORTED
        assert detail(error, "ErrorInfo").metadata["version"] == "1"


async def test_a_store_that_is_away_is_unavailable_and_says_when_to_come_back(
    running: Running,
) -> None:
    running.probe.fails = StoreUnavailable("the store is away", retry_after=2.5)
    batch = pb.ScheduleBatchRequest(messages=[pb.ScheduleRequest()])
    for call in (
        running.stub.Schedule(pb.ScheduleRequest(id="m1")),
        running.stub.ScheduleBatch(batch),
        running.stub.ScheduleStream(iter([pb.ScheduleRequest(id="m1")])),
    ):
        error = await refusal(call)
        assert error.code() is CODE.UNAVAILABLE
        assert detail(error, "RetryInfo").retry_delay.ToMilliseconds() == 2500
        assert detail(error, "ErrorInfo").reason == "STORE_UNAVAILABLE"


async def test_a_fault_of_ours_tells_nothing_of_itself(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    running.probe.fails = StoreCorrupt("a row is not what was written")
    (outcome,) = (await running.stub.ScheduleBatch(_one())).outcomes
    assert outcome.refused.status == CODE.DATA_LOSS.value[0]  # each message has its own outcome
    running.probe.fails = RuntimeError("secret")
    error = await refusal(running.stub.ScheduleBatch(_one()))
    assert error.code() is CODE.UNAVAILABLE  # nothing was stored: it may be sent again
    assert "secret" not in (error.details() or "")
    assert "secret" in caplog.text


def _one() -> pb.ScheduleBatchRequest:
    return pb.ScheduleBatchRequest(messages=[pb.ScheduleRequest()])


async def test_too_many_at_once_are_told_to_come_back(serve: Serve) -> None:
    async with serve(max_in_flight=1) as running:
        running.probe.gate.clear()
        first = asyncio.ensure_future(running.stub.Schedule(pb.ScheduleRequest()))
        await running.probe.called.wait()
        error = await refusal(running.stub.Schedule(pb.ScheduleRequest()))
        assert error.code() is CODE.RESOURCE_EXHAUSTED
        assert detail(error, "RetryInfo").retry_delay.ToMilliseconds() > 0
        running.probe.gate.set()
        assert (await first).id


async def test_a_message_past_the_limit_is_refused_by_its_size(serve: Serve) -> None:
    async with serve(api={"max_body": 2048}) as running:
        error = await refusal(running.stub.Schedule(pb.ScheduleRequest(payload=b"x" * 4096)))
        assert error.code() is CODE.RESOURCE_EXHAUSTED
        assert (await running.stub.Schedule(pb.ScheduleRequest(payload=b"x" * 1024))).id


async def test_a_deadline_is_kept_and_what_had_not_begun_is_not_stored(running: Running) -> None:
    running.probe.gate.clear()
    waiting = [
        asyncio.ensure_future(running.stub.Schedule(pb.ScheduleRequest(id=f"busy-{i}")))
        for i in range(4)
    ]
    while len(running.probe.puts) < 4:  # every store call that may run at once does
        await running.probe.called.wait()
        running.probe.called.clear()
        waiting.append(asyncio.ensure_future(running.stub.Schedule(pb.ScheduleRequest())))
    error = await refusal(running.stub.Schedule(pb.ScheduleRequest(id="late"), timeout=0.2))
    assert error.code() is CODE.DEADLINE_EXCEEDED
    for _ in range(500):  # the client may hear of its deadline before the server does
        if all(
            draft.id != "late" for c in running.parts.intake._coalescers for draft, _ in c._waiting
        ):
            break
        await asyncio.sleep(0.01)
    running.probe.gate.set()
    await asyncio.gather(*waiting)
    await running.parts.intake.drain()
    assert (await refusal(running.stub.Get(pb.GetRequest(id="late")))).code() is CODE.NOT_FOUND


async def test_single_calls_at_once_share_store_calls(running: Running) -> None:
    running.probe.gate.clear()
    calls = [asyncio.ensure_future(running.stub.Schedule(pb.ScheduleRequest())) for _ in range(200)]
    while running.server.in_flight < 200:  # noqa: ASYNC110 - nobody is told of a call's arrival
        await asyncio.sleep(0.001)
    running.probe.gate.set()
    answers = await asyncio.gather(*calls)
    assert len({answer.id for answer in answers}) == 200
    assert len(running.probe.puts) < 20


async def test_limits_of_the_horizon_hold_and_name_the_field(serve: Serve) -> None:
    async with serve(limits={"min_delay": "1m", "max_delay": "15d"}) as running:
        soon = pb.ScheduleRequest(delay=Duration(seconds=59))
        assert field_of(await refusal(running.stub.Schedule(soon))) == "delay"
        far = pb.ScheduleRequest(at=ahead(16 * 86400))
        assert field_of(await refusal(running.stub.Schedule(far))) == "at"
        kept = await running.stub.Schedule(pb.ScheduleRequest(delay=Duration(seconds=60)))
        moved = pb.RescheduleRequest(id=kept.id, delay=Duration(seconds=1))
        assert field_of(await refusal(running.stub.Reschedule(moved))) == "delay"
