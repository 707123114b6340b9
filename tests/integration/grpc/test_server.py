"""The server beside the verbs: who may, where it listens, health and reflection."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from penstock.api.grpc import health
from penstock.api.grpc.server import max_message
from penstock.model.errors import ConfigError, StoreUnavailable
from penstock.v1 import scheduler_pb2 as pb
from tests.integration.grpc.conftest import Running
from tests.integration.grpc.details import detail, refusal

Serve = Callable[..., AbstractAsyncContextManager[Running]]
CODE = grpc.StatusCode
SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE = "penstock.v1.Scheduler"
TOKENS = [
    {"secret": "reads-only", "scope": "read"},
    {"secret": "may-write", "scope": "write"},
]


def bearer(secret: str) -> dict[str, Any]:
    return {"metadata": (("authorization", f"Bearer {secret}"),)}


def calls(stub: Any, **options: Any) -> dict[str, Any]:
    """Every verb, each on a message that is not there."""
    message = pb.ScheduleRequest(delay=Duration(seconds=60))
    batch = pb.ScheduleBatchRequest(messages=[message])
    change = pb.RescheduleRequest(id="x", delay=Duration(seconds=1))
    return {
        "Get": stub.Get(pb.GetRequest(id="x"), **options),
        "Schedule": stub.Schedule(message, **options),
        "ScheduleBatch": stub.ScheduleBatch(batch, **options),
        "ScheduleStream": stub.ScheduleStream(iter([message]), **options),
        "Cancel": stub.Cancel(pb.CancelRequest(id="x"), **options),
        "Reschedule": stub.Reschedule(change, **options),
    }


async def outcome(call: Any) -> grpc.StatusCode:
    try:
        await call
    except grpc.aio.AioRpcError as exc:
        return exc.code()
    return CODE.OK


async def outcomes(stub: Any, **options: Any) -> dict[str, grpc.StatusCode]:
    return {verb: await outcome(call) for verb, call in calls(stub, **options).items()}


async def test_tokens_open_what_their_scope_covers(serve: Serve) -> None:
    async with serve(api={"tokens": TOKENS}) as running:
        nobody = await outcomes(running.stub)
        assert set(nobody.values()) == {CODE.UNAUTHENTICATED}
        assert set((await outcomes(running.stub, **bearer("wrong"))).values()) == {
            CODE.UNAUTHENTICATED
        }
        reader = await outcomes(running.stub, **bearer("reads-only"))
        assert reader.pop("Get") is CODE.NOT_FOUND
        assert set(reader.values()) == {CODE.PERMISSION_DENIED}
        writer = await outcomes(running.stub, **bearer("may-write"))
        assert writer == {
            "Get": CODE.NOT_FOUND,
            "Schedule": CODE.OK,
            "ScheduleBatch": CODE.OK,
            "ScheduleStream": CODE.OK,
            "Cancel": CODE.NOT_FOUND,
            "Reschedule": CODE.NOT_FOUND,
        }


async def test_a_refused_token_has_its_reason(serve: Serve) -> None:
    async with serve(api={"tokens": TOKENS}) as running:
        error = await refusal(running.stub.Get(pb.GetRequest(id="x")))
        assert detail(error, "ErrorInfo").reason == "UNAUTHORIZED"
        call = running.stub.Cancel(pb.CancelRequest(id="x"), **bearer("reads-only"))
        assert detail(await refusal(call), "ErrorInfo").reason == "FORBIDDEN"


@pytest.mark.parametrize("options", [{}, {"api": {"tokens": TOKENS}}])
async def test_health_needs_no_token(serve: Serve, options: dict[str, Any]) -> None:
    async with serve(**options) as running:
        asked: Any = health_pb2_grpc.HealthStub(running.channel)
        for service in ("", SERVICE):
            answer = await asked.Check(health_pb2.HealthCheckRequest(service=service))
            assert answer.status == SERVING
        unknown = asked.Check(health_pb2.HealthCheckRequest(service="other"))
        assert (await refusal(unknown)).code() is CODE.NOT_FOUND


async def test_reflection_needs_a_token_where_there_are_tokens(serve: Serve) -> None:
    async with serve(api={"tokens": TOKENS}) as running:
        assert SERVICE in await listed(running.channel, **bearer("reads-only"))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await listed(running.channel)
        assert refused.value.code() is CODE.UNAUTHENTICATED


async def test_a_stranger_is_refused_before_the_message_is_read(serve: Serve) -> None:
    """It is larger than may be read: whoever read it would refuse its size."""
    async with serve(api={"tokens": TOKENS, "max_body": 2048}) as running:
        large = pb.ScheduleRequest(payload=b"x" * 100_000)
        error = await refusal(running.stub.Schedule(large))
        assert error.code() is CODE.UNAUTHENTICATED
        assert detail(error, "ErrorInfo").reason == "UNAUTHORIZED"
        error = await refusal(running.stub.Schedule(large, **bearer("a-wrong-one")))
        assert error.code() is CODE.UNAUTHENTICATED
        error = await refusal(running.stub.Schedule(large, **bearer("reads-only")))
        assert error.code() is CODE.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(
    ("max_body", "max_payload", "most"),
    [
        (8 << 20, 256 << 10, 4 << 20),
        (8 << 20, 6 << 20, 7 << 20),
        (8 << 20, 64 << 20, 8 << 20),
        (2048, 256 << 10, 2048),
    ],
)
def test_a_message_on_the_wire_is_as_large_as_a_payload_needs(
    max_body: int, max_payload: int, most: int
) -> None:
    assert max_message(max_body, max_payload) == most


async def listed(channel: grpc.aio.Channel, **options: Any) -> set[str]:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)  # type: ignore[arg-type] # aio too
    asked = reflection_pb2.ServerReflectionRequest(list_services="")
    async for answer in stub.ServerReflectionInfo(iter([asked]), **options):
        return {service.name for service in answer.list_services_response.service}
    raise AssertionError("no answer")


async def test_reflection_describes_the_service(running: Running) -> None:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(running.channel)  # type: ignore[arg-type] # aio too
    asked = reflection_pb2.ServerReflectionRequest(file_containing_symbol=SERVICE)
    (answer,) = [one async for one in stub.ServerReflectionInfo(iter([asked]))]
    files = [
        FileDescriptorProto.FromString(one)
        for one in answer.file_descriptor_response.file_descriptor_proto
    ]
    services = [service for one in files for service in one.service]
    assert [service.name for service in services] == ["Scheduler"]
    assert {"Schedule", "ScheduleStream", "Get"} <= {each.name for each in services[0].method}
    assert await listed(running.channel) == {
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


async def test_health_follows_the_store_and_the_end(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "PERIOD", 0.01)
    async with serve() as running:
        stub: Any = health_pb2_grpc.HealthStub(running.channel)
        watched = stub.Watch(health_pb2.HealthCheckRequest(service=SERVICE))
        assert (await watched.read()).status == SERVING

        async def away() -> dict[str, str]:
            raise StoreUnavailable("away")

        monkeypatch.setattr(running.probe, "check", away, raising=False)
        assert (await watched.read()).status == NOT_SERVING
        monkeypatch.undo()
        assert (await watched.read()).status == SERVING
        running.server.stop()
        assert (await watched.read()).status == NOT_SERVING
        watched.cancel()


async def test_a_port_that_is_taken_is_a_clear_error(serve: Serve) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ConfigError, match="taken by another program") as caught:
            async with serve(api={"grpc": where}):
                pass
    assert where in caught.value.message
    assert "PENSTOCK_API__GRPC" in caught.value.message
    async with serve() as first:
        with pytest.raises(ConfigError, match="taken"):
            async with serve(api={"grpc": first.server.address}):
                pass


async def test_an_address_that_is_not_ours_is_a_clear_error(serve: Serve) -> None:
    with pytest.raises(ConfigError, match=r"api\.grpc: cannot listen on 192\.0\.2\.1:0"):
        async with serve(api={"grpc": "192.0.2.1:0"}, insecure=True):
            pass


async def test_beyond_loopback_tokens_are_needed(serve: Serve) -> None:
    with pytest.raises(ConfigError, match=r"api\.grpc: refusing to listen on 0\.0\.0\.0:0"):
        async with serve(api={"grpc": "0.0.0.0:0"}):
            pass


async def test_stopping_takes_no_more_calls(serve: Serve) -> None:
    async with serve() as running:
        await running.stub.Schedule(pb.ScheduleRequest())
        stub = running.stub
        running.server.stop()
        await asyncio.sleep(0.05)
        error = await refusal(stub.Schedule(pb.ScheduleRequest(), timeout=5))
        assert error.code() in {CODE.UNAVAILABLE, CODE.CANCELLED}


LIMITED_TOKENS = [
    {"name": "pusher", "secret": "push-only-secret", "scope": "write", "routes": ["push"]},
    {"name": "marketing", "secret": "promotional-only", "classes": ["promotional"]},
    {"name": "ops", "secret": "sees-and-does-all"},
    {"name": "scraper", "secret": "metrics-and-no-more", "scope": "metrics"},
]
PUSHER = (("authorization", "Bearer push-only-secret"),)
MARKETING = (("authorization", "Bearer promotional-only"),)
OPS = (("authorization", "Bearer sees-and-does-all"),)
SCRAPER = (("authorization", "Bearer metrics-and-no-more"),)


def a_bill(**more: Any) -> pb.ScheduleRequest:
    return pb.ScheduleRequest(route="bills", payload=b"1", at=Timestamp(seconds=2**32), **more)


async def test_a_limited_token_may_touch_only_its_routes_and_classes(serve: Serve) -> None:
    routes = {name: {"sink": "log://"} for name in ("push", "bills")}
    async with serve(api={"tokens": LIMITED_TOKENS}, routes=routes) as running:
        stub = running.stub
        await stub.Schedule(a_bill(id="bill"), metadata=OPS)
        pushed = pb.ScheduleRequest(
            id="push", route="push", payload=b"1", labels=pb.Labels(**{"class": "promotional"})
        )
        pushed.at.seconds = 2**32
        for who in (PUSHER, MARKETING):
            await stub.Schedule(pushed, metadata=who)
            for refused in (
                stub.Schedule(a_bill(), metadata=who),
                stub.Schedule(
                    pb.ScheduleRequest(
                        id="bill",
                        route="push",
                        payload=b"2",
                        on_conflict=pb.ON_CONFLICT_REPLACE,
                        labels=pushed.labels,
                    ),
                    metadata=who,
                ),
                stub.Cancel(pb.CancelRequest(id="bill"), metadata=who),
                stub.Reschedule(pb.RescheduleRequest(id="bill", priority=9), metadata=who),
            ):
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await refused
                assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
            batch = pb.ScheduleBatchRequest(messages=[a_bill(), pushed])
            answer = await stub.ScheduleBatch(batch, metadata=who)
            assert [one.HasField("refused") for one in answer.outcomes] == [True, False]
            summary = await stub.ScheduleStream(iter([a_bill(), pushed]), metadata=who)
            assert (summary.accepted, summary.refused) == (1, 1)
            await stub.Reschedule(pb.RescheduleRequest(id="push", priority=9), metadata=who)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Get(pb.GetRequest(id="bill"), metadata=PUSHER)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
        assert (await stub.Get(pb.GetRequest(id="bill"), metadata=MARKETING)).version == 1
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.Get(pb.GetRequest(id="push"), metadata=SCRAPER)
        assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_every_change_by_a_token_is_recorded(
    serve: Serve, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "penstock.audit")
    routes = {"bills": {"sink": "log://"}}
    async with serve(api={"tokens": LIMITED_TOKENS}, routes=routes) as running:
        stub = running.stub
        await stub.Schedule(a_bill(id="bill"), metadata=OPS)
        await stub.ScheduleBatch(pb.ScheduleBatchRequest(messages=[a_bill()] * 2), metadata=OPS)
        await stub.ScheduleStream(iter([a_bill()] * 3), metadata=OPS)
        await stub.Reschedule(pb.RescheduleRequest(id="bill", priority=9), metadata=OPS)
        await stub.Cancel(pb.CancelRequest(id="bill"), metadata=OPS)
    told = [r.__dict__ for r in caplog.records if r.name == "penstock.audit"]
    lines = [(r["who"], r["verb"], r["object"]) for r in told]
    assert lines.count(("ops", "change", "bill")) == lines.count(("ops", "cancel", "bill")) == 1
    assert sum(r["count"] for r in told if r["object"] == "bills") == 6
