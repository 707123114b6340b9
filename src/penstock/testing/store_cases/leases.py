"""CLAIM, SETTLE, EXTEND, REAP: never early, in order, fenced."""

from __future__ import annotations

import asyncio

import pytest

from penstock.model.outcome import Action, Answer
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
    new,
    put,
    put_due,
    settle,
)
from penstock.testing.store_harness import StoreHarness

_NOT_SENT = [State.DEAD, State.BLOCKED, State.EXPIRED, State.CANCELLED]


def _text(size: int) -> bytes:
    """JSON of `size` bytes."""
    return b'"' + b"x" * (size - 2) + b'"'


class ClaimCases(StoreCases):
    async def test_a_claim_leases_what_is_due(self, store: MessageStore) -> None:
        (message_id,) = await put_due(store)
        now = store.clock.now()
        taken = await store.claim("r", 10, 1_000, now)
        (message,) = taken.messages
        assert (message.id, message.state, message.attempt) == (message_id, State.LEASED, 1)
        assert message.claimed == now
        assert (await held(store, message_id)).state is State.LEASED

    async def test_a_claim_ends_at_its_bytes_and_the_next_one_goes_on(
        self, store: MessageStore
    ) -> None:
        now = store.clock.now()
        messages = [new(f"{n:02}", due=now - 100 + n, payload=_text(10_000)) for n in range(10)]
        await put(store, *messages, new("high", due=now, priority=9, payload=_text(10_000)))
        claims = [await store.claim("r", 100, FAR, now, 35_000) for _ in range(4)]
        found = [[m.id for m in taken.messages] for taken in claims]
        assert [len(some) for some in found] == [3, 3, 3, 2]
        assert len({one for some in found for one in some}) == 11
        assert [taken.stopped_at_bytes for taken in claims] == [True, True, True, False]
        if self.first_by_bytes:
            assert found[:2] == [["high", "00", "01"], ["02", "03", "04"]]

    async def test_a_claim_that_its_bytes_ended_says_so(self, store: MessageStore) -> None:
        await put_due(store, 3, payload=_text(10_000))
        now = store.clock.now()
        taken = await store.claim("r", 3, FAR, now, 25_000)
        assert (len(taken.messages), taken.stopped_at_bytes, taken.next_due) == (2, True, None)
        assert not (await store.claim("r", 3, FAR, now, 25_000)).stopped_at_bytes

    async def test_a_message_larger_than_the_bytes_of_a_claim_is_claimed_alone(
        self, store: MessageStore
    ) -> None:
        await put_due(store, 2, payload=_text(10_000))
        for _ in range(2):
            assert len((await store.claim("r", 10, FAR, store.clock.now(), 1)).messages) == 1
        assert (await claim(store)).messages == ()

    async def test_headers_count_as_bytes_of_a_claim(self, store: MessageStore) -> None:
        await put_due(store, 4, headers={f"h{n}": "x" * 4_000 for n in range(3)})
        taken = await store.claim("r", 10, FAR, store.clock.now(), 30_000)
        assert len(taken.messages) == 2

    async def test_small_messages_behind_large_ones_are_claimed_in_their_order(
        self, store: MessageStore
    ) -> None:
        now = store.clock.now()
        sizes = [10, 60_000, 10, 60_000, 10, 10, 60_000, 10]
        await put(
            store,
            *(new(f"{n}", due=now - 10 + n, payload=_text(s)) for n, s in enumerate(sizes)),
        )
        found: list[str] = []
        while (taken := await store.claim("r", 100, FAR, now, 70_000)).messages:
            found += [m.id for m in taken.messages]
            assert sum(len(m.payload) for m in taken.messages) <= 70_000
        assert sorted(found) == [f"{n}" for n in range(len(sizes))]
        if self.first_by_bytes:
            assert found == sorted(found)

    async def test_nothing_is_claimed_early(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        due = store.clock.now() + 40
        await put(store, new("x", due=due))
        while store.clock.now() < due:
            at = store.clock.now()
            taken = await store.claim("r", 10, FAR, at)
            assert taken.messages == () or store.clock.now() >= due
            if taken.messages:
                return
            assert taken.next_due == due
            await harness.pass_time(10)
        assert [m.id for m in (await claim(store)).messages] == ["x"]

    async def test_a_message_is_due_at_its_very_millisecond(self, store: MessageStore) -> None:
        now = store.clock.now()
        await put(store, new("x", due=now), new("y", due=now + 1))
        taken = await store.claim("r", 10, FAR, now)
        assert ([m.id for m in taken.messages], taken.next_due) == (["x"], now + 1)

    async def test_higher_priority_leaves_first_then_earlier_due(self, store: MessageStore) -> None:
        now = store.clock.now()
        messages = [
            new(f"{priority}-{late}", due=now - late, priority=priority)
            for late in (3, 900, 50)
            for priority in range(10)
        ]
        await put(store, *messages)
        taken = await claim(store)
        wanted = sorted(messages, key=lambda m: (-m.priority, m.due))
        assert [m.id for m in taken.messages] == [m.id for m in wanted]

    async def test_a_claim_takes_at_most_its_limit_and_the_best(self, store: MessageStore) -> None:
        now = store.clock.now()
        await put(store, *(new(f"m{i:02}", due=now - i, priority=i % 3) for i in range(30)))
        taken = [(await claim(store, 4)).messages for _ in range(8)]
        assert [len(messages) for messages in taken] == [4] * 7 + [2]
        order = [(-m.priority, m.due) for messages in taken for m in messages]
        assert order == sorted(order)
        assert len(set(order)) == 30

    async def test_a_claim_of_nothing_takes_nothing(self, store: MessageStore) -> None:
        await put_due(store, 2)
        assert (await claim(store, 0)).messages == ()
        assert len((await claim(store)).messages) == 2

    async def test_a_claim_takes_only_its_own_route(self, store: MessageStore) -> None:
        await put_due(store, 3, route="other")
        mine = await put_due(store, 2)
        taken = await claim(store)
        assert {m.id for m in taken.messages} == set(mine)
        assert (await claim(store, route="nobody")).messages == ()

    async def test_next_due_is_the_earliest_left_on_the_route(self, store: MessageStore) -> None:
        now = store.clock.now()
        await put(
            store,
            new("due", due=now),
            new("later", due=now + FAR + 9, priority=9),
            new("next", due=now + FAR, priority=0),
            new("elsewhere", due=now + FAR - 5, route="other"),
        )
        taken = await claim(store, 10)
        assert [m.id for m in taken.messages] == ["due"]
        assert taken.next_due == now + FAR
        assert (await claim(store, 10)).next_due == now + FAR
        assert (await claim(store, 10, route="empty")).next_due is None

    async def test_one_claim_has_one_token_and_no_two_claims_share_it(
        self, store: MessageStore
    ) -> None:
        await put_due(store, 30)
        tokens = [(await claim(store, 3)).token for _ in range(10)]
        assert len(set(tokens)) == 10

    async def test_no_message_is_given_to_two_claims(self, store: MessageStore) -> None:
        ids = await put_due(store, 100)
        claims = await asyncio.gather(*(claim(store, 7) for _ in range(20)))
        taken = [message.id for one in claims for message in one.messages]
        assert sorted(taken) == sorted(ids)

    async def test_nothing_of_a_paused_route_is_claimed(self, store: MessageStore) -> None:
        await put_due(store, 2)
        await put_due(store, 1, route="other")
        await store.pause("r", True)
        await store.pause("r", True)
        assert await store.paused() == {"r"}
        assert (await claim(store)).messages == ()
        assert len((await claim(store, route="other")).messages) == 1
        await store.pause("r", False)
        assert await store.paused() == frozenset()
        assert len((await claim(store)).messages) == 2

    async def test_a_paused_route_still_settles_and_accepts(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        await store.pause("r", True)
        assert await settle(store, ending(message, token)) == [State.DELIVERED]
        assert len(await put_due(store)) == 1

    async def test_resuming_a_route_that_was_not_paused_is_harmless(
        self, store: MessageStore
    ) -> None:
        await store.pause("r", False)
        assert await store.paused() == frozenset()


class SettleCases(StoreCases):
    async def test_a_delivered_message_loses_payload_and_headers_only(
        self, store: MessageStore
    ) -> None:
        message, token = await claim_one(store, payload=b"big", headers={"a": "b"}, key="who")
        assert await settle(store, ending(message, token)) == [State.DELIVERED]
        found = await held(store, message.id)
        assert (found.state, found.payload, found.headers) == (State.DELIVERED, b"", None)
        assert (found.key, found.due, found.attempt) == ("who", message.due, 1)
        assert found.settled is not None

    @pytest.mark.parametrize("state", _NOT_SENT)
    async def test_a_message_not_sent_keeps_its_content(
        self, store: MessageStore, state: State
    ) -> None:
        message, token = await claim_one(store, payload=b"body", headers={"a": "b"})
        assert await settle(store, ending(message, token, state, error="why")) == [state]
        found = await held(store, message.id)
        assert (found.state, found.payload, found.headers) == (state, b"body", {"a": "b"})
        assert found.last_error == "why"
        assert (await claim(store)).messages == ()

    async def test_a_retry_waits_until_its_new_due(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        due = store.clock.now() + FAR
        retry = ending(message, token, State.SCHEDULED, due=due, error="no answer")
        assert await settle(store, retry) == [State.SCHEDULED]
        found = await held(store, message.id)
        assert (found.state, found.due, found.attempt) == (State.SCHEDULED, due, 1)
        assert found.last_error == "no answer"
        taken = await claim(store)
        assert (taken.messages, taken.next_due) == ((), due)

    async def test_the_next_claim_of_a_retry_counts_on(self, store: MessageStore) -> None:
        message, token = await claim_one(store, payload=b"same")
        await settle(store, ending(message, token, State.SCHEDULED, due=message.due))
        (again,) = (await claim(store)).messages
        assert (again.id, again.attempt, again.payload) == (message.id, 2, b"same")

    async def test_a_refund_takes_the_attempt_back(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        back = ending(
            message, token, State.SCHEDULED, due=message.due, event="returned", refund=True
        )
        await settle(store, back)
        assert (await held(store, message.id)).attempt == 0
        (again,) = (await claim(store)).messages
        assert again.attempt == 1

    async def test_a_settled_lease_cannot_be_settled_again(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        first = ending(message, token)
        assert await settle(store, first) == [State.DELIVERED]
        late = ending(message, token, State.SCHEDULED, due=message.due, error="late")
        assert await settle(store, first, late) == [None, None]
        found = await held(store, message.id)
        assert (found.state, found.last_error) == (State.DELIVERED, None)

    async def test_one_lease_settled_twice_in_a_batch_counts_once(
        self, store: MessageStore
    ) -> None:
        message, token = await claim_one(store)
        states = await settle(store, ending(message, token), ending(message, token))
        assert states == [State.DELIVERED, None]

    @pytest.mark.parametrize("state", [State.DELIVERED, State.SCHEDULED, State.DEAD])
    async def test_a_wrong_token_changes_nothing(self, store: MessageStore, state: State) -> None:
        first, first_token = await claim_one(store)
        second, second_token = await claim_one(store)
        wrong = [
            (first, first_token + 1),
            (first, first_token - 1),
            (first, second_token),
            (second, first_token),
        ]
        settlements = [ending(message, token, state, error="x") for message, token in wrong]
        assert await settle(store, *settlements) == [None] * 4
        for message in (first, second):
            assert await held(store, message.id) == message
        right = [ending(second, second_token, state), ending(first, first_token, state)]
        assert await settle(store, *right) == [state] * 2

    async def test_current_and_stale_settlements_mix_in_a_batch(self, store: MessageStore) -> None:
        await put_due(store, 6)
        taken = await claim(store)
        early = [ending(m, taken.token) for m in taken.messages[::2]]
        await settle(store, *early)
        states = await settle(store, *(ending(m, taken.token) for m in taken.messages))
        assert states == [None, State.DELIVERED] * 3

    async def test_an_empty_settle_answers_nothing(self, store: MessageStore) -> None:
        assert await settle(store) == []

    async def test_a_cancel_asked_meanwhile_ends_a_retry_as_cancelled(
        self, store: MessageStore
    ) -> None:
        message, token = await claim_one(store)
        answer = await amend(store, Action.CANCEL, message.id)
        assert answer.answer is Answer.RELEASED
        assert answer.message is not None
        assert (answer.message.state, answer.message.cancel_pending) == (State.LEASED, True)
        retry = ending(message, token, State.SCHEDULED, due=message.due, error="failed")
        assert await settle(store, retry) == [State.CANCELLED]
        found = await held(store, message.id)
        assert (found.state, found.cancel_pending) == (State.CANCELLED, False)
        assert (await claim(store)).messages == ()
        assert (await amend(store, Action.CANCEL, message.id)).answer is Answer.DONE

    @pytest.mark.parametrize("state", [State.DELIVERED, State.DEAD])
    async def test_a_cancel_asked_meanwhile_does_not_undo_an_end(
        self, store: MessageStore, state: State
    ) -> None:
        message, token = await claim_one(store)
        await amend(store, Action.CANCEL, message.id)
        assert await settle(store, ending(message, token, state)) == [state]
        answer = await amend(store, Action.CANCEL, message.id)
        assert answer.answer is Answer.RELEASED
        assert answer.message is not None
        assert (answer.message.state, answer.message.cancel_pending) == (state, False)


class LeaseCases(StoreCases):
    async def test_an_expired_lease_returns_the_message(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        message, token = await claim_one(store, lease=SHORT)
        await harness.pass_time(AFTER_SHORT)
        (reaped,) = await store.reap(store.clock.now(), 10)
        assert (reaped.id, reaped.route, reaped.state) == (message.id, "r", State.SCHEDULED)
        assert reaped.attempt == 1
        assert await settle(store, ending(message, token)) == [None]
        again = await claim(store)
        assert again.token != token
        assert [(m.id, m.attempt) for m in again.messages] == [(message.id, 2)]
        assert await settle(store, ending(message, token)) == [None]
        assert await settle(store, ending(message, again.token)) == [State.DELIVERED]

    async def test_a_lease_ends_at_its_very_millisecond(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        await put_due(store)
        now = store.clock.now()
        taken = await store.claim("r", 1, SHORT, now)
        await harness.pass_time(AFTER_SHORT)
        assert await store.reap(now + SHORT - 1, 10) == []
        await store.extend([taken.token], now + SHORT + 5)
        assert await store.reap(now + SHORT + 4, 10) == []
        assert len(await store.reap(now + SHORT + 5, 10)) == 1

    async def test_a_lease_that_holds_is_not_reaped(self, store: MessageStore) -> None:
        await claim_one(store)
        assert await store.reap(store.clock.now(), 10) == []

    async def test_a_lease_ended_but_not_reaped_can_still_be_settled(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        message, token = await claim_one(store, lease=SHORT)
        await harness.pass_time(AFTER_SHORT)
        assert await store.reap(0, 1) == []  # as a worker checks whether the store answers
        assert await settle(store, ending(message, token)) == [State.DELIVERED]
        assert await store.reap(store.clock.now(), 10) == []

    async def test_only_what_is_not_settled_is_reaped(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        await put_due(store, 6)
        taken = await claim(store, lease=SHORT)
        await settle(store, *(ending(m, taken.token) for m in taken.messages[:4]))
        await harness.pass_time(AFTER_SHORT)
        reaped = await store.reap(store.clock.now(), 10)
        assert {r.id for r in reaped} == {m.id for m in taken.messages[4:]}
        assert await store.reap(store.clock.now(), 10) == []

    async def test_reaping_in_small_steps_returns_each_once(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        ids = await put_due(store, 11)
        await claim(store, 7, lease=SHORT)
        await claim(store, 7, lease=SHORT)
        await harness.pass_time(AFTER_SHORT)
        reaped: list[str] = []
        async with asyncio.timeout(300):
            while len(reaped) < len(ids):
                step = await store.reap(store.clock.now(), 3)
                assert len(step) <= 3
                reaped += [r.id for r in step]
                if not step:  # an index that lags may show ended leases a little later
                    await harness.pass_time(AFTER_SHORT)
        assert sorted(reaped) == sorted(ids)
        assert await store.reap(store.clock.now(), 3) == []
        assert len((await claim(store)).messages) == 11

    async def test_an_extended_lease_holds_longer(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        message, token = await claim_one(store, lease=SHORT)
        await store.extend([token], store.clock.now() + FAR)
        await harness.pass_time(AFTER_SHORT)
        assert await store.reap(store.clock.now(), 10) == []
        assert await settle(store, ending(message, token)) == [State.DELIVERED]

    async def test_extending_a_lease_that_is_gone_brings_nothing_back(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        message, token = await claim_one(store, lease=SHORT)
        await harness.pass_time(AFTER_SHORT)
        await store.reap(store.clock.now(), 10)
        await store.extend([token, token + 1], store.clock.now() + FAR)
        await store.extend([], store.clock.now() + FAR)
        assert [m.id for m in (await claim(store)).messages] == [message.id]
        assert await settle(store, ending(message, token)) == [None]

    async def test_a_lost_message_that_was_to_be_cancelled_is_cancelled(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        message, _ = await claim_one(store, lease=SHORT)
        await amend(store, Action.CANCEL, message.id)
        await harness.pass_time(AFTER_SHORT)
        (reaped,) = await store.reap(store.clock.now(), 10)
        assert reaped.state is State.CANCELLED
        assert (await claim(store)).messages == ()
