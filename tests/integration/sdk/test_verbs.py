"""The same verbs with the same answers, embedded and over HTTP."""

from __future__ import annotations

import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

import penstock
from penstock.model.draft import Draft
from penstock.model.outcome import Action, Amendment
from penstock.model.times import format_moment
from penstock.sdk.async_client import AsyncClient
from penstock.wiring import Parts
from tests.integration.deaths import kill_all

ODD_IDS = ["..", ".", "a/../b", "a b?c#d%2F", "batch", "cancel", '"\\', "~" * 200]


async def test_a_message_comes_back_as_it_was_given(verbs: AsyncClient) -> None:
    receipt = await verbs.schedule(
        {"a": [1, "ü"]},
        route="push",
        id="m1",
        key="user-1",
        delay=timedelta(hours=1),
        headers={"x-a": "b"},
        expires=datetime(2090, 1, 1, tzinfo=UTC),
        priority=9,
        labels={"channel": "push", "tags": ["x", "y"]},
    )
    message = await verbs.get("m1")
    assert receipt == penstock.Receipt("m1", penstock.State.SCHEDULED, message.due)
    assert message.payload == '{"a":[1,"ü"]}'.encode()
    assert (message.key, message.priority, message.headers) == ("user-1", 9, {"x-a": "b"})
    assert message.labels == penstock.Labels(channel="push", tags=("x", "y"))
    assert message.expires == 3786912000000
    assert [event.event for event in await verbs.timeline("m1")] == ["accepted"]


async def test_the_same_id_twice_is_one_message(verbs: AsyncClient) -> None:
    first = await verbs.schedule(1, id="m1", delay="1h")
    again = await verbs.schedule(2, id="m1", delay="2h")
    assert again == msgspec.structs.replace(first, duplicate=True)


@pytest.mark.parametrize("payload", [b"\x00\xff\n", b"plain", b""])
async def test_bytes_are_kept_as_they_are(verbs: AsyncClient, payload: bytes) -> None:
    await verbs.schedule(payload, id="m1", delay="1h")
    (outcome,) = await verbs.schedule_many([{"payload": payload, "id": "m2", "delay": "1h"}])
    assert isinstance(outcome, penstock.Receipt)
    for held in (await verbs.get("m1"), await verbs.get("m2")):
        assert (held.payload, held.content_type) == (payload, "application/octet-stream")


async def test_json_of_several_lines_survives_a_batch(verbs: AsyncClient) -> None:
    text = msgspec.Raw(b'{\n  "a": 1\n}')
    await verbs.schedule_many([{"payload": text, "id": "m1", "delay": "1h"}])
    assert (await verbs.get("m1")).payload == b'{\n  "a": 1\n}'


@pytest.mark.parametrize("message_id", ODD_IDS)
async def test_an_id_of_any_printable_characters_is_found(
    verbs: AsyncClient, message_id: str
) -> None:
    await verbs.schedule(1, id=message_id, delay="1h")
    assert (await verbs.get(message_id)).id == message_id
    assert (await verbs.reschedule(message_id, delay="2h")).version == 2
    assert (await verbs.release(message_id)).id == message_id
    assert (await verbs.cancel(message_id)).state is penstock.State.CANCELLED


async def test_a_batch_tells_the_good_from_the_bad_in_order(verbs: AsyncClient) -> None:
    outcomes = await verbs.schedule_many(
        [
            {"payload": 1, "id": "good"},
            {"payload": 2, "route": "nosuch"},
            {"payload": 3, "at": datetime(2030, 1, 1)},  # noqa: DTZ001 - naive on purpose
            {"payload": 4, "colour": "red"},
            {"payload": "x" * 20_000},
            penstock.draft(5, id="good"),
            Draft(id="made-by-hand"),
        ]
    )
    assert [type(outcome) for outcome in outcomes] == [
        penstock.Receipt,
        penstock.UnknownRoute,
        penstock.InvalidMessage,
        penstock.InvalidMessage,
        penstock.TooLarge,
        penstock.Receipt,
        penstock.Receipt,
    ]
    assert [getattr(outcome, "field", None) for outcome in outcomes[1:4]] == [
        "route",
        "at",
        "colour",
    ]
    assert isinstance(outcomes[5], penstock.Receipt)
    assert outcomes[5].duplicate


