"""The clients against servers that are away, busy, slow, or not Penstock at all."""

from __future__ import annotations

import asyncio
import json

import pytest

import penstock
from penstock.model.errors import PenstockError
from penstock.sdk import calls
from penstock.sdk.asked import filter_of
from penstock.sdk.async_client import AsyncClient
from penstock.sdk.client import Client
from penstock.sdk.transport import NoReply, Wiring
from penstock.sdk.transport import Reply as Replied
from penstock.sim.receiver import Receiver
from penstock.sim.replies import How, Reply

ACCEPTED = '{"id":"x","state":"scheduled","due":"2030-01-01T00:00:00.000Z","duplicate":false}'
BUSY = '{"error":{"code":"store_unavailable","message":"the disk is full","field":null}}'


def busy(status: int = 503, retry_after: str | None = None) -> Replied:
    return Replied(status, BUSY.encode(), retry_after)


async def test_every_try_of_a_schedule_is_the_same_message() -> None:
    async with Receiver() as receiver, AsyncClient(receiver.url) as client:
        receiver.then(
            Reply(how=How.CUT), Reply(status=503, body=BUSY), Reply(status=201, body=ACCEPTED)
        )
        receipt = await client.schedule({"a": 1}, delay="1h")
        assert receipt.state is penstock.State.SCHEDULED
        ids = [json.loads(request.body)["id"] for request in receiver.received]
    assert len(ids) == 3
    assert len(set(ids)) == 1


async def test_every_try_of_a_batch_is_the_same_messages() -> None:
    async with Receiver() as receiver, AsyncClient(receiver.url) as client:
        receiver.then(Reply(how=How.CUT_BODY), Reply(body=f"{ACCEPTED}\n{ACCEPTED}\n"))
        outcomes = await client.schedule_many([{"payload": 1}, {"payload": 2}])
        assert len(outcomes) == 2
        first, second = (request.body for request in receiver.received)
    assert first == second


async def test_the_synchronous_client_tries_again_too() -> None:
    async with Receiver() as receiver:
        receiver.then(Reply(how=How.CUT), Reply(status=201, body=ACCEPTED))
        with Client(receiver.url) as client:
            receipt = await asyncio.to_thread(client.schedule, 1)
    assert receipt.id == "x"


async def test_a_change_with_a_version_is_not_repeated_blindly() -> None:
    async with Receiver() as receiver, AsyncClient(receiver.url) as client:
        receiver.always(Reply(how=How.CUT))
        with pytest.raises(penstock.Unreachable, match="broke"):
            await client.cancel("m1", version=3)
        assert [request.headers["if-match"] for request in receiver.received] == ['"3"']


@pytest.mark.parametrize("how", [How.CUT, How.CUT_BODY])
async def test_a_bulk_change_is_not_repeated_when_nobody_knows_how_far_it_came(how: How) -> None:
    async with Receiver() as receiver, AsyncClient(receiver.url) as client:
        receiver.always(Reply(how=how))
        with pytest.raises(penstock.Unreachable, match="broke"):
            await client.cancel_where(route="push")
        with pytest.raises(penstock.Unreachable, match="broke"):
            await client.redrive()
        assert len(receiver.received) == 2


async def test_a_bulk_change_is_waited_for_however_long_it_takes() -> None:
    counted = Reply(body='{"matched":3,"done":3}', delay=0.3)
    async with Receiver() as receiver, AsyncClient(receiver.url, timeout=0.05) as client:
        receiver.always(counted)
        assert (await client.cancel_where(route="push")).done == 3
        assert (await client.redrive(dry_run=True)).matched == 3
        assert len(receiver.received) == 2


def test_a_bulk_change_that_failed_part_of_the_way_is_not_repeated() -> None:
    patience = Wiring("http://h", None, 1.0, 3).tries()
    where = filter_of(route="push")
    assert patience.busy(calls.matching("cancelMany", where, dry_run=True), busy())
    assert patience.busy(calls.matching("cancelMany", where, dry_run=False), busy(429))
    with pytest.raises(penstock.StoreUnavailable):
        patience.busy(calls.matching("cancelMany", where, dry_run=False), busy())


def test_a_bulk_change_that_never_left_is_tried_again() -> None:
    patience = Wiring("http://h", None, 1.0, 3).tries()
    call: calls.Call[object] = calls.matching("redrive", filter_of(), dry_run=False)
    patience.failed(call, NoReply("refused", reached=False))
    assert patience.pause() > 0


