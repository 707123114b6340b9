"""The steps of a message's life: what the suites of stores do not look at one by one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from penstock.model import lifecycle
from penstock.model.lifecycle import ALLOWED, Record
from penstock.model.message import Message, NewMessage, OnConflict
from penstock.model.outcome import Action, Amendment, Answer, Settlement
from penstock.model.state import TRANSITIONS, State, may_become

NOW, TOKEN = 1_000, 7


def new(**fields: object) -> NewMessage:
    facts = {"id": "m", "route": "r", "key": "k", "payload": b"1", "due": NOW, **fields}
    return NewMessage(**facts)  # type: ignore[arg-type] # a test's shorthand


def record(state: State = State.SCHEDULED, **fields: object) -> Record:
    message = replace(lifecycle.accepted(new(), NOW), state=state, **fields)
    return Record(message, TOKEN if state is State.LEASED else None)


def ending(message: Message, state: State, token: int = TOKEN) -> Settlement:
    return Settlement(message=message, token=token, state=state, event=state.value)


@given(st.sampled_from(State), st.sampled_from(Action), st.none() | st.integers(1, 2))
def test_an_amendment_follows_the_table_of_states(
    state: State, action: Action, version: int | None
) -> None:
    before = record(state)
    amendment = Amendment(action=action, id="m", version=version)
    answer, after, _ = lifecycle.amend(before, amendment, NOW)
    if answer.answer is not Answer.DONE:
        assert after is before or answer.message == replace(before.message, cancel_pending=True)
    elif after is not None and after is not before:
        assert state in ALLOWED[action]
        assert after.message.version == before.message.version + 1
        then = after.message.state
        assert then is state or then in TRANSITIONS[state]


@given(st.sampled_from(State), st.booleans())
def test_only_a_lease_under_way_ends(state: State, cancel: bool) -> None:
    leased = record(State.LEASED, cancel_pending=cancel, attempt=1, claimed=NOW)
    settlement = ending(leased.message, state)
    if not may_become(State.LEASED, state):
        with pytest.raises(ValueError, match="may not become"):
            lifecycle.settle(leased, settlement, NOW)
        return
    answer, after, _ = lifecycle.settle(leased, settlement, NOW)
    assert after is not None
    assert after.token is None
    assert after.message.state is answer
    assert lifecycle.settle(after, settlement, NOW) == (None, after, ())
    assert lifecycle.lose(after, TOKEN, NOW) == (None, after, ())


@given(st.sampled_from(State), st.sampled_from([-1, 0, 1]))
def test_nothing_is_leased_early_or_twice(state: State, ahead: int) -> None:
    before = record(state, due=NOW + ahead)
    message, after, _ = lifecycle.lease(before, TOKEN, NOW)
    if state is not State.SCHEDULED or ahead > 0:
        assert (message, after) == (None, before)
        return
    assert message is not None
    assert (message.state, message.attempt, message.claimed) == (State.LEASED, 1, NOW)
    assert after == Record(message, TOKEN)


@pytest.mark.parametrize(
    ("choice", "due", "wins"),
    [
        (OnConflict.KEEP, NOW - 1, False),
        (OnConflict.REPLACE, NOW + 1, True),
        (OnConflict.EARLIEST, NOW, False),
        (OnConflict.EARLIEST, NOW - 1, True),
    ],
)
def test_a_known_id_is_replaced_as_on_conflict_says(
    choice: OnConflict, due: int, wins: bool
) -> None:
    before = record(attempt=2, last_error="busy")
    receipt, after, events = lifecycle.put(before, new(due=due, on_conflict=choice), NOW)
    assert after is not None
    assert receipt.duplicate
    assert (receipt.due, after.message.due) == ((due, due) if wins else (NOW, NOW))
    assert [line.event for line in events] == (["replaced"] if wins else [])
    assert (after.message.attempt, after.message.last_error) == (2, "busy")


def test_a_settled_message_is_never_replaced() -> None:
    before = record(State.DELIVERED, settled=NOW)
    receipt, after, _ = lifecycle.put(before, new(on_conflict=OnConflict.REPLACE), NOW)
    assert (receipt.state, after) == (State.DELIVERED, before)
