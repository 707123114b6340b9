"""A Hypothesis state machine that walks any store beside the reference in memory.

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
from msgspec.structs import replace

from penstock.model.message import Message, NewMessage, OnConflict
from penstock.model.outcome import Action, Amendment, Settlement
from penstock.model.query import Filter
from penstock.model.state import PURGEABLE, State
from penstock.ports.store import MessageStore, Store
from penstock.stores.memory.messages import MessageBook
from penstock.testing.store_cases.base import listed, purge_all
from penstock.testing.store_harness import MANY, StoreHarness

T = TypeVar("T")

RETENTION = 40
ROUTES = ("r", "s")
NAMES = tuple(f"id-{number}" for number in range(8))
"""Few ids, so that walks meet the same message repeatedly."""
IDS = st.sampled_from(NAMES)
AHEAD = st.sampled_from([-20, -1, 0, 0, 1, 25])
"""Milliseconds from now: past, exactly now, just ahead, near."""
ENDS = st.sampled_from(
    [State.DELIVERED, State.SCHEDULED, State.DEAD, State.BLOCKED, State.EXPIRED, State.CANCELLED]
)


def agree(one: Message | None, other: Message | None) -> bool:
    """Whether both are the same message, or both None."""
    if one is None or other is None:
        return one is other
    return _compared(one) == _compared(other)


def _compared(message: Message) -> Message:
    """Without the store's handle and the exact moment of a claim, which a server may delay."""
    return replace(message, ref=0, claimed=None if message.claimed is None else 0)


