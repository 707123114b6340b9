"""The stored part of policies' decisions: with the message, through all its states."""

from __future__ import annotations

import msgspec
import pytest

from penstock.model.decision import Reason, reason_of, verdict_of
from penstock.model.message import Labels, Message, OnConflict
from penstock.model.outcome import Action, Settlement
from penstock.model.state import State
from penstock.model.verdict import Decided, Verdict
from penstock.ports.store import MessageStore
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
    timeline,
)

_EXTRAS = {"key": "who", "headers": {"a": "b"}, "payload": b"body"}


def _refused(message: Message, until: int | None) -> Decided:
    verdict = Verdict.BLOCK if until is None else Verdict.DEFER
    return Decided(verdict, "nights", "quiet until 08:00", until, message.due)


def _deferral(message: Message, token: int, until: int) -> Settlement:
    decided = _refused(message, until)
    back = State.SCHEDULED
    return ending(message, token, back, due=until, event="deferred", refund=True, decided=decided)


ALLOW = "ALLOW by three-a-day; shadow nights would have blocked it: quiet until 08:00"


class AllowCases(StoreCases):
    async def test_what_let_a_delivered_message_go_is_told_beside_its_release(
        self, store: MessageStore
    ) -> None:
        labels = Labels(channel="push")
        await put_due(store, 3, labels=labels, **_EXTRAS)
        token, messages, *_ = msgspec.structs.astuple(await claim(store))
        said = ["ALLOW by other", ALLOW, None]
        ended = [
            ending(message, token, allowed=why) for message, why in zip(messages, said, strict=True)
        ]
        assert await settle(store, *ended) == [State.DELIVERED] * 3
        for message, why in zip(messages, said, strict=True):
            assert await _told(store, message.id) == [
                ("accepted", None),
                ("released", why),
                ("delivered", None),
            ]
            found = await held(store, message.id)
            assert (found.key, found.labels, found.headers) == ("who", labels, None)
            assert (verdict_of(found), reason_of(found)) == (Verdict.ALLOW, None)

    async def test_what_let_it_go_takes_the_place_of_what_held_it_back(
        self, store: MessageStore
    ) -> None:
        message, token = await claim_one(store, **_EXTRAS)
        await settle(store, _deferral(message, token, store.clock.now()))
        taken = await claim(store)
        await settle(store, ending(taken.messages[0], taken.token, allowed=ALLOW))
        assert await _told(store, message.id) == [
            ("accepted", None),
            ("deferred", "nights: quiet until 08:00"),
            ("released", ALLOW),
            ("delivered", None),
        ]

    async def test_every_attempt_tells_what_let_it_go(self, store: MessageStore) -> None:
        message, token = await claim_one(store, **_EXTRAS)
        now = store.clock.now()
        retry = ending(message, token, State.SCHEDULED, due=now, error="away", allowed=ALLOW)
        await settle(store, retry)
        waits = await held(store, message.id)
        assert waits.decided == Decided(Verdict.ALLOW, "", "", missed=1)  # not its reasons
        assert reason_of(waits) is None
        taken = await claim(store)
        dead = ending(taken.messages[0], taken.token, State.DEAD, error="gone", allowed="ALLOW")
        await settle(store, dead)
        so_far = [
            ("accepted", None),
            ("released", ALLOW),
            ("retry", "away"),
            ("released", "ALLOW"),
            ("dead", "gone"),
        ]
        assert await _told(store, message.id) == so_far
        await amend(store, Action.REDRIVE, message.id, due=now)
        assert await _told(store, message.id) == [*so_far, ("redriven", None)]

    async def test_it_is_told_of_a_message_that_was_to_be_cancelled_too_late(
        self, store: MessageStore
    ) -> None:
        message, token = await claim_one(store)
        await amend(store, Action.CANCEL, message.id)
        await settle(store, ending(message, token, allowed=ALLOW))
        assert await _told(store, message.id) == [
            ("accepted", None),
            ("released", ALLOW),
            ("cancel_asked", None),
            ("delivered", None),
        ]


