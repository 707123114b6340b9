"""AMEND and TIMELINE: a definite answer each, and a record of what happened."""

from __future__ import annotations

import pytest

from penstock.model.message import Labels
from penstock.model.outcome import Action, Amendment, Answer
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.testing.store_cases.base import (
    AFTER_SHORT,
    FAR,
    SHORT,
    StoreCases,
    amend,
    claim,
    claim_one,
    ending,
    held,
    listed,
    new,
    put,
    settle,
    timeline,
    words,
)
from penstock.testing.store_harness import StoreHarness

_LABELS = Labels(channel="push")
_SETTLED = [State.DELIVERED, State.BLOCKED, State.EXPIRED]


async def _settled(store: MessageStore, state: State) -> str:
    message, token = await claim_one(store)
    await settle(store, ending(message, token, state, error="because"))
    return message.id


async def _assert_gone(store: MessageStore, message_id: str) -> None:
    """The message is gone, and a put with its id is a new message."""
    assert await store.find([message_id]) == [None]
    assert await store.get(message_id) is None
    assert await listed(store, Filter()) == []
    assert await listed(store, Filter(key="who")) == []
    (receipt,) = await put(store, new(message_id, due=store.clock.now(), key="other"))
    assert not receipt.duplicate
    assert [m.id for m in (await claim(store)).messages] == [message_id]
    assert await words(store, message_id) == ["accepted", "released"]