async def test_a_batch_of_many_requests_is_one_list(
    verbs: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.sdk.calls.BATCH_MESSAGES", 7)
    wanted = [{"payload": n, "id": f"m{n:03}", "delay": "1h"} for n in range(50)]
    outcomes = await verbs.schedule_many(iter(wanted))
    assert [o.id for o in outcomes if isinstance(o, penstock.Receipt)] == [m["id"] for m in wanted]


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (7, "message"),
        ("text", "message"),
        (None, "message"),
        ({"payload": float("nan")}, "payload"),
        ({"headers": 7}, "headers"),
        ({"labels": 7}, "labels"),
        ({"at": 7}, "at"),
        ({"delay": [1]}, "delay"),
        ({"priority": "high"}, "priority"),
        ({"route": 7}, "route"),
        ({"route": None}, "route"),
        ({"content_type": 7}, "content_type"),
        ({"key": 7}, "key"),
        ({"id": 7}, "id"),
    ],
)
async def test_what_is_no_message_is_an_error_in_its_place(
    verbs: AsyncClient, bad: Any, field: str
) -> None:
    good = {"payload": 1, "delay": "1h"}
    first, wrong, last = await verbs.schedule_many([good, bad, good])
    assert isinstance(wrong, penstock.PenstockError)
    assert wrong.field == field
    assert isinstance(first, penstock.Receipt)
    assert isinstance(last, penstock.Receipt)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
async def test_a_number_json_has_no_word_for_is_refused(verbs: AsyncClient, number: float) -> None:
    for payload in (number, {"x": number}, {"x": [None, (1.5, number)]}, {"x": {number}}):
        with pytest.raises(penstock.InvalidMessage, match=r"payload: nan and infinity"):
            await verbs.schedule(payload)
    await verbs.schedule({"x": None, "y": msgspec.Raw(b"null")}, id="m1", delay="1h")
    with pytest.raises(penstock.InvalidMessage, match="payload"):
        await verbs.reschedule("m1", payload=number)
    assert (await verbs.get("m1")).payload == b'{"x":null,"y":null}'


async def test_an_argument_that_is_none_is_told_with_the_verb(verbs: AsyncClient) -> None:
    with pytest.raises(TypeError, match=r"^schedule\(\).*'prio'; did you mean 'priority'"):
        await verbs.schedule(1, prio=3)  # type: ignore[call-arg]


async def test_an_empty_batch_has_no_outcomes(verbs: AsyncClient) -> None:
    assert await verbs.schedule_many([]) == []


async def test_a_list_is_read_page_by_page(verbs: AsyncClient) -> None:
    for n in range(5):
        await verbs.schedule(n, id=f"m{n}", delay=3600 + n, key="k")
    await verbs.schedule(9, id="other", delay="1h")
    first, cursor = await verbs.list(key="k", limit=3)
    rest, end = await verbs.list(key="k", limit=3, cursor=cursor)
    assert [m.id for m in first + rest] == ["m0", "m1", "m2", "m3", "m4"]
    assert (cursor is not None, end) == (True, None)
    since = format_moment(first[2].due)
    later, _ = await verbs.list(key="k", due_from=since, state="scheduled")
    assert [m.id for m in later] == ["m2", "m3", "m4"]


async def test_a_bad_filter_names_its_field(verbs: AsyncClient) -> None:
    for wrong in ({"state": "lost"}, {"limit": 0}, {"due_from": "noon"}, {"cursor": "!"}):
        with pytest.raises(penstock.PenstockError) as caught:
            await verbs.list(**wrong)
        assert caught.value.field == next(iter(wrong))


async def test_what_cannot_be_changed_says_why(verbs: AsyncClient) -> None:
    with pytest.raises(penstock.UnknownMessage, match="'nobody'") as unknown:
        await verbs.get("nobody")
    assert unknown.value.message_id == "nobody"
    await verbs.schedule(1, id="m1", delay="1h")
    with pytest.raises(penstock.VersionConflict) as conflict:
        await verbs.cancel("m1", version=7)
    assert (conflict.value.message_id, conflict.value.version) == ("m1", 1)
    await verbs.cancel("m1", version=1)
    with pytest.raises(penstock.AlreadyReleased) as late:
        await verbs.release("m1")
    assert (late.value.state, late.value.cancel_pending) == ("cancelled", False)
    with pytest.raises(penstock.InvalidMessage) as invalid:
        await verbs.schedule(1, priority=12)
    assert invalid.value.field == "priority"
    with pytest.raises(penstock.UnknownRoute, match="nosuch"):
        await verbs.schedule(1, route="nosuch")
    with pytest.raises(penstock.TooLarge):
        await verbs.schedule("x" * 20_000)


