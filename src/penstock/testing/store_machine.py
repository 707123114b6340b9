"""A Hypothesis state machine that walks any store beside the plain-Python model.

class MyMachine(StoreMachine):
    def make_harness(self):
        return MyHarness()

TestMyMachine = MyMachine.TestCase
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.model.message import Message, NewMessage, OnConflict
from penstock.model.outcome import Action, Amendment, Settlement
from penstock.model.query import Filter
from penstock.model.state import State
from penstock.ports.store import MessageStore
from penstock.testing.store_cases.base import listed, purge_all
from penstock.testing.store_harness import StoreHarness
from penstock.testing.store_model import StoreModel

T = TypeVar("T")

RETENTION = 60
ROUTES = ("r", "s")
IDS = st.sampled_from([f"id-{number}" for number in range(12)])
AHEAD = st.integers(-50, 60)
"""Milliseconds from now: some are past, some come near, some wait."""
ENDS = st.sampled_from(
    [State.DELIVERED, State.SCHEDULED, State.DEAD, State.BLOCKED, State.EXPIRED, State.CANCELLED]
)


class StoreMachine(RuleBasedStateMachine):
    """Subclass it with `make_harness`. Nothing here asks for a `now` the clock has not reached."""

    durable = True
    """Whether a crash keeps what was answered; False for a store in memory."""

    def make_harness(self) -> StoreHarness:
        raise NotImplementedError("a subclass provides its store's harness")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = StoreModel(RETENTION)
        self.leases: list[tuple[Message, int]] = []
        """Every lease ever given, stale or not."""
        self.store: MessageStore | None = None

    @initialize()
    def open(self) -> None:
        self.harness = self.make_harness()
        self._open()

    def _open(self) -> None:
        self.store = self.run(self.harness.open(retention=RETENTION))

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self.loop.run_until_complete(work)

    @property
    def opened(self) -> MessageStore:
        assert self.store is not None
        return self.store

    @property
    def now(self) -> int:
        return self.opened.clock.now()

    @rule(
        ids=st.lists(IDS, min_size=1, max_size=6),
        ahead=AHEAD,
        spread=st.integers(0, 3),
        priority=st.integers(0, 9),
        route=st.sampled_from(ROUTES),
        choice=st.sampled_from(OnConflict),
    )
    def put(
        self,
        ids: list[str],
        ahead: int,
        spread: int,
        priority: int,
        route: str,
        choice: OnConflict,
    ) -> None:
        now = self.now
        batch = [
            NewMessage(
                id=message_id,
                route=route,
                key=message_id if place % 2 else "shared",
                payload=f"{now}-{place}".encode(),
                due=now + ahead + spread * place,
                priority=priority,
                on_conflict=choice,
            )
            for place, message_id in enumerate(ids)
        ]
        assert self.run(self.opened.put(batch, now)) == self.model.put(batch)

    @rule(
        route=st.sampled_from(ROUTES), limit=st.integers(1, 5), lease=st.sampled_from([20, 5_000])
    )
    def claim(self, route: str, limit: int, lease: int) -> None:
        now = self.now
        due = self.model.claimable(route, now)
        claim = self.run(self.opened.claim(route, limit, lease, now))
        taken = [(-m.priority, m.due) for m in claim.messages]
        assert taken == [(-held.priority, held.due) for held in due[:limit]]
        assert {m.id for m in claim.messages} <= {held.new.id for held in due}
        assert claim.token not in self.model.leases
        self.model.claimed(claim, now + lease)
        self.leases += [(message, claim.token) for message in claim.messages]

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), state=ENDS, ahead=AHEAD, refund=st.booleans())
    def settle(self, data: st.DataObject, state: State, ahead: int, refund: bool) -> None:
        """With tokens that may be current or long stale."""
        chosen = data.draw(st.lists(st.sampled_from(self.leases), min_size=1, max_size=4))
        now = self.now
        settlements = [
            Settlement(
                message=message,
                token=token,
                state=state,
                due=now + ahead if state is State.SCHEDULED else None,
                error=None if state is State.DELIVERED else "why",
                event="retry" if state is State.SCHEDULED else state.value,
                refund=refund and state is not State.DELIVERED,
            )
            for message, token in chosen
        ]
        states = self.run(self.opened.settle(settlements, now))
        assert states == self.model.settle(settlements, now)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), ahead=st.sampled_from([20, 5_000]))
    def extend(self, data: st.DataObject, ahead: int) -> None:
        tokens = data.draw(st.lists(st.sampled_from([token for _, token in self.leases])))
        until = self.now + ahead
        self.run(self.opened.extend(tokens, until))
        self.model.extend(tokens, until)

    @rule(limit=st.integers(1, 4))
    def reap(self, limit: int) -> None:
        now = self.now
        reaped: dict[str, State] = {}
        while step := self.run(self.opened.reap(now, limit)):
            assert len(step) <= limit
            assert not reaped.keys() & {one.id for one in step}
            reaped.update((one.id, one.state) for one in step)
        assert reaped == self.model.reap(now)

    @rule(
        message_id=IDS,
        action=st.sampled_from(Action),
        version=st.none() | st.integers(1, 3),
        ahead=st.none() | AHEAD,
        payload=st.none() | st.just(b"changed"),
        priority=st.none() | st.integers(0, 9),
    )
    def amend(
        self,
        message_id: str,
        action: Action,
        version: int | None,
        ahead: int | None,
        payload: bytes | None,
        priority: int | None,
    ) -> None:
        now = self.now
        amendment = Amendment(
            action=action,
            id=message_id,
            version=version,
            due=None if ahead is None else now + ahead,
            payload=payload,
            priority=priority,
        )
        (answer,) = self.run(self.opened.amend([amendment], now))
        assert answer.answer is self.model.amend(amendment, now)
        held = self.model.messages.get(message_id)
        assert (answer.message is None) == (held is None)
        if answer.message is not None and held is not None:
            assert held.agrees_with(answer.message)

    @rule(route=st.sampled_from(ROUTES), paused=st.booleans())
    def pause(self, route: str, paused: bool) -> None:
        self.run(self.opened.pause(route, paused))
        (self.model.paused.add if paused else self.model.paused.discard)(route)
        assert self.run(self.opened.paused()) == self.model.paused

    @rule(millis=st.integers(1, 40))
    def time_passes(self, millis: int) -> None:
        self.run(self.harness.pass_time(millis))

    @rule()
    def purge(self) -> None:
        async def purge() -> int:
            await purge_all(self.opened)
            return self.now

        before = self.now
        after = self.run(purge())
        self.model.purge(before)
        if after != before:  # a real clock: what came of age meanwhile may be gone too
            ids = list(self.model.messages)
            found = self.run(self.opened.find(ids))
            gone = {message_id for message_id, m in zip(ids, found, strict=True) if m is None}
            survivors = StoreModel(RETENTION, dict(self.model.messages))
            survivors.purge(after)
            assert not gone & survivors.messages.keys()
            for message_id in gone:
                del self.model.messages[message_id]

    @precondition(lambda self: self.durable)
    @rule()
    def crash_and_reopen(self) -> None:
        self.run(self.harness.crash(self.opened))
        self._open()

    @precondition(lambda self: self.durable)
    @rule()
    def close_and_reopen(self) -> None:
        self.run(self.opened.close())
        self._open()

    @rule(state=st.none() | st.sampled_from(State))
    def search(self, state: State | None) -> None:
        found = self.run(listed(self.opened, Filter(state=state), limit=5))
        wanted = sorted(
            (held.due, held.new.id)
            for held in self.model.messages.values()
            if state is None or held.state is state
        )
        assert [(message.due, message.id) for message in found] == wanted

    @rule()
    def count(self) -> None:
        figures = self.run(self.opened.figures(self.now))
        for state in State:
            number = sum(held.state is state for held in self.model.messages.values())
            assert figures.states.get(state, 0) == number, state

    @invariant()
    def every_message_is_as_the_model_says(self) -> None:
        if self.store is None:
            return
        ids = [f"id-{number}" for number in range(12)]
        for message_id, message in zip(ids, self.run(self.store.find(ids)), strict=True):
            held = self.model.messages.get(message_id)
            if message is None or held is None:
                assert (message is None) == (held is None), message_id
            else:
                assert held.agrees_with(message), (held, message)

    def teardown(self) -> None:
        if self.store is not None:
            self.run(self.store.close())
            self.run(self.harness.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