class AmendCases(StoreCases):
    @pytest.mark.parametrize("action", Action)
    async def test_an_unknown_id_is_answered_so(self, store: MessageStore, action: Action) -> None:
        answer = await amend(store, action, "nobody", version=9)
        assert (answer.answer, answer.message) == (Answer.UNKNOWN, None)

    async def test_a_cancelled_message_is_never_claimed(self, store: MessageStore) -> None:
        await put(store, new("x", due=store.clock.now()))
        answer = await amend(store, Action.CANCEL, "x")
        assert answer.answer is Answer.DONE
        assert answer.message is not None
        assert (answer.message.state, answer.message.version) == (State.CANCELLED, 2)
        assert answer.message.settled is not None
        assert answer.message == await held(store, "x")
        assert (await claim(store)).messages == ()

    async def test_cancelling_twice_is_the_same_answer_twice(self, store: MessageStore) -> None:
        await put(store, new("x", due=store.clock.now() + FAR))
        first = await amend(store, Action.CANCEL, "x")
        second = await amend(store, Action.CANCEL, "x", version=1)
        assert first == second

    async def test_a_leased_message_is_marked_and_answered_released(
        self, store: MessageStore
    ) -> None:
        message, _ = await claim_one(store)
        for _ in range(2):
            answer = await amend(store, Action.CANCEL, message.id, version=99)
            assert answer.answer is Answer.RELEASED
            assert answer.message is not None
            assert answer.message.cancel_pending
        assert (await held(store, message.id)).version == 1

    @pytest.mark.parametrize(
        "action", [Action.RESCHEDULE, Action.RELEASE, Action.REDRIVE, Action.DELETE]
    )
    async def test_a_leased_message_cannot_be_changed(
        self, store: MessageStore, action: Action
    ) -> None:
        message, _ = await claim_one(store)
        answer = await amend(store, action, message.id, due=store.clock.now() + FAR)
        assert answer.answer is Answer.RELEASED
        found = await held(store, message.id)
        assert (found.due, found.state, found.cancel_pending) == (
            message.due,
            State.LEASED,
            False,
        )

    @pytest.mark.parametrize("action", sorted(set(Action) - {Action.ERASE}))
    @pytest.mark.parametrize("state", _SETTLED)
    async def test_a_settled_message_cannot_be_changed(
        self, store: MessageStore, state: State, action: Action
    ) -> None:
        message_id = await _settled(store, state)
        before = await held(store, message_id)
        answer = await amend(store, action, message_id, version=99, due=store.clock.now())
        assert (answer.answer, answer.message) == (Answer.RELEASED, before)
        assert await held(store, message_id) == before

    @pytest.mark.parametrize("action", [Action.CANCEL, Action.RESCHEDULE, Action.RELEASE])
    async def test_another_version_is_a_conflict_and_changes_nothing(
        self, store: MessageStore, action: Action
    ) -> None:
        due = store.clock.now() + FAR
        await put(store, new("x", due=due))
        answer = await amend(store, action, "x", version=2, due=due + 1)
        assert answer.answer is Answer.CONFLICT
        found = await held(store, "x")
        assert answer.message == found
        assert (found.state, found.due, found.version) == (State.SCHEDULED, due, 1)
        assert (await amend(store, action, "x", version=1, due=due + 1)).answer is Answer.DONE

    async def test_reschedule_changes_what_is_given_and_leaves_the_rest(
        self, store: MessageStore
    ) -> None:
        now = store.clock.now()
        await put(
            store,
            new("x", due=now, payload=b"1", headers={"a": "1"}, labels=Labels(channel="sms")),
        )
        await amend(store, Action.RESCHEDULE, "x", due=now + FAR)
        found = await held(store, "x")
        assert (found.due, found.payload, found.headers) == (now + FAR, b"1", {"a": "1"})
        assert (found.labels, found.version) == (Labels(channel="sms"), 2)
        assert (await claim(store)).messages == ()
        changed = await amend(
            store,
            Action.RESCHEDULE,
            "x",
            payload=b"\x00",
            content_type="application/octet-stream",
            headers={"b": "2"},
            expires=now + FAR * 2,
            priority=9,
            labels=Labels(tags=("t",)),
        )
        found = await held(store, "x")
        assert changed.message == found
        assert (found.due, found.payload, found.headers) == (now + FAR, b"\x00", {"b": "2"})
        assert (found.expires, found.priority) == (now + FAR * 2, 9)
        assert (found.content_type, found.version) == ("application/octet-stream", 3)
        assert found.labels == Labels(tags=("t",))

    async def test_a_message_moved_nearer_is_claimed_at_its_new_place(
        self, store: MessageStore
    ) -> None:
        now = store.clock.now()
        await put(store, new("x", due=now + FAR), new("y", due=now - 5))
        await amend(store, Action.RESCHEDULE, "x", due=now - 9, priority=5)
        assert [m.id for m in (await claim(store)).messages] == ["x", "y"]

    async def test_release_makes_it_due_now(self, store: MessageStore) -> None:
        await put(store, new("x", due=store.clock.now() + FAR))
        now = store.clock.now()
        (answer,) = await store.amend([Amendment(action=Action.RELEASE, id="x")], now)
        assert answer.answer is Answer.DONE
        assert answer.message is not None
        assert (answer.message.due, answer.message.version) == (now, 2)
        assert [m.id for m in (await claim(store)).messages] == ["x"]

    async def test_redrive_sends_a_dead_message_once_more(self, store: MessageStore) -> None:
        message, token = await claim_one(store, payload=b"kept", headers={"a": "b"})
        await settle(store, ending(message, token, State.DEAD, error="refused"))
        due = store.clock.now()
        answer = await amend(store, Action.REDRIVE, message.id, due=due)
        assert answer.answer is Answer.DONE
        found = await held(store, message.id)
        assert answer.message == found
        assert (found.state, found.due, found.version) == (State.SCHEDULED, due, 2)
        assert (found.attempt, found.attempt_floor) == (1, 1)
        assert found.settled is None
        (again,) = (await claim(store)).messages
        assert (again.attempt, again.attempt_floor, again.payload) == (2, 1, b"kept")
        assert again.headers == {"a": "b"}

    async def test_a_redriven_message_waits_for_its_due(self, store: MessageStore) -> None:
        message_id = await _settled(store, State.DEAD)
        await amend(store, Action.REDRIVE, message_id, due=store.clock.now() + FAR)
        assert (await claim(store)).messages == ()
        assert (await amend(store, Action.REDRIVE, message_id)).answer is Answer.RELEASED

    @pytest.mark.parametrize("action", [Action.CANCEL, Action.RESCHEDULE, Action.RELEASE])
    async def test_a_dead_message_can_only_be_redriven_or_removed(
        self, store: MessageStore, action: Action
    ) -> None:
        message_id = await _settled(store, State.DEAD)
        assert (await amend(store, action, message_id)).answer is Answer.RELEASED
        answer = await amend(store, Action.REDRIVE, message_id, version=7)
        assert answer.answer is Answer.CONFLICT

    async def test_a_deleted_dead_message_is_gone_and_its_id_is_new_again(
        self, store: MessageStore
    ) -> None:
        message_id = await _settled(store, State.DEAD)
        dead = await held(store, message_id)
        conflict = await amend(store, Action.DELETE, message_id, version=7)
        assert (conflict.answer, conflict.message) == (Answer.CONFLICT, dead)
        answer = await amend(store, Action.DELETE, message_id, version=1)
        assert (answer.answer, answer.message) == (Answer.DONE, dead)
        assert (await amend(store, Action.DELETE, message_id)).answer is Answer.UNKNOWN
        await _assert_gone(store, message_id)
        assert (await store.figures(store.clock.now())).states[State.DEAD] == 0

    @pytest.mark.parametrize("ahead", [0, FAR])
    async def test_a_waiting_message_cannot_be_deleted_but_erased(
        self, store: MessageStore, ahead: int
    ) -> None:
        await put(store, new("x", due=store.clock.now() + ahead, key="who", labels=_LABELS))
        await amend(store, Action.RESCHEDULE, "x", priority=3)
        assert (await amend(store, Action.DELETE, "x")).answer is Answer.RELEASED
        before = await held(store, "x")
        answer = await amend(store, Action.ERASE, "x")
        assert (answer.answer, answer.message) == (Answer.DONE, before)
        assert (await claim(store)).messages == ()
        assert (await store.figures(store.clock.now())).states[State.SCHEDULED] == 0
        await _assert_gone(store, "x")

    @pytest.mark.parametrize("state", [*_SETTLED, State.DEAD])
    async def test_an_erased_settled_message_is_gone_and_its_id_is_new_again(
        self, store: MessageStore, state: State
    ) -> None:
        message_id = await _settled(store, state)
        assert (await amend(store, Action.ERASE, message_id)).answer is Answer.DONE
        assert (await store.figures(store.clock.now())).states[state] == 0
        await _assert_gone(store, message_id)

    async def test_erasing_a_leased_message_stops_it_and_is_done_after_its_lease(
        self, store: MessageStore
    ) -> None:
        message, token = await claim_one(store)
        for _ in range(2):
            answer = await amend(store, Action.ERASE, message.id)
            assert answer.answer is Answer.RELEASED
            assert answer.message is not None
            assert answer.message.cancel_pending
        again = ending(message, token, State.SCHEDULED, due=store.clock.now())
        assert await settle(store, again) == [State.CANCELLED]
        assert (await amend(store, Action.ERASE, message.id)).answer is Answer.DONE
        await _assert_gone(store, message.id)

    async def test_what_is_to_be_erased_later_is_listed_until_it_is_taken_off(
        self, store: MessageStore
    ) -> None:
        assert await store.erasures() == []
        assert await store.erasures(add=["b", "a", "b"]) == ["a", "b"]
        assert await store.erasures(add=["c"], remove=["a", "nobody"]) == ["b", "c"]
        assert await store.erasures() == ["b", "c"]

    async def test_a_batch_is_answered_in_order(self, store: MessageStore) -> None:
        now = store.clock.now()
        await put(store, new("a", due=now + FAR), new("b", due=now + FAR))
        changes = [
            Amendment(action=Action.CANCEL, id="b"),
            Amendment(action=Action.RELEASE, id="nobody"),
            Amendment(action=Action.RESCHEDULE, id="a", due=now + FAR + 1),
            Amendment(action=Action.RESCHEDULE, id="a", due=now + FAR + 2, version=1),
            Amendment(action=Action.CANCEL, id="a", version=2),
            Amendment(action=Action.RELEASE, id="a"),
        ]
        answers = await store.amend(changes, now)
        assert [a.answer for a in answers] == [
            Answer.DONE,
            Answer.UNKNOWN,
            Answer.DONE,
            Answer.CONFLICT,
            Answer.DONE,
            Answer.RELEASED,
        ]
        assert await store.amend([], now) == []