async def test_a_delay_that_is_not_a_number_is_refused(verbs: AsyncClient) -> None:
    for delay in (float("nan"), float("inf"), -1.0):
        with pytest.raises(penstock.InvalidMessage, match="delay"):
            await verbs.schedule(1, delay=delay)


async def test_a_waiting_message_changes_what_it_says(verbs: AsyncClient) -> None:
    before = await verbs.schedule({"a": 1}, id="m1", delay="1h")
    after = await verbs.reschedule("m1", payload={"a": 2}, priority=1, headers={"x": "y"})
    assert (after.payload, after.priority, after.headers) == (b'{"a":2}', 1, {"x": "y"})
    assert (after.due, after.version) == (before.due, 2)
    with pytest.raises(penstock.InvalidMessage):
        await verbs.reschedule("m1")


async def test_everything_that_matches_is_cancelled(verbs: AsyncClient) -> None:
    for n in range(4):
        await verbs.schedule(n, id=f"m{n}", key="a" if n < 3 else "b", delay="1h")
    dry = await verbs.cancel_where(key="a", dry_run=True)
    assert (dry.matched, dry.done) == (3, 0)
    done = await verbs.cancel_where(key="a")
    assert (done.matched, done.done) == (3, 3)
    left, _ = await verbs.list(state="scheduled")
    assert [message.id for message in left] == ["m3"]


async def test_everything_that_matches_is_made_due_now(verbs: AsyncClient) -> None:
    for n in range(3):
        await verbs.schedule(n, id=f"m{n}", key="a" if n < 2 else "b", delay="1h")
    dry = await verbs.release_where(key="a", dry_run=True)
    assert (dry.matched, dry.done) == (2, 0)
    done = await verbs.release_where(key="a")
    assert (done.matched, done.done) == (2, 2)
    due = {message.id: message.due for message in (await verbs.list())[0]}
    assert max(due["m0"], due["m1"]) < due["m2"] - 3_000_000


async def test_everything_that_matches_is_moved_to_one_moment(verbs: AsyncClient) -> None:
    for n in range(3):
        await verbs.schedule(n, id=f"m{n}", key="a" if n < 2 else "b", delay="1h")
    then = datetime(2090, 1, 1, tzinfo=UTC)
    dry = await verbs.reschedule_where(at=then, key="a", dry_run=True)
    assert (dry.matched, dry.done) == (2, 0)
    done = await verbs.reschedule_where(at=then, key="a")
    assert (done.matched, done.done) == (2, 2)
    due = {message.id: message.due for message in (await verbs.list())[0]}
    assert due["m0"] == due["m1"] == int(then.timestamp() * 1000) > due["m2"]
    moved = await verbs.reschedule_where(delay=timedelta(hours=2), key="b")
    assert (moved.matched, moved.done) == (1, 1)
    with pytest.raises(penstock.InvalidMessage, match="say when"):
        await verbs.reschedule_where(key="a")


async def test_the_dead_are_redriven(verbs: AsyncClient, parts: Parts) -> None:
    await verbs.schedule(1, id="m1", route="push")
    await kill_all(parts.store.messages, "push", "HTTP 410 gone")
    assert (await verbs.get("m1")).last_error == "HTTP 410 gone"
    assert (await verbs.redrive(error="timeout")).matched == 0
    result = await verbs.redrive(route="push", error="410", rate="10/s")
    assert (result.matched, result.done) == (1, 1)
    assert (await verbs.get("m1")).state is penstock.State.SCHEDULED
    with pytest.raises(penstock.InvalidMessage, match="rate"):
        await verbs.redrive(rate="fast")


