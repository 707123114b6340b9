"""KEYED: the promises per key of a store that offers `claim_keyed`."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import ClassVar

import pytest_asyncio

from penstock.model.message import OnConflict
from penstock.model.outcome import Action, Answer, Claim
from penstock.model.query import Filter
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.model.verdict import Decided, Verdict
from penstock.ports.store import KeyedClaims, MessageStore
from penstock.testing.store_cases.base import (
    AFTER_SHORT,
    FAR,
    LEASE,
    SHORT,
    amend,
    ending,
    held,
    listed,
    new,
    put,
    settle,
)
from penstock.testing.store_harness import StoreHarness

ORDERED = KeyLimit(1, ordered=True)
BESIDE_ANN = "ann33447"
"""A key that a store which divides keys by their checksum puts in the same part as ann's."""
REFUSED = Decided(Verdict.DEFER, "cap", "enough for today")


def ids(claim: Claim) -> list[str]:
    return [message.id for message in claim.messages]


async def end(
    store: MessageStore, claim: Claim, state: State = State.DELIVERED, **how: int
) -> None:
    """End every lease of a claim with this state; `after` is when the messages are due again."""
    due = store.clock.now() + how["after"] if "after" in how else None
    ends = [ending(message, claim.token, state, due=due) for message in claim.messages]
    assert None not in await settle(store, *ends)