class StoreMachine(RuleBasedStateMachine):
    """Subclass it with `make_harness`. It never passes a `now` that the clock has not reached."""

    durable = True
    """Whether a crash preserves answered writes; False for a store in memory."""

    def make_harness(self) -> StoreHarness:
        raise NotImplementedError("a subclass provides its store's harness")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.model = MessageBook(retention=RETENTION, retention_count=MANY)
        self.leases: list[tuple[Message, int]] = []
        """Every lease ever issued, stale or not."""
        self.store: Store | None = None

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
        return self.store.messages

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
        assert self.run(self.opened.put(batch, now)) == self.model.put(batch, now)

    @rule(
        route=st.sampled_from(ROUTES), limit=st.integers(1, 5), lease=st.sampled_from([20, 5_000])
    )
    def claim(self, route: str, limit: int, lease: int) -> None:
        now = self.now
        due = [] if route in self.model.paused else self.model.due(route, now)
        claim = self.run(self.opened.claim(route, limit, lease, now))
        taken = [(-m.priority, m.due) for m in claim.messages]
        assert taken == [(-m.priority, m.due) for m in due[:limit]]
        assert {m.id for m in claim.messages} <= {m.id for m in due}
        assert claim.token not in {token for _, token in self.leases}
        if claim.messages:  # the order of equals is open: the reference takes the store's choice
            twin = self.model.lease(claim.messages, now + lease, now, claim.token)
            by_id = {m.id: m for m in twin.messages}
            assert all(agree(m, by_id[m.id]) for m in claim.messages)
        self.leases += [(message, claim.token) for message in claim.messages]

    @precondition(lambda self: self.current())
    @rule(data=st.data(), refund=st.booleans())
    def settle(self, data: st.DataObject, refund: bool) -> None:
        chosen = data.draw(st.lists(st.sampled_from(self.current()), min_size=1, max_size=4))
        self._settle(data, chosen, refund)

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), other=st.sampled_from([0, 0, -1, 1]))
    def settle_late_or_wrongly(self, data: st.DataObject, other: int) -> None:
        """Settle with long stale tokens, and with tokens of other messages."""
        chosen = data.draw(st.lists(st.sampled_from(self.leases), min_size=1, max_size=4))
        self._settle(data, [(message, token + other) for message, token in chosen], False)

    def current(self) -> list[tuple[Message, int]]:
        """The reference's current leases."""
        return [
            (message, token)
            for message, token in self.leases
            if (held := self.model.records.get(message.id)) is not None and held.token == token
        ]

    def _settle(self, data: st.DataObject, chosen: list[tuple[Message, int]], refund: bool) -> None:
        now = self.now
        settlements = []
        for message, token in chosen:
            state = data.draw(ENDS)
            again = state is State.SCHEDULED
            settlements.append(
                Settlement(
                    message=message,
                    token=token,
                    state=state,
                    due=now + data.draw(AHEAD) if again else None,
                    error=None if state is State.DELIVERED else f"why {now}",
                    event="retry" if again else state.value,
                    refund=refund and state is not State.DELIVERED,
                )
            )
        if len({message.id for message, _ in chosen}) == len(chosen):
            states = self.run(self.opened.settle(settlements, now))
            assert states == self.model.settle(settlements, now)
        else:  # of two ends of one lease in a batch, either may come first
            for one in settlements:
                assert self.run(self.opened.settle([one], now)) == self.model.settle([one], now)
        self._follow_forgetting(now)

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
        assert reaped == {one.id: one.state for one in self.model.reap(now, MANY)}

    @rule(message_id=IDS, version=st.none() | st.integers(1, 3))
    def cancel(self, message_id: str, version: int | None) -> None:
        self.amend(message_id, Action.CANCEL, version)

    @rule(message_id=IDS, version=st.none() | st.integers(1, 3))
    def release(self, message_id: str, version: int | None) -> None:
        self.amend(message_id, Action.RELEASE, version)

    @rule(message_id=IDS, ahead=st.none() | AHEAD)
    def redrive(self, message_id: str, ahead: int | None) -> None:
        self.amend(message_id, Action.REDRIVE, None, ahead)

    @precondition(lambda self: self.dead())
    @rule(data=st.data(), ahead=AHEAD)
    def redrive_the_dead(self, data: st.DataObject, ahead: int) -> None:
        self.amend(data.draw(st.sampled_from(self.dead())), Action.REDRIVE, None, ahead)

    @rule(message_id=IDS, version=st.none() | st.integers(1, 3))
    def delete(self, message_id: str, version: int | None) -> None:
        self.amend(message_id, Action.DELETE, version)

    @precondition(lambda self: self.dead())
    @rule(data=st.data())
    def delete_the_dead(self, data: st.DataObject) -> None:
        self.amend(data.draw(st.sampled_from(self.dead())), Action.DELETE, None)

    @rule(message_id=IDS)
    def erase(self, message_id: str) -> None:
        self.amend(message_id, Action.ERASE, None)

    def dead(self) -> list[str]:
        return [message.id for message in self.held() if message.state is State.DEAD]

    def held(self) -> list[Message]:
        """Every message of the reference."""
        return [record.message for record in self.model.records.values()]

    @rule(
        message_id=IDS,
        version=st.none() | st.integers(1, 3),
        ahead=st.none() | AHEAD,
        payload=st.none() | st.just(b"changed"),
        priority=st.none() | st.integers(0, 9),
    )
    def reschedule(
        self,
        message_id: str,
        version: int | None,
        ahead: int | None,
        payload: bytes | None,
        priority: int | None,
    ) -> None:
        self.amend(message_id, Action.RESCHEDULE, version, ahead, payload, priority)

    def amend(
        self,
        message_id: str,
        action: Action,
        version: int | None,
        ahead: int | None = None,
        payload: bytes | None = None,
        priority: int | None = None,
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
        (wanted,) = self.model.amend([amendment], now)
        assert answer.answer is wanted.answer
        assert agree(answer.message, wanted.message), (answer, wanted)

    @rule(route=st.sampled_from(ROUTES), paused=st.sampled_from([True, False, False]))
    def pause(self, route: str, paused: bool) -> None:
        self.run(self.opened.pause(route, paused))
        self.model.pause(route, paused)
        assert self.run(self.opened.paused()) == set(self.model.paused)

    @rule(millis=st.sampled_from([1, 5, 20, 40]))
    def time_passes(self, millis: int) -> None:
        self.run(self.harness.pass_time(millis))

    @rule()
    def purge(self) -> None:
        async def purge() -> int:
            await purge_all(self.opened)
            return self.now

        before = self.now
        after = self.run(purge())
        self.model.purge(before, MANY)
        if after != before:  # a real clock: messages that expired meanwhile may be gone too
            self._follow_forgetting(after)

    def _follow_forgetting(self, now: int) -> None:
        """Follow a store that purges a few messages with every settle: only expired ones."""
        held = self.held()
        found = self.run(self.opened.find([message.id for message in held]))
        for message, there in zip(held, found, strict=True):
            if there is None:
                assert message.state in PURGEABLE
                assert now - (message.settled or 0) > RETENTION
                del self.model.records[message.id]

    @precondition(lambda self: self.durable)
    @rule()
    def crash_and_reopen(self) -> None:
        assert self.store is not None
        self.run(self.harness.crash(self.store))
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
            (message.due, message.id)
            for message in self.held()
            if state is None or message.state is state
        )
        assert [(message.due, message.id) for message in found] == wanted

    @rule()
    def count(self) -> None:
        figures = self.run(self.opened.figures(self.now))
        for state in State:
            number = sum(message.state is state for message in self.held())
            assert figures.states.get(state, 0) == number, state

    @invariant()
    def every_message_is_as_the_model_says(self) -> None:
        if self.store is None:
            return
        for message_id, message in zip(NAMES, self.run(self.opened.find(NAMES)), strict=True):
            held = self.model.find(message_id)
            assert agree(message, held), (held, message)

    def teardown(self) -> None:
        if self.store is not None:
            self.run(self.store.close())
            self.run(self.harness.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