async def test_a_missing_server_is_named_with_its_address() -> None:
    async with Receiver() as receiver:
        await receiver.down()
        async with AsyncClient(receiver.url, retries=0) as client:
            with pytest.raises(penstock.Unreachable, match=f"{receiver.url}.*penstock serve"):
                await client.get("m1")


async def test_a_silent_server_is_a_timeout() -> None:
    async with Receiver() as receiver:
        receiver.always(Reply(how=How.HANG))
        async with AsyncClient(receiver.url, retries=0, timeout=0.05) as client:
            with pytest.raises(penstock.Unreachable, match="did not answer in time"):
                await client.get("m1")


@pytest.mark.parametrize(
    "reply",
    [
        Reply(body="<html>welcome</html>"),
        Reply(body='{"hello":"world"}'),
        Reply(status=404, body="nginx"),
        Reply(status=302, headers={"location": "http://elsewhere.test/"}, body=""),
        Reply(status=500, body='{"error":{"code":"internal","message":"oh","field":null}}'),
    ],
)
async def test_what_is_not_penstock_is_told_as_such(reply: Reply) -> None:
    async with Receiver() as receiver, AsyncClient(receiver.url) as client:
        receiver.always(reply)
        with pytest.raises(penstock.ServerFault):
            await client.get("m1")
        assert len(receiver.received) == 1


async def test_a_batch_with_too_few_outcomes_is_a_fault() -> None:
    async with Receiver() as receiver, AsyncClient(receiver.url) as client:
        receiver.always(Reply(body=ACCEPTED))
        with pytest.raises(penstock.ServerFault, match="1 outcomes for 2 messages"):
            await client.schedule_many([{"payload": 1}, {"payload": 2}])


async def test_a_wrong_token_is_refused_at_once(url: str) -> None:
    async with AsyncClient(url, token="wrong") as client:
        with pytest.raises(penstock.Unauthorized):
            await client.get("m1")
    async with AsyncClient(url) as client:
        with pytest.raises(penstock.Unauthorized):
            await client.schedule(1)
        assert (await client.health()).status == "ready"  # needs none


@pytest.mark.parametrize("wrong", ["localhost:8700", "ftp://h/", "http://", "", "http://[::1"])
def test_an_address_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(penstock.ConfigError, match="url"):
        Client(wrong)


def test_a_pause_the_server_asks_for_is_kept() -> None:
    wiring = Wiring("http://h", None, 1.0, 3)
    call: calls.Call[object] = calls.call("stats")
    patience = wiring.tries()
    assert patience.busy(call, busy(retry_after="7"))
    assert patience.pause() >= 7
    assert patience.busy(call, busy(429))
    assert 0.1 <= patience.pause() <= 5


def test_a_pause_that_is_too_long_is_left_to_the_caller() -> None:
    patience = Wiring("http://h", None, 1.0, 3).tries()
    with pytest.raises(penstock.StoreUnavailable) as caught:
        patience.busy(calls.call("stats"), busy(retry_after="3600"))
    assert caught.value.retry_after == 3600


def test_patience_ends_with_what_the_server_said() -> None:
    patience = Wiring("http://h", None, 1.0, 2).tries()
    assert patience.busy(calls.call("stats"), busy())
    assert patience.busy(calls.call("stats"), busy())
    with pytest.raises(penstock.StoreUnavailable, match="the disk is full"):
        patience.busy(calls.call("stats"), busy())


def test_pauses_grow_and_differ() -> None:
    def pauses() -> list[float]:
        patience = Wiring("http://h", None, 1.0, 6).tries()
        return [patience.pause() for _ in range(6) if patience.busy(calls.call("stats"), busy())]

    first, second = pauses(), pauses()
    assert first != second
    assert first[-1] > first[0]


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (kind.code, kind)
        for kind in (
            penstock.Forbidden,
            penstock.InvalidMessage,
            penstock.Malformed,
            penstock.Overloaded,
            penstock.StoreCorrupt,
            penstock.StoreUnavailable,
            penstock.TooLarge,
            penstock.Unauthorized,
            penstock.UnknownRoute,
            penstock.UnknownThing,
        )
    ],
)
def test_a_code_of_the_server_is_the_same_class_here(code: str, kind: type[PenstockError]) -> None:
    body = json.dumps({"error": {"code": code, "message": "route: said so", "field": "route"}})
    patience = Wiring("http://h", None, 1.0, 0).tries()
    with pytest.raises(kind) as caught:
        patience.busy(calls.call("stats"), Replied(400, body.encode()))
    assert type(caught.value) is kind
    assert caught.value.message == "route: said so"