class KeyedCases:
    """A store author's subclass provides the `harness` fixture."""

    first_by_bytes: ClassVar[bool] = True
    """As for `StoreCases`."""

    @pytest_asyncio.fixture
    async def store(self, harness: StoreHarness) -> AsyncIterator[MessageStore]:
        self._opened = await harness.open()
        await self.take()  # from here on the route has a promise per key
        yield self._opened.messages
        await self._opened.close()

    @property
    def keyed(self) -> KeyedClaims:
        assert self._opened.keyed is not None, "these cases are for a store that can claim by key"
        return self._opened.keyed

    async def take(
        self, per_key: KeyLimit = ORDERED, *, limit: int = 100, lease: int = LEASE
    ) -> Claim:
        now = self._opened.clock.now()
        return await self.keyed.claim_keyed("r", limit, lease, now, per_key)

    async def line_up(self, store: MessageStore, *names: str, key: str = "ann") -> None:
        """Put due messages, one after the other."""
        first = store.clock.now() - len(names)
        await put(store, *(new(name, due=first + n, key=key) for n, name in enumerate(names)))

    async def hold_back(self, store: MessageStore, claim: Claim, wait: int) -> None:
        """Let a policy defer every message of a claim."""
        due = store.clock.now() + wait
        back = State.SCHEDULED
        refused = [
            ending(message, claim.token, back, due=due, refund=True, decided=REFUSED)
            for message in claim.messages
        ]
        assert None not in await settle(store, *refused)

    async def test_a_claim_ends_at_its_bytes_and_the_next_one_goes_on(
        self, store: MessageStore
    ) -> None:
        now = store.clock.now()
        payload = b'"' + b"x" * 9_998 + b'"'
        names = [f"k{n}" for n in range(7)]
        await put(
            store,
            *(new(k, due=now - 9 + n, key=k, payload=payload) for n, k in enumerate(names)),
        )
        claims = [
            await self.keyed.claim_keyed("r", 100, LEASE, now, ORDERED, 35_000) for _ in range(3)
        ]
        assert sorted(name for claim in claims for name in ids(claim)) == names
        if self.first_by_bytes:
            assert [ids(claim) for claim in claims] == [names[:3], names[3:6], names[6:]]
        assert [claim.stopped_at_bytes for claim in claims] == [True, True, False]

    async def test_messages_of_a_key_come_one_by_one_in_order_of_due(
        self, store: MessageStore
    ) -> None:
        now = store.clock.now()
        await put(
            store, new("c", due=now - 1, key="ann", priority=9), new("b", due=now - 1, key="bob")
        )
        await put(store, new("a", due=now - 3, key="ann"), new("d", due=now - 2, key="ann"))
        gone: list[list[str]] = []
        for _ in range(4):
            claim = await self.take()
            gone.append(sorted(ids(claim)))
            await end(store, claim)
        assert gone == [["a", "b"], ["d"], ["c"], []]

    async def test_a_busy_key_gives_nothing_and_holds_back_no_other(
        self, store: MessageStore
    ) -> None:
        await self.line_up(store, *(f"a{n:03d}" for n in range(300)))
        assert ids(await self.take()) == ["a000"]
        await self.line_up(store, "b", key="bob")
        second = await self.take()
        assert ids(second) == ["b"]
        assert second.next_due is None  # no key's turn until one of them is over

    async def test_no_more_of_a_key_are_in_flight_than_allowed(self, store: MessageStore) -> None:
        three = KeyLimit(3)
        await self.line_up(store, "1", "2", "3", "4", "5")
        first = await self.take(three)
        assert ids(first) == ["1", "2", "3"]
        assert ids(await self.take(three)) == []
        await settle(store, ending(first.messages[1], first.token))
        assert ids(await self.take(three)) == ["4"]

    async def test_a_retry_holds_back_what_comes_after_it(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        await self.line_up(store, "first", "second")
        await end(store, await self.take(), State.SCHEDULED, after=SHORT)
        assert ids(await self.take()) == []
        await harness.pass_time(AFTER_SHORT)
        claim = await self.take()
        assert ids(claim) == ["first"]
        await end(store, claim)
        assert ids(await self.take()) == ["second"]

    async def test_a_deferral_however_far_holds_back_what_comes_after_it(
        self, store: MessageStore
    ) -> None:
        await self.line_up(store, "first", "second")
        await self.hold_back(store, await self.take(), FAR)
        assert ids(await self.take()) == []
        await amend(store, Action.RELEASE, "first")
        assert ids(await self.take()) == ["first"]

    async def test_where_only_the_number_counts_a_retry_holds_back_nobody(
        self, store: MessageStore
    ) -> None:
        await self.line_up(store, "first", "second")
        await end(store, await self.take(KeyLimit(1)), State.SCHEDULED, after=FAR)
        assert ids(await self.take(KeyLimit(1))) == ["second"]

    async def test_what_is_dead_or_cancelled_makes_way(self, store: MessageStore) -> None:
        await self.line_up(store, "dead", "gone", "last")
        await end(store, await self.take(), State.DEAD)
        claim = await self.take()
        assert ids(claim) == ["gone"]
        await end(store, claim, State.SCHEDULED, after=FAR)
        assert ids(await self.take()) == []
        assert (await amend(store, Action.CANCEL, "gone")).answer is Answer.DONE
        assert ids(await self.take()) == ["last"]

    async def test_a_redriven_message_takes_its_place_by_due(self, store: MessageStore) -> None:
        await self.line_up(store, "dead", "next")
        await end(store, await self.take(), State.DEAD)
        await amend(store, Action.REDRIVE, "dead", due=store.clock.now())
        claim = await self.take()
        assert ids(claim) == ["next"]
        await end(store, claim)
        assert ids(await self.take()) == ["dead"]

    async def test_a_redriven_message_that_was_once_held_back_takes_its_place_by_due(
        self, store: MessageStore
    ) -> None:
        await self.line_up(store, "dead", "next")
        await self.hold_back(store, await self.take(), 0)
        await end(store, await self.take(), State.DEAD)
        await end(store, await self.take(), State.SCHEDULED, after=SHORT)
        await amend(store, Action.REDRIVE, "dead", due=store.clock.now())
        assert ids(await self.take()) == []  # the retry goes first

    async def test_what_was_held_back_for_another_key_takes_its_place_by_due(
        self, store: MessageStore
    ) -> None:
        await self.line_up(store, "moved", key=BESIDE_ANN)
        await self.hold_back(store, await self.take(), FAR)
        await self.line_up(store, "first")
        await self.hold_back(store, await self.take(), FAR)
        now = store.clock.now()
        await put(store, new("moved", due=now, key="ann", on_conflict=OnConflict.REPLACE))
        assert (await held(store, "moved")).decided is None
        assert ids(await self.take()) == []
        await amend(store, Action.RELEASE, "first")
        claim = await self.take()
        assert ids(claim) == ["first"]
        await end(store, claim, State.SCHEDULED, after=FAR)
        assert ids(await self.take()) == []  # and so does its retry
        await amend(store, Action.CANCEL, "first")
        assert ids(await self.take()) == ["moved"]

    async def test_rescheduling_changes_the_order(self, store: MessageStore) -> None:
        await self.line_up(store, "1", "2", "3")
        await amend(store, Action.RESCHEDULE, "1", due=store.clock.now() + FAR)
        await amend(store, Action.RESCHEDULE, "3", due=store.clock.now() - 60)
        first = await self.take()
        assert ids(first) == ["3"]
        await end(store, first)
        assert ids(await self.take()) == ["2"]

    async def test_a_lease_that_ended_gives_the_same_message_first(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        await self.line_up(store, "first", "second")
        lost = await self.take(lease=SHORT)
        await harness.pass_time(AFTER_SHORT)
        assert ids(await self.take()) == []  # busy until it is reaped
        await store.reap(store.clock.now(), 10)
        again = await self.take()
        assert [(m.id, m.attempt) for m in again.messages] == [("first", 2)]
        assert await settle(store, ending(lost.messages[0], lost.token)) == [None]
        assert ids(await self.take()) == []
        await end(store, again)
        assert ids(await self.take()) == ["second"]

    async def test_messages_are_found_and_listed_by_id_as_ever(self, store: MessageStore) -> None:
        await self.line_up(store, *(f"m{n}" for n in range(9)))
        await put(store, new("far", due=store.clock.now() + FAR, key="ann"))
        assert (await held(store, "m7")).key == "ann"
        waiting = await listed(store, Filter(state=State.SCHEDULED, route="r"))
        assert [message.id for message in waiting] == [*(f"m{n}" for n in range(9)), "far"]
        figures = await store.figures(store.clock.now())
        assert (figures.routes["r"].scheduled, figures.states[State.SCHEDULED]) == (10, 10)

    async def test_an_id_is_one_message_whatever_its_key_and_route(
        self, store: MessageStore
    ) -> None:
        now = store.clock.now()
        same = [
            new("same", due=now, key="ann"),
            new("same", due=now, key="bob"),
            new("same", due=now, key="cat", route="plain"),
            new("same", due=now - 1, key="ann", on_conflict=OnConflict.EARLIEST),
        ]
        receipts = [(await put(store, message))[0] for message in same]
        assert [receipt.duplicate for receipt in receipts] == [False, True, True, True]
        await put(store, new("plain", due=now, route="plain"))
        (again,) = await put(store, new("plain", due=now, key="ann"))
        assert again.duplicate
        assert (await held(store, "same")).due == now - 1
        assert ids(await self.take()) == ["same"]

    async def test_a_paused_route_gives_nothing(self, store: MessageStore) -> None:
        await self.line_up(store, "1")
        await store.pause("r", True)
        assert ids(await self.take()) == []
        await store.pause("r", False)
        assert ids(await self.take()) == ["1"]

    async def test_workers_at_once_never_hold_more_of_a_key_than_allowed(
        self, store: MessageStore
    ) -> None:
        two, gone = KeyLimit(2), Counter[str]()
        for key in ("ann", "bob", "cat"):
            await self.line_up(store, *(f"{key}{n}" for n in range(6)), key=key)
        while claims := [
            claim
            for claim in await asyncio.gather(*(self.take(two, limit=4) for _ in range(4)))
            if claim.messages
        ]:
            flying = Counter(message.key for claim in claims for message in claim.messages)
            assert max(flying.values()) <= 2
            gone.update(name for claim in claims for name in ids(claim))
            await asyncio.gather(*(end(store, claim) for claim in claims))
        assert set(gone.values()) == {1}
        assert len(gone) == 18
