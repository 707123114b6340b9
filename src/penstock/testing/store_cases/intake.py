"""PUT: durable, idempotent, byte-exact."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from penstock.flow.intake import Intake
from penstock.flow.observe import Observer
from penstock.model.message import Labels, Message, NewMessage, OnConflict
from penstock.model.outcome import Action, Amendment, Receipt
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.ports.store import MessageStore, Store
from penstock.testing import poison
from penstock.testing.store_cases.base import (
    FAR,
    StoreCases,
    amend,
    claim,
    claim_one,
    ending,
    held,
    new,
    put,
    put_due,
    settle,
    words,
)

_AWKWARD = 'Ünïcødé "quoted" \\ back/slash 日本語 🚰 مرحبا'

_KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "keyed": {"key": "k", "route": "other", "priority": 2},
    "headed": {"headers": {"n": "1"}},
    "expiring": {"expires": 9_000_000_000_000},
}


class IntakeCases(StoreCases):
    async def test_a_put_answers_each_message_in_order(self, store: MessageStore) -> None:
        now = store.clock.now()
        messages = [new(due=now + FAR + place) for place in range(20)]
        receipts = await store.put(messages, now)
        assert [(r.id, r.state, r.due, r.duplicate) for r in receipts] == [
            (m.id, State.SCHEDULED, m.due, False) for m in messages
        ]

    async def test_a_message_that_comes_blocked_is_kept_with_its_reason_and_never_claimed(
        self, store: MessageStore
    ) -> None:
        now = store.clock.now()
        blocked, other = new(due=now, blocked="decided elsewhere"), new(due=now)
        receipts = await store.put([blocked, other], now)
        assert [r.state for r in receipts] == [State.BLOCKED, State.SCHEDULED]
        again = (await store.put([blocked], now))[0]
        assert (again.state, again.duplicate) == (State.BLOCKED, True)
        assert [m.id for m in (await claim(store)).messages] == [other.id]
        message = await held(store, blocked.id)
        assert (message.state, message.last_error) == (State.BLOCKED, "decided elsewhere")
        assert message.settled is not None
        assert (await words(store, blocked.id))[-1] == "blocked"

    async def test_nothing_replaces_a_message_that_came_blocked_in_the_same_batch(
        self, store: MessageStore
    ) -> None:
        now = store.clock.now()
        blocked = new(due=now, blocked="decided elsewhere")
        twin = new(blocked.id, due=now - 1, on_conflict=OnConflict.REPLACE, payload=b"other")
        receipts = await store.put([blocked, twin], now)
        assert [(r.state, r.duplicate) for r in receipts] == [
            (State.BLOCKED, False),
            (State.BLOCKED, True),
        ]
        assert (await held(store, blocked.id)).payload == blocked.payload

    async def test_a_message_that_comes_dead_is_kept_for_a_person_and_can_be_redriven(
        self, store: MessageStore
    ) -> None:
        now = store.clock.now()
        poison = new(due=now, dead="cannot be read", payload=b"\xff", key="k")
        elsewhere = new(due=now, dead="cannot be read", route="other")
        other, blocked = new(due=now), new(due=now, blocked="no")
        receipts = await store.put([poison, other, elsewhere, blocked], now)
        ends = [State.DEAD, State.SCHEDULED, State.DEAD, State.BLOCKED]
        assert [r.state for r in receipts] == ends
        again = (await store.put([poison], now))[0]
        assert (again.state, again.duplicate) == (State.DEAD, True)
        assert [m.id for m in (await claim(store)).messages] == [other.id]
        message = await held(store, poison.id)
        assert (message.state, message.last_error) == (State.DEAD, "cannot be read")
        assert (message.payload, message.attempt, message.settled) == (b"\xff", 0, now)
        assert (await words(store, poison.id))[-1] == "dead"
        page = await store.search(Filter(state=State.DEAD, route=poison.route), None, 10)
        assert [m.id for m in page.items] == [poison.id]
        assert (await store.figures(now)).routes[poison.route].dead == 1
        await store.amend([Amendment(action=Action.REDRIVE, id=poison.id)], now)
        assert [m.id for m in (await claim(store)).messages] == [poison.id]

    async def test_a_nul_in_a_text_hurts_nobody_and_is_no_other_character(
        self, store: MessageStore
    ) -> None:
        now = store.clock.now()
        blocked, other = new(due=now, blocked="no\x00t"), new(due=now, key="a�b")
        receipts = await store.put([blocked, other], now)
        assert [r.state for r in receipts] == [State.BLOCKED, State.SCHEDULED]
        assert str((await held(store, blocked.id)).last_error).startswith("no")
        assert (await store.search(Filter(key="a\x00b"), None, 10)).items == []
        assert await store.find(["a\x00b"]) == [None]
        assert [m.id for m in (await store.search(Filter(key="a�b"), None, 10)).items] == [other.id]

    async def test_an_empty_put_answers_nothing(self, store: MessageStore) -> None:
        assert await store.put([], store.clock.now()) == []

    async def test_a_put_of_thousands_keeps_them_all(self, store: MessageStore) -> None:
        now = store.clock.now()
        messages = [new(due=now + FAR) for _ in range(1_700)]
        receipts = await store.put(messages, now)
        assert [r.id for r in receipts] == [m.id for m in messages]
        assert None not in await store.find([m.id for m in messages])

    async def test_every_field_comes_back_as_it_was_put(self, store: MessageStore) -> None:
        now = store.clock.now()
        labels = Labels(
            channel="push",
            campaign=_AWKWARD,
            class_="promotional",
            tags=("a", "ü"),
            tz="Asia/Seoul",
        )
        message = new(
            due=now + FAR,
            route="other.route_1",
            key=_AWKWARD,
            payload=b"\x00\xff\n",
            content_type="application/octet-stream",
            headers={"x-one": _AWKWARD, "x-two": ""},
            expires=now + FAR + 1,
            priority=9,
            labels=labels,
            topic="orders.eu",
        )
        await put(store, message)
        found = await held(store, message.id)
        for field in message.__struct_fields__:
            if field not in {
                "on_conflict",
                "blocked",
                "dead",
            }:  # options of the put, not content
                assert getattr(found, field) == getattr(message, field), field
        assert (found.state, found.version, found.attempt) == (State.SCHEDULED, 1, 0)
        assert found.created == now
        assert (found.claimed, found.settled, found.last_error) == (None, None, None)
        assert not found.cancel_pending

    @pytest.mark.parametrize("kinds", [["plain"], ["keyed"], ["keyed", "plain"], [*_KINDS]])
    async def test_a_message_comes_back_whole_whatever_its_neighbours_have(
        self, store: MessageStore, kinds: list[str]
    ) -> None:
        now = store.clock.now()
        messages = [
            new(due=now + FAR, payload=b"%d" % place, **_KINDS[kinds[place % len(kinds)]])
            for place in range(21)
        ]
        await put(store, *messages, messages[3], messages[-1])
        found = [await held(store, message.id) for message in messages]
        for name in ("id", "route", "key", "payload", "priority", "due", "headers", "expires"):
            assert [getattr(f, name) for f in found] == [getattr(m, name) for m in messages], name

    @pytest.mark.parametrize(
        "payload",
        [b"", b"null", b"\x00" * 64, bytes(range(256)) * 1024, b"\xed\xa0\x80", b'{"a": 1.0 }'],
        ids=["empty", "null", "nuls", "256 KiB", "not utf-8", "spaces"],
    )
    async def test_a_payload_is_byte_exact_when_found_and_claimed(
        self, store: MessageStore, payload: bytes
    ) -> None:
        (message_id,) = await put_due(store, payload=payload)
        assert (await held(store, message_id)).payload == payload
        (claimed,) = (await claim(store)).messages
        assert claimed.payload == payload

    async def test_no_hostile_message_hurts_those_put_and_claimed_with_it(
        self, opened: Store
    ) -> None:
        """By way of intake: what it lets through comes back whole, and what it refuses is refused
        alone."""
        store = opened.messages
        now = store.clock.now()
        hostile = [
            NewMessage(
                one.id,
                "r",
                one.key,
                one.payload,
                now,
                content_type=one.content_type,
                headers=one.headers,
                topic=one.topic,
            )
            for one in poison.MESSAGES.values()
        ]
        innocents = [new(due=now) for _ in range(poison.INNOCENTS)]
        outcomes = await Intake(store, Observer()).put([*hostile, *innocents], now)
        assert all(isinstance(outcome, Receipt) for outcome in outcomes[len(hostile) :])
        taken = [
            message
            for message, outcome in zip(hostile, outcomes, strict=False)
            if isinstance(outcome, Receipt)
        ]
        claimed: dict[str, Message] = {}
        while messages := (await claim(store)).messages:
            claimed |= {message.id: message for message in messages}
        assert claimed.keys() == {message.id for message in (*taken, *innocents)}
        for message in taken:
            for field in ("key", "payload", "content_type", "headers", "topic"):
                assert getattr(claimed[message.id], field) == getattr(message, field), message.id
        assert {message.attempt for message in claimed.values()} == {1}

    @pytest.mark.parametrize("message_id", ["!", "~" * 200, "a b", "%41", "'; --", "{x}:y#z/.."])
    async def test_any_printable_id_is_one_identity(
        self, store: MessageStore, message_id: str
    ) -> None:
        now = store.clock.now()
        first, second = await put(store, new(message_id, due=now), new(message_id, due=now))
        assert not first.duplicate
        assert second.duplicate
        ((found,),) = [(await claim(store)).messages]
        assert found.id == message_id

    async def test_ids_that_differ_in_case_are_two_messages(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        receipts = await put(store, new("Same", due=due), new("same", due=due))
        assert not any(receipt.duplicate for receipt in receipts)

    async def test_a_known_id_is_a_duplicate_and_the_first_stays(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        await put(store, new("x", due=due, payload=b"1"))
        (receipt,) = await put(store, new("x", due=due + 5, payload=b"2"))
        assert (receipt.duplicate, receipt.due, receipt.state) == (True, due, State.SCHEDULED)
        found = await held(store, "x")
        assert (found.payload, found.due, found.version) == (b"1", due, 1)

    async def test_an_id_twice_in_one_batch_is_one_message(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        batch = [new("x", due=due), new("y", due=due), new("x", due=due + 1), new("x", due=due + 2)]
        receipts = await put(store, *batch)
        assert [r.duplicate for r in receipts] == [False, False, True, True]
        assert {r.due for r in receipts} == {due}

    async def test_known_and_new_ids_mix_in_a_batch(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        await put(store, new("b", due=due), new("d", due=due))
        receipts = await put(store, *(new(name, due=due) for name in "abcde"))
        assert [r.duplicate for r in receipts] == [False, True, False, True, False]

    async def test_many_callers_with_one_id_make_one_message(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        answers = await asyncio.gather(
            *(put(store, new("x", due=due + place), new(due=due)) for place in range(40))
        )
        receipts = [answer[0] for answer in answers]
        assert sum(not receipt.duplicate for receipt in receipts) == 1
        (kept,) = (receipt for receipt in receipts if not receipt.duplicate)
        assert {receipt.due for receipt in receipts} == {kept.due}
        assert not any(answer[1].duplicate for answer in answers)

    async def test_replace_takes_the_place_of_one_that_waits(self, store: MessageStore) -> None:
        now = store.clock.now()
        await put(store, new("x", due=now + FAR, payload=b"1", headers={"a": "1"}, priority=1))
        replacing = new(
            "x", due=now, payload=b"2", route="s", priority=7, on_conflict=OnConflict.REPLACE
        )
        (receipt,) = await put(store, replacing)
        assert (receipt.duplicate, receipt.due, receipt.state) == (True, now, State.SCHEDULED)
        found = await held(store, "x")
        assert (found.payload, found.due, found.route) == (b"2", now, "s")
        assert (found.headers, found.priority, found.version) == (None, 7, 2)
        assert await words(store, "x") == ["accepted", "replaced"]
        assert (await claim(store)).messages == ()
        assert [m.id for m in (await claim(store, route="s")).messages] == ["x"]

    async def test_earliest_keeps_whichever_is_due_first(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        await put(store, new("x", due=due, payload=b"1"))
        earliest = OnConflict.EARLIEST
        later, sooner, same = await put(
            store,
            new("x", due=due + 1, payload=b"2", on_conflict=earliest),
            new("x", due=due - 1, payload=b"3", on_conflict=earliest),
            new("x", due=due - 1, payload=b"4", on_conflict=earliest),
        )
        assert (later.due, sooner.due, same.due) == (due, due - 1, due - 1)
        assert later.duplicate
        assert sooner.duplicate
        assert same.duplicate
        found = await held(store, "x")
        assert (found.payload, found.version) == (b"3", 2)

    async def test_a_replacement_in_the_same_batch_acts_in_order(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        first, second, third = await put(
            store,
            new("x", due=due),
            new("x", due=due + 9, on_conflict=OnConflict.REPLACE),
            new("x", due=due + 5),
        )
        assert [first.due, second.due, third.due] == [due, due + 9, due + 9]

    @pytest.mark.parametrize("choice", [OnConflict.REPLACE, OnConflict.EARLIEST])
    async def test_on_conflict_does_nothing_once_it_is_released(
        self, store: MessageStore, choice: OnConflict
    ) -> None:
        message, token = await claim_one(store)
        again = new(message.id, due=message.due - 1, payload=b"2", on_conflict=choice)
        (receipt,) = await put(store, again)
        assert (receipt.duplicate, receipt.state) == (True, State.LEASED)
        assert receipt.due == message.due
        await settle(store, ending(message, token))
        (receipt,) = await put(store, again)
        assert (receipt.duplicate, receipt.state) == (True, State.DELIVERED)
        assert (await claim(store)).messages == ()

    async def test_a_cancelled_id_stays_a_duplicate(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        await put(store, new("x", due=due))
        await amend(store, Action.CANCEL, "x")
        (receipt,) = await put(store, new("x", due=due, on_conflict=OnConflict.REPLACE))
        assert (receipt.duplicate, receipt.state) == (True, State.CANCELLED)

    async def test_find_answers_in_order_and_none_for_unknown(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        await put(store, new("a", due=due), new("b", due=due))
        found = await store.find(["b", "nobody", "a", "b"])
        assert [None if m is None else m.id for m in found] == ["b", None, "a", "b"]
        assert await store.find([]) == []
        assert await store.get("nobody") is None

    async def test_get_answers_the_message_that_find_does(self, store: MessageStore) -> None:
        await put(store, new("a", due=store.clock.now(), headers={"a": "b"}, key="who"))
        found = await store.get("a")
        assert found is not None
        message, lines = found
        assert [message] == await store.find(["a"])
        assert [(line.at, line.event) for line in lines] == [(message.created, "accepted")]

    async def test_a_cancelled_caller_does_not_harm_the_others(self, store: MessageStore) -> None:
        due = store.clock.now() + FAR
        gone = asyncio.ensure_future(put(store, new("gone", due=due)))
        stays = asyncio.ensure_future(put(store, new("stays", due=due)))
        await asyncio.sleep(0)
        gone.cancel()
        (receipt,) = await stays
        assert not receipt.duplicate
        with pytest.raises(asyncio.CancelledError):
            await gone
        await held(store, "stays")
