"""A Hypothesis state machine that walks a store's promises per key beside the plain book.

class MyMachine(KeyedMachine):
    def make_harness(self):
        return MyHarness()

TestMyMachine = MyMachine.TestCase

What a message is about does not change in these walks: every id has its route and its key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar, cast

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from penstock.model.message import Message, NewMessage, OnConflict
from penstock.model.outcome import Action, Amendment, Settlement
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.model.verdict import Decided, Verdict
from penstock.ports.store import KeyedClaims, MessageStore
from penstock.testing.message_book import MessageBook
from penstock.testing.store_harness import DAY_MS, MANY, StoreHarness

T = TypeVar("T")

KEYS = ("ann", "ann", "ann", "bob", "bob", None)
"""By an id's number; None: the id is the key."""
NAMES = tuple(f"id-{number}" for number in range(12))
"""Few, so that walks meet the same message again and again."""
IDS = st.sampled_from(NAMES)
AHEAD = st.sampled_from([-20, -5, -1, 0, 0, 1, 25])
"""Milliseconds from now."""
FAR = 10 * 60_000
ENDS = st.sampled_from(
    [State.DELIVERED, State.DELIVERED, State.SCHEDULED, State.SCHEDULED, State.DEAD, State.EXPIRED]
)
REFUSED = Decided(Verdict.DEFER, "p", "why")


def route_of(name: str) -> str:
    return "plain" if name == NAMES[-1] else "r"


def key_of(name: str) -> str:
    return KEYS[int(name[3:]) % len(KEYS)] or name


class KeyedMachine(RuleBasedStateMachine):
    """Subclass it with `make_harness`."""

    most = 5
    """Messages of one claim at most; stores that leave the order of equals open take all."""

    def make_harness(self) -> StoreHarness:
        raise NotImplementedError("a subclass provides its store's harness")

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.book = MessageBook(retention=DAY_MS, retention_count=MANY)
        self.leases: list[tuple[Message, int]] = []
        """Every lease ever given, stale or not."""
        self.store: MessageStore | None = None
        self.per_key = KeyLimit()

    @initialize(per_key=st.sampled_from([KeyLimit(1, ordered=True), KeyLimit(1), KeyLimit(2)]))
    def open(self, per_key: KeyLimit) -> None:
        self.per_key = per_key
        self.harness = self.make_harness()
        self.store = self.run(self.harness.open())
        self._take(1)  # so that the store knows of the promise

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
        ids=st.lists(IDS, min_size=1, max_size=8),
        ahead=AHEAD | st.just(FAR),
        spread=st.integers(-3, 3),
        priority=st.integers(0, 9),
        choice=st.sampled_from(OnConflict),
    )
    def put(
        self, ids: list[str], ahead: int, spread: int, priority: int, choice: OnConflict
    ) -> None:
        now = self.now
        batch = [
            NewMessage(
                id=name,
                route=route_of(name),
                key=key_of(name),
                payload=f"{now}-{place}".encode(),
                due=now + ahead + spread * place,
                priority=priority,
                on_conflict=choice,
            )
            for place, name in enumerate(ids)
        ]
        assert self.run(self.opened.put(batch, now)) == self.book.put(batch, now)

    @rule(limit=st.integers(1, 5), lease=st.sampled_from([20, 5_000]))
    def claim(self, limit: int, lease: int) -> None:
        self._take(limit if self.most == 5 else self.most, lease)

    def _take(self, limit: int, lease: int = 20) -> None:
        now = self.now
        keyed = cast("KeyedClaims", self.opened)
        claim = self.run(keyed.claim_keyed("r", limit, lease, now, self.per_key))
        token = claim.token or None
        wanted = self.book.claim_keyed("r", limit, lease, now, self.per_key, token=token)
        assert [m.id for m in claim.messages] == [m.id for m in wanted.messages]
        if wanted.next_due is not None and len(wanted.messages) < limit:
            assert claim.next_due is not None, "nobody would look again"
            assert claim.next_due <= wanted.next_due
        assert claim.next_due is None or claim.next_due > now
        self.leases += [(message, claim.token) for message in claim.messages]

    @rule()
    def claim_the_other_route(self) -> None:
        now = self.now
        claim = self.run(self.opened.claim("plain", 5, 20, now))
        wanted = self.book.claim("plain", 5, 20, now, token=claim.token or None)
        assert [m.id for m in claim.messages] == [m.id for m in wanted.messages]
        self.leases += [(message, claim.token) for message in claim.messages]

    @precondition(lambda self: self.leases)
    @rule(data=st.data(), refund=st.booleans())
    def settle(self, data: st.DataObject, refund: bool) -> None:
        """Also with tokens long stale."""
        now = self.now
        chosen = data.draw(st.lists(st.sampled_from(self.leases[-6:]), min_size=1, max_size=3))
        settlements = []
        for message, token in {message.id: (message, token) for message, token in chosen}.values():
            state = data.draw(ENDS)
            again = state is State.SCHEDULED
            settlements.append(
                Settlement(
                    message=message,
                    token=token,
                    state=state,
                    due=now + data.draw(AHEAD) if again else None,
                    event="retry" if again else state.value,
                    refund=refund and again,
                    decided=REFUSED if again and data.draw(st.booleans()) else None,
                )
            )
        states = self.run(self.opened.settle(settlements, now))
        assert states == self.book.settle(settlements, now)

    @rule()
    def reap(self) -> None:
        now = self.now
        reaped = self.run(self.opened.reap(now, 100))
        wanted = self.book.reap(now, 100)
        assert sorted(one.id for one in reaped) == sorted(one.id for one in wanted)

    @rule(
        message_id=IDS,
        action=st.sampled_from(Action),
        ahead=AHEAD | st.just(FAR),
    )
    def amend(self, message_id: str, action: Action, ahead: int) -> None:
        now = self.now
        due = now + ahead if action in (Action.RESCHEDULE, Action.REDRIVE) else None
        change = Amendment(action=action, id=message_id, due=due)
        (answer,) = self.run(self.opened.amend([change], now))
        (wanted,) = self.book.amend([change], now)
        assert answer.answer is wanted.answer

    @rule(paused=st.sampled_from([True, False, False]))
    def pause(self, paused: bool) -> None:
        self.run(self.opened.pause("r", paused))
        self.book.pause("r", paused)

    @rule(millis=st.sampled_from([1, 5, 20, 40]))
    def time_passes(self, millis: int) -> None:
        self.run(self.harness.pass_time(millis))

    @rule()
    def crash_and_reopen(self) -> None:
        self.run(self.harness.crash(self.opened))
        self.store = self.run(self.harness.open())

    @invariant()
    def every_message_is_as_the_book_says(self) -> None:
        if self.store is None:
            return
        for name, message in zip(NAMES, self.run(self.store.find(NAMES)), strict=True):
            row = self.book.rows.get(name)
            assert (message is None) == (row is None), name
            if message is not None and row is not None:
                held = row.message
                assert (message.key, message.due, message.state) == (held.key, held.due, held.state)
                assert (message.attempt, message.version) == (held.attempt, held.version)

    def teardown(self) -> None:
        if self.store is not None:
            self.run(self.store.close())
            self.run(self.harness.close())
        self.run(self.loop.shutdown_default_executor())
        self.loop.close()
