"""Several processes at once on one PostgreSQL: each message once, each answer definite."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from penstock.model.outcome import Action, Amendment, Answer, Settlement
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.ports.store import Store
from penstock.testing.store_cases.base import ending, new
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness

LEASE = 60_000


@pytest_asyncio.fixture
async def stores(postgres: PostgresServer) -> AsyncIterator[list[Store]]:
    harness = PostgresHarness(postgres)
    opened = [await harness.open() for _ in range(3)]
    yield opened
    for store in opened:
        await store.close()
    await harness.close()


async def test_every_message_is_claimed_once(stores: list[Store]) -> None:
    now = stores[0].clock.now()
    ids = [f"m{n}" for n in range(300)]
    await stores[0].messages.put([new(one, due=now) for one in ids], now)
    claimed: Counter[str] = Counter()

    async def work(store: Store) -> None:
        while (claim := await store.messages.claim("r", 7, LEASE, now)).messages:
            claimed.update(m.id for m in claim.messages)
            await store.messages.settle([ending(m, claim.token) for m in claim.messages], now)

    await asyncio.gather(*(work(store) for store in stores for _ in range(2)))
    assert claimed == Counter(ids)


async def test_one_id_that_everybody_puts_is_new_once(stores: list[Store]) -> None:
    now = stores[0].clock.now()
    batch = [new(f"m{n}", due=now) for n in range(20)]
    answers = await asyncio.gather(
        *(store.messages.put(batch[:: 1 - 2 * (n % 2)], now) for n in range(4) for store in stores)
    )
    fresh = Counter(one.id for receipts in answers for one in receipts if not one.duplicate)
    assert fresh == Counter(m.id for m in batch)


async def test_an_id_that_is_put_while_it_is_settled_is_never_new(stores: list[Store]) -> None:
    store, other, third = (store.messages for store in stores)
    now = store.clock.now()
    for n in range(30):
        await store.put([new(f"m{n}", due=now)], now)
        claim = await store.claim("r", 1, LEASE, now)
        _, *receipts = await asyncio.gather(
            store.settle([ending(claim.messages[0], claim.token)], now),
            *(one.put([new(f"m{n}", due=now)], now) for one in (other, third)),
        )
        assert all(isinstance(r, list) and r[0].duplicate for r in receipts)
    assert not (await store.claim("r", 1, LEASE, now)).messages


async def test_a_message_is_cancelled_or_claimed_and_never_both(stores: list[Store]) -> None:
    now = stores[0].clock.now()
    ids = [f"m{n}" for n in range(60)]
    await stores[0].messages.put([new(one, due=now) for one in ids], now)

    async def cancel(message_id: str) -> Answer:
        amendment = Amendment(action=Action.CANCEL, id=message_id)
        (answer,) = await stores[1].messages.amend([amendment], now)
        return answer.answer

    async def claim() -> list[str]:
        taken = []
        while (some := await stores[2].messages.claim("r", 4, LEASE, now)).messages:
            taken += [m.id for m in some.messages]
        return taken

    taken, *answers = await asyncio.gather(claim(), *(cancel(one) for one in ids))
    done = {one for one, answer in zip(ids, answers, strict=True) if answer is Answer.DONE}
    later = (await stores[0].messages.claim("r", 100, LEASE, now)).messages
    assert done.isdisjoint(taken)
    assert done | set(taken) | {m.id for m in later} == set(ids)


async def test_a_lease_is_settled_or_lost_and_never_both(stores: list[Store]) -> None:
    store, other, third = (store.messages for store in stores)
    now = store.clock.now()
    for n in range(15):
        await store.put([new(f"m{n}-{i}", due=now - 1) for i in range(5)], now)
        claim = await store.claim("r", 5, 0, now)
        settled, lost, more = await asyncio.gather(
            store.settle([ending(m, claim.token) for m in claim.messages], now),
            other.reap(now, 10),
            third.reap(now, 10),
        )
        delivered = sum(state is State.DELIVERED for state in settled)
        assert delivered + len(lost) + len(more) == 5
        again = await store.claim("r", 10, LEASE, now)
        assert len(again.messages) == len(lost) + len(more)
        done: list[Settlement] = [ending(m, again.token) for m in again.messages]
        await store.settle(done, now)


@pytest.mark.parametrize("ordered", [True, False])
async def test_of_a_key_no_more_are_in_flight_than_promised(
    stores: list[Store], ordered: bool
) -> None:
    now = stores[0].clock.now()
    limit = KeyLimit(in_flight=1, ordered=ordered)
    flying: Counter[str] = Counter()
    done: list[str] = []

    async def put(store: Store, number: int) -> None:
        for n in range(10):
            await store.messages.put([new(f"{number}-{n}", key=f"k{n % 3}", due=now)], now)

    async def work(store: Store) -> None:
        assert store.keyed is not None
        idle = 0
        while idle < 30 and len(done) < 30:
            claim = await store.keyed.claim_keyed("r", 4, LEASE, now, limit)
            idle = 0 if claim.messages else idle + 1
            for m in claim.messages:
                flying[m.key] += 1
                assert flying[m.key] == 1
            await asyncio.sleep(0)
            for m in claim.messages:
                flying[m.key] -= 1
            done.extend(m.id for m in claim.messages)
            await store.messages.settle([ending(m, claim.token) for m in claim.messages], now)

    await asyncio.gather(
        *(put(store, n) for n, store in enumerate(stores)), *(work(store) for store in stores)
    )
    await work(stores[0])
    assert sorted(done) == sorted(f"{s}-{n}" for s in range(3) for n in range(10))