class TimelineCases(StoreCases):
    async def test_the_usual_course(self, store: MessageStore, harness: StoreHarness) -> None:
        now = store.clock.now()
        await put(store, new("x", due=now))
        await harness.pass_time(5)
        (message,) = (taken := await claim(store)).messages
        await harness.pass_time(5)
        await settle(store, ending(message, taken.token))
        events = await timeline(store, "x")
        assert [e.event for e in events] == ["accepted", "released", "delivered"]
        times = [e.at for e in events]
        assert times[0] == now
        assert times == sorted(set(times))
        assert events[1].attempt == 1

    async def test_a_retry_shows_its_error_and_attempt(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        retry = ending(message, token, State.SCHEDULED, due=message.due, error="HTTP 500")
        await settle(store, retry)
        (again,) = (taken := await claim(store)).messages
        await settle(store, ending(again, taken.token))
        assert await words(store, message.id) == [
            "accepted",
            "released",
            "retry",
            "released",
            "delivered",
        ]
        failed = (await timeline(store, message.id))[2]
        assert (failed.detail, failed.attempt) == ("HTTP 500", 1)

    async def test_a_deferral_shows_its_reason(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        deferred = ending(
            message,
            token,
            State.SCHEDULED,
            due=message.due + FAR,
            event="deferred",
            error="quiet until 08:00",
            refund=True,
        )
        await settle(store, deferred)
        last = (await timeline(store, message.id))[-1]
        assert (last.event, last.detail) == ("deferred", "quiet until 08:00")

    async def test_a_lost_lease_shows(self, store: MessageStore, harness: StoreHarness) -> None:
        message, _ = await claim_one(store, lease=SHORT)
        await harness.pass_time(AFTER_SHORT)
        await store.reap(store.clock.now(), 10)
        assert await words(store, message.id) == ["accepted", "released", "lease_lost"]

    async def test_a_cancel_while_leased_shows(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        await amend(store, Action.CANCEL, message.id)
        await amend(store, Action.CANCEL, message.id)
        assert await words(store, message.id) == ["accepted", "released", "cancel_asked"]
        await settle(store, ending(message, token, State.SCHEDULED, due=message.due))
        assert await words(store, message.id) == [
            "accepted",
            "released",
            "cancel_asked",
            "retry",
            "cancelled",
        ]

    async def test_edits_show(self, store: MessageStore) -> None:
        now = store.clock.now()
        await put(store, new("x", due=now + FAR))
        await amend(store, Action.RESCHEDULE, "x", due=now + FAR + 1)
        await amend(store, Action.RELEASE, "x")
        await amend(store, Action.CANCEL, "x")
        assert await words(store, "x") == ["accepted", "rescheduled", "rescheduled", "cancelled"]

    async def test_death_and_redrive_show(self, store: MessageStore) -> None:
        message_id = await _settled(store, State.DEAD)
        events = await timeline(store, message_id)
        assert [e.event for e in events] == ["accepted", "released", "dead"]
        assert events[-1].detail == "because"
        await amend(store, Action.REDRIVE, message_id, due=store.clock.now())
        (message,) = (taken := await claim(store)).messages
        await settle(store, ending(message, taken.token))
        assert await words(store, message_id) == [
            "accepted",
            "released",
            "dead",
            "redriven",
            "released",
            "delivered",
        ]
