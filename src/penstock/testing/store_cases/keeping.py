"""PURGE and LISTEN: purge in time, wake in time."""

from __future__ import annotations

import pytest

from penstock.model.message import OnConflict
from penstock.model.outcome import Action
from penstock.model.state import PURGEABLE, State
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
    eventually,
    new,
    purge_all,
    put,
    put_due,
    settle,
)
from penstock.testing.store_harness import StoreHarness


class PurgeCases(StoreCases):
    @pytest.mark.parametrize("state", sorted(PURGEABLE))
    async def test_a_settled_message_is_forgotten_after_the_retention_time(
        self, harness: StoreHarness, state: State
    ) -> None:
        store = (await harness.open(retention=SHORT)).messages
        try:
            message, token = await claim_one(store, key="who")
            await settle(store, ending(message, token, state))
            await harness.pass_time(AFTER_SHORT)
            await purge_all(store)
            assert await store.find([message.id]) == [None]
            assert await store.get(message.id) is None
            (receipt,) = await put(store, new(message.id, due=store.clock.now()))
            assert not receipt.duplicate
        finally:
            await store.close()

    async def test_a_cancelled_message_is_forgotten_however_it_was_cancelled(
        self, harness: StoreHarness
    ) -> None:
        store = (await harness.open(retention=SHORT)).messages
        try:
            await put(store, new("waiting", due=store.clock.now() + FAR))
            failed, token = await claim_one(store)
            lost, _ = await claim_one(store, lease=SHORT)
            for message_id in ("waiting", failed.id, lost.id):
                await amend(store, Action.CANCEL, message_id)
            await settle(store, ending(failed, token, State.SCHEDULED, due=failed.due))
            await harness.pass_time(AFTER_SHORT)
            assert len(await store.reap(store.clock.now(), 10)) == 1
            await harness.pass_time(AFTER_SHORT)
            await purge_all(store)
            assert await store.find(["waiting", failed.id, lost.id]) == [None] * 3
        finally:
            await store.close()

    async def test_the_retention_time_ends_after_its_last_millisecond(
        self, harness: StoreHarness
    ) -> None:
        store = (await harness.open(retention=SHORT)).messages
        try:
            message, token = await claim_one(store)
            now = store.clock.now()
            await store.settle([ending(message, token)], now)
            await harness.pass_time(AFTER_SHORT)
            await store.purge(now + SHORT, 10)
            assert None not in await store.find([message.id])
            await store.purge(now + SHORT + 1, 10)
            assert await store.find([message.id]) == [None]
        finally:
            await store.close()

    async def test_within_the_retention_time_an_id_stays_known(self, store: MessageStore) -> None:
        message, token = await claim_one(store)
        await settle(store, ending(message, token))
        assert await purge_all(store) == 0
        (receipt,) = await put(store, new(message.id, due=store.clock.now()))
        assert (receipt.duplicate, receipt.state) == (True, State.DELIVERED)

    async def test_the_dead_and_the_waiting_are_never_purged(self, harness: StoreHarness) -> None:
        store = (await harness.open(retention=SHORT, retention_count=1)).messages
        try:
            dead, token = await claim_one(store)
            await settle(store, ending(dead, token, State.DEAD))
            leased, _ = await claim_one(store)
            await put(store, new("waits", due=store.clock.now() + FAR))
            await harness.pass_time(AFTER_SHORT)
            assert await purge_all(store) == 0
            assert None not in await store.find([dead.id, leased.id, "waits"])
        finally:
            await store.close()

    async def test_a_redriven_message_is_purged_only_after_its_new_end(
        self, harness: StoreHarness
    ) -> None:
        store = (await harness.open(retention=SHORT)).messages
        try:
            message, token = await claim_one(store)
            await settle(store, ending(message, token, State.DEAD))
            await amend(store, Action.REDRIVE, message.id, due=store.clock.now())
            await harness.pass_time(AFTER_SHORT)
            await purge_all(store)
            (again,) = (taken := await claim(store)).messages
            await settle(store, ending(again, taken.token))
            await harness.pass_time(AFTER_SHORT)
            await purge_all(store)
            assert await store.find([message.id]) == [None]
        finally:
            await store.close()

    async def test_more_settled_than_the_count_are_forgotten_oldest_first(
        self, harness: StoreHarness
    ) -> None:
        store = (await harness.open(retention_count=20)).messages
        try:
            ids = await put_due(store, 200)
            while (taken := await claim(store, 30)).messages:
                await settle(store, *(ending(m, taken.token) for m in taken.messages))
                last = taken.messages[-1].id
            await purge_all(store)
            known = [m.id for m in await store.find(ids) if m is not None]
            assert 1 <= len(known) <= 40
            assert last in known
        finally:
            await store.close()

    async def test_a_purge_goes_in_steps(self, harness: StoreHarness) -> None:
        store = (await harness.open(retention=SHORT)).messages
        try:
            ids = await put_due(store, 90)
            taken = await claim(store)
            await settle(store, *(ending(m, taken.token) for m in taken.messages))
            await harness.pass_time(AFTER_SHORT)
            assert await store.purge(store.clock.now(), 10) <= 20
            assert any(m is not None for m in await store.find(ids))
            await purge_all(store)
            assert await store.find(ids) == [None] * 90
        finally:
            await store.close()