async def _told(store: MessageStore, message_id: str) -> list[tuple[str, str | None]]:
    return [(event.event, event.detail) for event in await timeline(store, message_id)]


class RefusalCases(StoreCases):
    async def test_a_deferral_is_kept_with_its_reason(self, store: MessageStore) -> None:
        message, token = await claim_one(store, **_EXTRAS)
        until = store.clock.now() + FAR
        await settle(store, _deferral(message, token, until))
        found = await held(store, message.id)
        assert found.decided == _refused(message, until)
        assert (verdict_of(found), reason_of(found)) == (
            Verdict.DEFER,
            Reason("nights", "quiet until 08:00"),
        )
        assert (found.due, found.attempt, found.key) == (until, 0, "who")
        assert (found.payload, found.headers) == (b"body", {"a": "b"})
        events = await timeline(store, message.id)
        assert [(e.event, e.detail) for e in events if e.event == "deferred"] == [
            ("deferred", "nights: quiet until 08:00")
        ]

    async def test_a_block_is_the_end_with_its_reason(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        decided = _refused(message, None)
        block = ending(message, token, State.BLOCKED, error="no", refund=True, decided=decided)
        assert await settle(store, block) == [State.BLOCKED]
        found = await held(store, message.id)
        assert (found.decided, verdict_of(found)) == (decided, Verdict.BLOCK)

    @pytest.mark.parametrize("state", [State.DELIVERED, State.DEAD, State.SCHEDULED])
    async def test_what_was_refused_stays_known_whatever_comes_after(
        self, store: MessageStore, state: State
    ) -> None:
        message, token = await claim_one(store, **_EXTRAS)
        now = store.clock.now()
        await settle(store, _deferral(message, token, now))
        taken = await claim(store)
        (again,) = taken.messages
        assert again.decided == _refused(message, now)
        due = now + FAR if state is State.SCHEDULED else None
        await settle(store, ending(again, taken.token, state, due=due))
        found = await held(store, message.id)
        assert (found.state, found.decided) == (state, _refused(message, now))
        assert found.key == "who"

    async def test_attempts_that_did_not_arrive_are_known_until_it_is_redriven(
        self, store: MessageStore
    ) -> None:
        message, token = await claim_one(store)
        now, back = store.clock.now(), State.SCHEDULED
        for unsure in (False, True, False):
            said = "ALLOW by cap"
            await settle(store, ending(message, token, back, due=now, unsure=unsure, allowed=said))
            taken = await claim(store)
            (message,), token = taken.messages, taken.token
        assert message.decided is not None
        assert (message.attempt, message.decided.missed) == (4, 2)
        last = ending(message, token, State.DEAD, error="no")
        assert last.may_have_arrived  # the second may have
        await settle(store, last)
        released = [e.detail for e in await timeline(store, message.id) if e.event == "released"]
        assert released == ["ALLOW by cap"] * 3 + [None]
        await amend(store, Action.REDRIVE, message.id, due=now)
        assert (await held(store, message.id)).decided is None

    async def test_the_latest_refusal_is_the_one_that_is_kept(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        now = store.clock.now()
        await settle(store, _deferral(message, token, now))
        taken = await claim(store)
        await settle(store, _deferral(taken.messages[0], taken.token, now + FAR))
        assert (await held(store, message.id)).decided == _refused(message, now + FAR)

    async def test_an_edit_keeps_the_refusal_but_not_the_verdict(self, store: MessageStore) -> None:
        message, token = await claim_one(store, **_EXTRAS)
        until = store.clock.now() + FAR
        await settle(store, _deferral(message, token, until))
        await amend(store, Action.RESCHEDULE, message.id, due=until + 1)
        found = await held(store, message.id)
        assert (found.decided, verdict_of(found)) == (_refused(message, until), None)

    async def test_a_replacement_keeps_the_refusal(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        until = store.clock.now() + FAR
        await settle(store, _deferral(message, token, until))
        other = new(message.id, due=until, payload=b"2", on_conflict=OnConflict.REPLACE)
        await put(store, other)
        found = await held(store, message.id)
        assert (found.payload, found.decided) == (b"2", _refused(message, until))