async def test_the_dead_are_deleted(verbs: AsyncClient, parts: Parts) -> None:
    for name in ("m1", "m2", "m3"):
        await verbs.schedule(1, id=name, route="push", key=name[:1])
    await kill_all(parts.store.messages, "push", "HTTP 410 gone")
    await verbs.schedule(1, id="waits", delay="1h")
    with pytest.raises(penstock.AlreadyReleased, match="is already dead"):
        await verbs.cancel("m1")  # a cancel is a cancel, whatever a DELETE may do
    with pytest.raises(penstock.AlreadyReleased):
        await verbs.delete("waits")
    with pytest.raises(penstock.VersionConflict):
        await verbs.delete("m1", version=7)
    assert (await verbs.delete("m1")).last_error == "HTTP 410 gone"
    with pytest.raises(penstock.UnknownMessage):
        await verbs.get("m1")
    counted = await verbs.delete_dead(key="m", error="410", dry_run=True)
    assert (counted.matched, counted.done) == (2, 0)
    assert (await verbs.delete_dead(error="timeout")).matched == 0
    deleted = await verbs.delete_dead(key="m")
    assert (deleted.matched, deleted.done) == (2, 2)
    with pytest.raises(penstock.InvalidMessage, match="only dead messages"):
        await verbs.delete_dead(state="scheduled")
    assert (await verbs.get("waits")).state is penstock.State.SCHEDULED


async def test_everything_of_a_key_is_forgotten(
    verbs: AsyncClient, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.flow.erase.STEP", 2)
    monkeypatch.setattr("penstock.flow.erase.PAGES", 2)
    for number in range(9):
        await verbs.schedule(1, id=f"m{number}", key="user1", delay=3600 + number)
    await verbs.schedule(1, id="sending", route="push", key="user1")
    await verbs.schedule(1, id="other", key="user2", delay="1h")
    claim = await parts.store.messages.claim("push", 1, 60_000, parts.store.clock.now())
    assert len(claim.messages) == 1
    erased = await verbs.forget("user1")
    assert (erased.key, erased.messages, erased.next) == ("user1", 9, None)
    assert erased.pending >= 1
    left, _ = await verbs.list()
    assert [(message.id, message.cancel_pending) for message in left] == [
        ("sending", True),
        ("other", False),
    ]


async def test_a_route_is_paused_and_resumed(verbs: AsyncClient) -> None:
    await verbs.schedule(1, route="push", delay="1h")
    await verbs.pause("push")
    status = {route.name: route for route in await verbs.routes()}
    assert (status["push"].paused, status["push"].scheduled) == (True, 1)
    assert (status["default"].paused, status["default"].sink) == (False, "log://")
    await verbs.resume("push")
    assert not any(route.paused for route in await verbs.routes())
    with pytest.raises(penstock.UnknownThing):
        await verbs.pause("nosuch")


async def test_figures_and_health_can_be_asked_for(verbs: AsyncClient) -> None:
    await verbs.schedule(1, delay="1h")
    stats = await verbs.stats()
    assert stats.states[penstock.State.SCHEDULED] == 1
    assert stats.routes["default"].scheduled == 1
    health = await verbs.health()
    assert (health.status, health.error) == ("ready", None)


async def test_a_cancel_while_it_is_being_sent_is_marked(verbs: AsyncClient, parts: Parts) -> None:
    await verbs.schedule(1, id="m1", route="push")
    now = parts.store.clock.now()
    await parts.store.messages.claim("push", 1, 60_000, now)
    await parts.store.messages.amend([Amendment(action=Action.CANCEL, id="m1")], now)
    with pytest.raises(penstock.AlreadyReleased) as caught:
        await verbs.cancel("m1")
    assert (caught.value.state, caught.value.cancel_pending) == ("leased", True)
    assert (await verbs.get("m1")).cancel_pending


DECORATORS = ("every", "cron")
"""Of functions that an engine calls; a client has none to call."""


def test_all_three_have_the_same_verbs_with_the_same_parameters() -> None:
    def verbs_of(kind: type) -> dict[str, list[str]]:
        return {
            name: list(inspect.signature(function).parameters)
            for name, function in inspect.getmembers(kind, inspect.isfunction)
            if not name.startswith("_") and name not in {"close", "run", *DECORATORS}
        }

    assert verbs_of(penstock.Client) == verbs_of(penstock.AsyncClient) == verbs_of(penstock.Engine)
