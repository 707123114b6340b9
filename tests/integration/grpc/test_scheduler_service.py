"""scheduler.v1.SchedulerService beside our own: as its clients know it, and only where it is on."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from penstock.contrib.scheduler_service import common_pb2 as common
from penstock.contrib.scheduler_service import scheduler_pb2 as pb
from penstock.contrib.scheduler_service.scheduler_pb2_grpc import SchedulerServiceStub
from penstock.contrib.scheduler_service.service import SERVICE, SchedulerService
from penstock.contrib.scheduler_service.ways import (
    Cancelled,
    Event,
    OriginalWay,
    OurWay,
    Scheduled,
)
from penstock.model.errors import StoreUnavailable
from penstock.model.message import Message
from systems.servers.certificates import make_certificate
from tests.integration.grpc.conftest import Running
from tests.integration.grpc.details import detail, refusal
from tests.integration.grpc.test_server import TOKENS, bearer, listed

Serve = Callable[..., AbstractAsyncContextManager[Running]]
CODE = grpc.StatusCode
ROUTES = {"events": {"sink": "log://", "topics": ["orders.*"]}}
ON: dict[str, Any] = {"routes": ROUTES, "beside": [SchedulerService]}
LATER = int(time.time()) + 3600


def stub(running: Running) -> Any:
    """The stub protoc makes; it has no types."""
    return SchedulerServiceStub(running.channel)


def event(**fields: Any) -> pb.ScheduleRequest:
    asked = {"event_id": "e1", "execute_at": LATER, "payload": b"\x00x", "topic": "orders.new"}
    return pb.ScheduleRequest(**{**asked, **fields})


async def scheduled(running: Running, **fields: Any) -> tuple[str, str]:
    status = (await stub(running).Schedule(event(**fields))).status
    return common.StatusCode.Name(status.code), status.message


async def cancelled(running: Running, event_id: str) -> tuple[str, str]:
    status = (await stub(running).Cancel(pb.CancelRequest(event_id=event_id))).status
    return common.StatusCode.Name(status.code), status.message


async def stored(running: Running, event_id: str) -> Message:
    message, _ = await running.parts.control.get(event_id)
    return message


async def test_an_event_is_a_message_of_the_route_events(serve: Serve) -> None:
    async with serve(**ON) as running:
        assert await scheduled(running) == ("SUCCESS", "scheduled")
        kept = await stored(running, "e1")
    assert (kept.route, kept.topic, kept.payload) == ("events", "orders.new", b"\x00x")
    assert (kept.due, kept.key) == (LATER * 1000, "e1")


async def test_an_id_that_is_known_is_a_record_found_and_changes_nothing(serve: Serve) -> None:
    async with serve(**ON) as running:
        await scheduled(running)
        code, message = await scheduled(running, execute_at=LATER + 60, payload=b"other")
        assert code == "RECORD_FOUND"
        assert message == "event 'e1' is known and is scheduled; nothing was changed"
        assert (await stored(running, "e1")).due == LATER * 1000


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"event_id": ""}, "event_id: must be given"),
        ({"event_id": "a\nb"}, "event_id: must be 1-200 printable ASCII characters"),
        ({"execute_at": 0}, "execute_at: must be given, in epoch seconds"),
        ({"execute_at": 2**62}, "execute_at: is outside"),
        ({"execute_at": 1}, "execute_at: must be at least 1m ahead (min_delay)"),
        ({"execute_at": LATER + 86_400 * 20}, "execute_at: must be at most 15d ahead (max_delay)"),
        ({"topic": "orders.\n"}, "topic: must be 1-512 printable characters"),
        ({"payload": b"x" * 2000}, "payload: 2,000 bytes, the limit is 1,000"),
    ],
)
async def test_what_cannot_be_accepted_is_a_bad_request_that_names_the_field(
    serve: Serve, fields: dict[str, Any], message: str
) -> None:
    limits = {"min_delay": "1m", "max_delay": "15d", "max_payload": 1000}
    async with serve(**ON, limits=limits) as running:
        code, said = await scheduled(running, **fields)
    assert (code, said[: len(message)]) == ("BAD_REQUEST", message)


async def test_cancel_says_what_became_of_the_event(serve: Serve) -> None:
    async with serve(**ON) as running:
        await scheduled(running)
        assert await cancelled(running, "e1") == ("SUCCESS", "cancelled")
        assert await cancelled(running, "e1") == ("SUCCESS", "cancelled")
        assert await cancelled(running, "e2") == ("NOT_FOUND", "no event with id 'e2'")
        assert await cancelled(running, "") == ("BAD_REQUEST", "event_id: must be given")
        assert (await scheduled(running))[0] == "RECORD_FOUND", "a cancelled id stays known"


async def test_cancel_of_an_event_that_has_left_is_a_conflict(serve: Serve) -> None:
    async with serve(**ON) as running:
        await scheduled(running, execute_at=1)
        store = running.parts.store.messages
        claim = await store.claim("events", 1, 30_000, store.clock.now())
        assert [message.id for message in claim.messages] == ["e1"]
        code, message = await cancelled(running, "e1")
    assert (code, message) == ("CONFLICT", "message 'e1' is being released right now")


async def test_a_store_that_is_away_is_a_status_of_grpc(serve: Serve) -> None:
    async with serve(**ON) as running:
        running.probe.fails = StoreUnavailable("gone for a walk", retry_after=3)
        error = await refusal(stub(running).Schedule(event()))
    assert (error.code(), error.details()) == (CODE.UNAVAILABLE, "gone for a walk")
    assert detail(error, "RetryInfo").retry_delay.seconds == 3


async def test_tokens_and_their_limits_apply(serve: Serve) -> None:
    elsewhere = {"secret": "may-write-hooks", "scope": "write", "routes": ["default"]}
    async with serve(**ON, api={"tokens": [*TOKENS, elsewhere]}) as running:
        calls = stub(running)
        assert (await refusal(calls.Schedule(event()))).code() is CODE.UNAUTHENTICATED
        for secret in ("reads-only", "may-write-hooks"):
            error = await refusal(calls.Schedule(event(), **bearer(secret)))
            assert error.code() is CODE.PERMISSION_DENIED
        answer = await calls.Schedule(event(), **bearer("may-write"))
        assert answer.status.code == common.SUCCESS
        cancel = pb.CancelRequest(event_id="e1")
        error = await refusal(calls.Cancel(cancel, **bearer("may-write-hooks")))
        assert error.code() is CODE.PERMISSION_DENIED


async def test_it_is_in_reflection_and_health(serve: Serve) -> None:
    async with serve(**ON) as running:
        assert SERVICE in await listed(running.channel)
        asked: Any = health_pb2_grpc.HealthStub(running.channel)
        answer = await asked.Check(health_pb2.HealthCheckRequest(service=SERVICE))
        assert answer.status == health_pb2.HealthCheckResponse.SERVING


async def test_it_is_not_there_unless_it_is_turned_on(running: Running) -> None:
    assert SERVICE not in await listed(running.channel)
    assert (await refusal(stub(running).Schedule(event()))).code() is CODE.UNIMPLEMENTED


@pytest.mark.slow
async def test_a_client_made_of_the_original_proto_is_served(serve: Serve, tmp_path: Path) -> None:
    script = Path(__file__).with_name("original_client.py")
    async with serve(**ON) as running:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, str(script), running.server.address),
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin"},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await process.communicate()
    assert process.returncode == 0, err.decode()
    assert json.loads(out) == {
        "schedule": 0,
        "again": 6,
        "no moment": 1,
        "cancel": 0,
        "unknown": 4,
    }


async def test_it_is_served_by_tls_to_callers_with_a_token(serve: Serve, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    tls = {"tls_cert": str(certificate.cert), "tls_key": str(certificate.key)}
    authority = grpc.ssl_channel_credentials(certificate.cert.read_bytes())
    event_of_client = Event("e1", LATER * 1000, "orders.new")
    async with serve(**ON, api={"tokens": TOKENS, **tls}) as running:
        address = running.server.address
        async with grpc.aio.secure_channel(address, authority) as channel:
            way = OriginalWay(channel, {**bearer("may-write"), "timeout": 30})
            assert await way.schedule(event_of_client) is Scheduled.NEW
            assert await way.schedule(event_of_client) is Scheduled.KNOWN
            ours = OurWay(channel, {**bearer("may-write"), "timeout": 30})
            assert await ours.schedule(event_of_client) is Scheduled.KNOWN, "one id, two services"
            assert await ours.cancel("e1") is Cancelled.DONE
            assert await way.cancel("e2") is Cancelled.UNKNOWN
