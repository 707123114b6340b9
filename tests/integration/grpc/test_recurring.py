"""Recurring rules over gRPC."""

from __future__ import annotations

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from penstock.v1 import scheduler_pb2 as pb
from tests.integration.grpc.conftest import Running
from tests.integration.grpc.details import field_of, refusal

CODE = grpc.StatusCode


async def test_a_rule_is_put_read_listed_and_deleted(running: Running) -> None:
    rule = pb.RecurringRule(
        cron="0 9 * * mon-fri",
        zone="Europe/Berlin",
        payload=b'{"a":1}',
        content_type="application/json",
        headers={"x": "y"},
        labels=pb.Labels(channel="push"),
        priority=9,
        expires_after=Duration(seconds=3600),
        start=Timestamp(seconds=1_767_225_600),
        limit=100,
        jitter=Duration(seconds=30),
        misfire=pb.MISFIRE_ALL,
        overlap=pb.OVERLAP_SKIP,
        catch_up=Duration(seconds=7200),
    )
    put = await running.stub.PutRecurring(pb.PutRecurringRequest(id="daily", rule=rule))
    assert (put.id, put.version, put.made, len(put.next)) == ("daily", 1, True, 5)
    assert put.words == "At 09:00, Monday to Friday (Europe/Berlin)"
    shown = await running.stub.GetRecurring(pb.GetRecurringRequest(id="daily"))
    rule.route = "default"
    assert shown.rule == rule
    assert (shown.state, list(shown.next)) == ("active", list(put.next))
    again = await running.stub.PutRecurring(pb.PutRecurringRequest(id="daily", rule=rule))
    assert (again.version, again.made) == (1, False)
    page = await running.stub.ListRecurring(pb.ListRecurringRequest(limit=10))
    assert ([one.id for one in page.items], page.next) == (["daily"], "")
    gone = await running.stub.DeleteRecurring(pb.DeleteRecurringRequest(id="daily", version=1))
    assert gone.id == "daily"
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await running.stub.GetRecurring(pb.GetRecurringRequest(id="daily"))
    assert error.value.code() is CODE.NOT_FOUND


async def test_bytes_are_planted_as_they_are(running: Running) -> None:
    rule = pb.RecurringRule(every=Duration(seconds=900), payload=b"\x00\xff")
    await running.stub.PutRecurring(pb.PutRecurringRequest(id="r", rule=rule))
    assert running.parts.recurring is not None
    name = await running.parts.recurring.trigger("r")
    message = await running.stub.Get(pb.GetRequest(id=name))
    assert (message.payload, message.content_type) == (b"\x00\xff", "application/octet-stream")
    shown = await running.stub.GetRecurring(pb.GetRecurringRequest(id="r"))
    assert (shown.words, shown.rule.every.seconds) == ("Every 15 minutes", 900)
    assert [(one.id, one.state) for one in shown.last] == [(name, pb.STATE_SCHEDULED)]


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        (pb.RecurringRule(cron="0 0 30 2 *"), "cron"),
        (pb.RecurringRule(every=Duration(nanos=1)), "every"),
        (pb.RecurringRule(cron="0 9 * * *", zone="Nowhere"), "zone"),
        (pb.RecurringRule(every=Duration(seconds=9), route="nowhere"), "route"),
        (pb.RecurringRule(every=Duration(seconds=9), jitter=Duration(seconds=-1)), "jitter"),
        (
            pb.RecurringRule(
                every=Duration(seconds=9), payload=b"{", content_type="application/json"
            ),
            "payload",
        ),
    ],
)
async def test_what_makes_no_sense_names_its_field(
    running: Running, rule: pb.RecurringRule, field: str
) -> None:
    asked = pb.PutRecurringRequest(id="r", rule=rule)
    error = await refusal(running.stub.PutRecurring(asked))
    assert error.code() is CODE.INVALID_ARGUMENT
    assert field_of(error) == field


async def test_a_change_of_another_version_is_aborted(running: Running) -> None:
    rule = pb.RecurringRule(every=Duration(seconds=900))
    await running.stub.PutRecurring(pb.PutRecurringRequest(id="r", rule=rule))
    stale = pb.PutRecurringRequest(id="r", rule=rule, version=7)
    assert (await refusal(running.stub.PutRecurring(stale))).code() is CODE.ABORTED