class WakeCases(StoreCases):
    async def test_a_put_wakes_its_route_with_its_due(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        heard: list[tuple[str, int]] = []
        store.listen(lambda route, due: heard.append((route, due)))
        due = store.clock.now() + FAR
        await put(store, new(due=due), new(due=due + 1, route="other"))
        await eventually(harness, lambda: {("r", due), ("other", due + 1)} <= set(heard))

    async def test_a_batch_wakes_with_the_nearest_of_its_dues(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        heard: list[int] = []
        store.listen(lambda _, due: heard.append(due))
        due = store.clock.now() + FAR
        await put(store, *(new(due=due + place) for place in (5, 0, 9)))
        await eventually(harness, lambda: bool(heard))
        assert min(heard) == due

    async def test_every_change_that_brings_a_due_nearer_wakes(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        heard: list[int] = []
        now = store.clock.now()
        await put(store, *(new(name, due=now + FAR) for name in ("moved", "freed", "replaced")))
        dead, token = await claim_one(store)
        await settle(store, ending(dead, token, State.DEAD))
        tried, tried_token = await claim_one(store)
        lost, _ = await claim_one(store, lease=SHORT)
        await harness.pass_time(AFTER_SHORT)
        store.listen(lambda _, due: heard.append(due))

        async def wakes_by(due: int) -> None:
            await eventually(harness, lambda: any(h <= due for h in heard))
            heard.clear()

        await amend(store, Action.RESCHEDULE, "moved", due=now + 500)
        await wakes_by(now + 500)
        await amend(store, Action.RELEASE, "freed")
        await wakes_by(store.clock.now())
        await put(store, new("replaced", due=now + 400, on_conflict=OnConflict.REPLACE))
        await wakes_by(now + 400)
        await amend(store, Action.REDRIVE, dead.id, due=now + 300)
        await wakes_by(now + 300)
        await settle(store, ending(tried, tried_token, State.SCHEDULED, due=now + 200))
        await wakes_by(now + 200)
        assert [r.id for r in await store.reap(store.clock.now(), 10)] == [lost.id]
        await wakes_by(store.clock.now())

    async def test_resuming_a_route_wakes_it(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        heard: list[str] = []
        await store.pause("r", True)
        await put_due(store)
        store.listen(lambda route, _: heard.append(route))
        await store.pause("r", False)
        await eventually(harness, lambda: "r" in heard)

    async def test_what_is_heard_of_can_be_claimed_at_once(
        self, store: MessageStore, harness: StoreHarness
    ) -> None:
        heard: list[int] = []
        store.listen(lambda _, due: heard.append(due))
        await put_due(store, 3)
        await eventually(harness, lambda: bool(heard))
        assert len((await claim(store)).messages) == 3
