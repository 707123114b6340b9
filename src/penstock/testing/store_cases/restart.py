"""CRASH and RESTART: answered writes are there, and earlier processes are distinct."""

from __future__ import annotations

from penstock.model.state import State
from penstock.testing.store_cases.base import (
    AFTER_SHORT,
    FAR,
    SHORT,
    StoreCases,
    claim,
    claim_one,
    new,
    put,
    put_due,
)
from penstock.testing.store_harness import StoreHarness


class RestartCases(StoreCases):
    async def test_what_was_answered_is_there_after_a_crash(self, harness: StoreHarness) -> None:
        opened = await harness.open()
        store = opened.messages
        now = store.clock.now()
        await put(store, new("waits", due=now + FAR), new("leased", due=now))
        await claim(store)
        await store.pause("other", True)
        await harness.crash(opened)
        again = (await harness.open()).messages
        try:
            waits, leased = await again.find(["waits", "leased"])
            assert waits is not None
            assert leased is not None
            assert (waits.state, leased.state) == (State.SCHEDULED, State.LEASED)
            assert await again.paused() == {"other"}
            (receipt,) = await put(again, new("waits", due=now + FAR))
            assert receipt.duplicate
        finally:
            await again.close()

    async def test_tokens_are_new_after_a_restart(self, harness: StoreHarness) -> None:
        tokens = []
        for _ in range(3):
            store = (await harness.open()).messages
            await put_due(store, 2)
            tokens += [(await claim(store, 1)).token, (await claim(store, 1)).token]
            await store.close()
        assert len(set(tokens)) == 6

    async def test_a_lease_outlives_the_process_that_held_it(self, harness: StoreHarness) -> None:
        opened = await harness.open()
        store = opened.messages
        message, _ = await claim_one(store, lease=SHORT)
        await harness.crash(opened)
        again = (await harness.open()).messages
        try:
            assert (await claim(again)).messages == ()
            await harness.pass_time(AFTER_SHORT)
            assert [r.id for r in await again.reap(again.clock.now(), 10)] == [message.id]
            assert [m.id for m in (await claim(again)).messages] == [message.id]
        finally:
            await again.close()
