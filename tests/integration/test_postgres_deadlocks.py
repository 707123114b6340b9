"""Two processes with two keyed routes lock their turns in one order: no transaction is failed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import psycopg
import pytest
import pytest_asyncio

from penstock.model.message import Message
from penstock.model.outcome import (
    Action,
    Amended,
    Amendment,
    Answer,
    Claim,
    Reaped,
    Settlement,
)
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.ports.store import Store
from penstock.stores.postgres import open_store
from penstock.stores.postgres.address import parse_address, with_schema
from penstock.stores.postgres.store import PostgresStore
from penstock.testing.store_cases.base import ending, new
from penstock.testing.store_harness import DAY_MS, MANY
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness
from tests.integration.sqlite_files import until

LIMIT = KeyLimit(in_flight=1, ordered=True)
ROUTES = ("a", "b", "c")
Step: TypeAlias = Callable[[PostgresStore, str], Awaitable[object]]


class Fleet:
    """Two processes with one thread each, and the locks of turns in their schema."""

    def __init__(self, server: PostgresServer, url: str, stores: list[Store]) -> None:
        self._server = server
        self.schema = parse_address(url).schema
        self.stores: list[PostgresStore] = []
        for store in stores:
            assert isinstance(store.messages, PostgresStore)
            self.stores.append(store.messages)

    def deadlocks(self) -> int:
        return self._server.log.read_text().count("deadlock detected")

    async def in_phase(self, step: Step, orders: Iterable[Iterable[str]]) -> list[Any]:
        """Each process takes the steps of its routes, at the same moment as the other."""
        gate = threading.Event()
        closed = [store._lane.submit(lambda _: gate.wait()) for store in self.stores]
        async with await psycopg.AsyncConnection.connect(self._server.url) as holder:
            for route in ROUTES:
                await holder.execute(
                    "SELECT pg_advisory_xact_lock(CAST(CAST(%s AS REGCLASS) AS INT), hashtext(%s))",
                    (f"{self.schema}.turns", route),
                )
            steps = [
                asyncio.ensure_future(step(store, route))
                for store, routes in zip(self.stores, orders, strict=True)
                for route in routes
            ]
            await asyncio.sleep(0)
            gate.set()
            await until(lambda: self._waiting() == len(self.stores))
        await asyncio.gather(*closed)
        return await asyncio.gather(*steps)

    def _waiting(self) -> int:
        return int(
            self._server.sql(
                "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
                f" AND classid = CAST('{self.schema}.turns' AS REGCLASS)"
            )
        )


@pytest_asyncio.fixture
async def fleet(postgres: PostgresServer) -> AsyncIterator[Fleet]:
    harness = PostgresHarness(postgres)
    url = with_schema(postgres.url, parse_address(harness.url).schema) + "&connections=1"
    stores = [
        await open_store(
            url, total_partitions=8, retention=DAY_MS, retention_count=MANY, clock=None
        )
        for _ in range(2)
    ]
    fleet = Fleet(postgres, url, stores)
    for store in fleet.stores:
        for route in ROUTES:
            await claim(store, route)
    yield fleet
    for opened in stores:
        await opened.messages.close()
    await harness.close()


async def claim(store: PostgresStore, route: str) -> Claim:
    return await store.claim_keyed(route, 10, 60_000, store.clock.now(), LIMIT)


async def put(store: PostgresStore, route: str) -> list[str]:
    now = store.clock.now()
    batch = [new(key=f"{id(store)}-{n}", route=route, due=now) for n in range(2)]
    return [receipt.id for receipt in await store.put(batch, now)]


async def test_claims_of_two_keyed_routes_on_postgres_end_in_no_deadlock(fleet: Fleet) -> None:
    before = fleet.deadlocks()
    ids = [one for route in ROUTES for one in await put(fleet.stores[0], route)]
    claims = await fleet.in_phase(claim, ("ba", "ab"))
    claims += await fleet.in_phase(claim, ("cab", "bca"))
    assert {m.id for claim in claims for m in claim.messages} == set(ids)
    assert fleet.deadlocks() == before


async def test_puts_to_two_keyed_routes_on_postgres_end_in_no_deadlock(fleet: Fleet) -> None:
    before = fleet.deadlocks()
    await fleet.in_phase(put, ("ba", "ab"))
    await fleet.in_phase(put, ("cab", "bca"))
    assert fleet.deadlocks() == before


async def test_batches_with_two_keyed_routes_on_postgres_end_in_no_deadlock(fleet: Fleet) -> None:
    async def put_both(store: PostgresStore, routes: str) -> None:
        now = store.clock.now()
        batch = [
            new(f"{routes}{n}-{place}", route=route, due=now)
            for place, route in enumerate(routes)
            for n in range(2)
        ]
        await store.put(batch, now)

    before = fleet.deadlocks()
    await fleet.in_phase(put_both, (["ba"], ["ab"]))
    await fleet.in_phase(put_both, (["cb", "ba"], ["ac", "bc"]))
    assert fleet.deadlocks() == before


async def test_of_two_with_one_id_in_a_batch_postgres_keeps_the_first(fleet: Fleet) -> None:
    store = fleet.stores[0]
    now = store.clock.now()
    receipts = await store.put([new("one", route=route, due=now) for route in "ba"], now)
    assert [receipt.duplicate for receipt in receipts] == [False, True]
    (kept,) = await store.find(["one"])
    assert kept is not None
    assert kept.route == "b"


async def test_retries_of_two_keyed_routes_on_postgres_end_in_no_deadlock(fleet: Fleet) -> None:
    leased: dict[tuple[PostgresStore, str], tuple[Message, int]] = {}
    for store in fleet.stores:
        for route in ROUTES:
            now = store.clock.now()
            await store.put([new(key=f"{id(store)}", route=route, due=now)], now)
            claimed = await claim(store, route)
            leased[store, route] = (claimed.messages[0], claimed.token)

    async def retry(store: PostgresStore, route: str) -> State | None:
        message, token = leased[store, route]
        now = store.clock.now()
        (state,) = await store.settle([ending(message, token, State.SCHEDULED, due=now)], now)
        return state

    before = fleet.deadlocks()
    assert await fleet.in_phase(retry, ("ba", "ab")) == [State.SCHEDULED] * 4
    assert fleet.deadlocks() == before


async def test_changes_of_any_route_on_postgres_end_in_no_deadlock(fleet: Fleet) -> None:
    ids = {
        (store, route): (await put(store, route))[0] for store in fleet.stores for route in ROUTES
    }

    async def cancel(store: PostgresStore, route: str) -> None:
        amendment = Amendment(action=Action.CANCEL, id=ids[store, route])
        await store.amend([amendment], store.clock.now())

    before = fleet.deadlocks()
    await fleet.in_phase(cancel, ("ba", "ab"))
    assert fleet.deadlocks() == before


async def leased(store: PostgresStore, routes: str, lease: int = 60_000) -> list[Settlement]:
    """A message of each route, claimed, put back by its settlement; in the order of the routes."""
    settlements = []
    for route in routes:
        now = store.clock.now()
        await store.put([new(key=f"{id(store)}", route=route, due=now)], now)
        claimed = await store.claim_keyed(route, 10, lease, now, LIMIT)
        (message,) = claimed.messages
        settlements.append(ending(message, claimed.token, State.SCHEDULED, due=now))
    return settlements


BOTH = (["ba"], ["ab"])
"""What two processes change in one step each."""


@pytest.mark.parametrize("state", [State.SCHEDULED, State.DELIVERED, State.DEAD])
async def test_settlements_of_two_keyed_routes_in_one_step_end_in_no_deadlock(
    fleet: Fleet, state: State
) -> None:
    own = {
        store: await leased(store, routes)
        for store, (routes,) in zip(fleet.stores, BOTH, strict=True)
    }

    async def settle(store: PostgresStore, _: str) -> list[State | None]:
        step = [ending(one.message, one.token, state, due=one.due) for one in own[store]]
        return await store.settle(step, store.clock.now())

    before = fleet.deadlocks()
    assert await fleet.in_phase(settle, BOTH) == [[state] * 2] * 2
    assert fleet.deadlocks() == before


async def test_changes_of_two_keyed_routes_in_one_step_end_in_no_deadlock(fleet: Fleet) -> None:
    ids = {(store, route): (await put(store, route))[0] for store in fleet.stores for route in "ab"}

    async def cancel(store: PostgresStore, routes: str) -> list[Amended]:
        step = [Amendment(action=Action.CANCEL, id=ids[store, route]) for route in routes]
        return await store.amend(step, store.clock.now())

    before = fleet.deadlocks()
    answers = await fleet.in_phase(cancel, BOTH)
    assert {one.answer for some in answers for one in some} == {Answer.DONE}
    assert fleet.deadlocks() == before


async def test_lost_leases_of_two_keyed_routes_end_in_no_deadlock(fleet: Fleet) -> None:
    for store, (routes,) in zip(fleet.stores, BOTH, strict=True):
        await leased(store, routes, lease=0)

    async def reap(store: PostgresStore, _: str) -> list[Reaped]:
        return await store.reap(store.clock.now(), 2)

    before = fleet.deadlocks()
    reaped = await fleet.in_phase(reap, BOTH)
    assert sum(map(len, reaped)) == 4
    assert fleet.deadlocks() == before


async def test_unheard_claims_of_two_keyed_routes_end_in_no_deadlock(fleet: Fleet) -> None:
    tokens = {
        store: sorted(one.token for one in await leased(store, routes))
        for store, (routes,) in zip(fleet.stores, BOTH, strict=True)
    }

    async def give_back(store: PostgresStore, _: str) -> None:
        store._unheard.update(tokens[store])
        await store._give_back(store.clock.now())

    before = fleet.deadlocks()
    await fleet.in_phase(give_back, BOTH)
    assert fleet.deadlocks() == before


async def test_a_cancel_from_sql_during_a_settlement_ends_in_no_deadlock(
    fleet: Fleet, postgres: PostgresServer
) -> None:
    first, second = fleet.stores
    step = await leased(first, "ba")
    (other,) = await leased(second, "c")

    async def change(store: PostgresStore, _: str) -> object:
        if store is first:
            return await store.settle(step, store.clock.now())
        call = f"SELECT {fleet.schema}.cancel('{step[0].message.id}')"
        return await asyncio.to_thread(postgres.sql, call)

    before = fleet.deadlocks()
    await fleet.in_phase(change, (["ba"], ["b"]))
    assert fleet.deadlocks() == before
    assert await second.settle([other], second.clock.now()) == [State.SCHEDULED]


async def test_a_put_from_sql_of_an_id_that_is_being_put_ends_in_no_deadlock(
    fleet: Fleet, postgres: PostgresServer
) -> None:
    first, second = fleet.stores

    async def put_same(store: PostgresStore, _: str) -> object:
        now = store.clock.now()
        if store is first:
            return await store.put([new("same", route="a", due=now)], now)
        call = f"SELECT {fleet.schema}.schedule('a', id => 'same')"
        return await asyncio.to_thread(postgres.sql, call)

    before = fleet.deadlocks()
    await fleet.in_phase(put_same, (["a"], ["a"]))
    assert fleet.deadlocks() == before
    assert await second.find(["same"]) != [None]


async def test_changes_that_wait_together_share_a_transaction_in_the_order_they_came(
    fleet: Fleet, postgres: PostgresServer
) -> None:
    """A stream of single cancels costs one commit, and no claim waits for its end."""
    store = fleet.stores[0]
    now = store.clock.now()
    batch = [new(f"m{n}", route="ab"[n % 2], due=now) for n in range(20)]
    await store.put(batch, now)
    gate = threading.Event()
    closed = store._lane.submit(lambda _: gate.wait())
    done: list[str] = []

    async def cancel(message_id: str) -> None:
        await store.amend([Amendment(action=Action.CANCEL, id=message_id)], now)
        done.append("cancel")

    async def claim_other() -> None:
        await claim(store, "c")
        done.append("claim")

    steps = [asyncio.create_task(cancel(one.id)) for one in batch[:10]]
    steps.append(asyncio.create_task(claim_other()))
    steps += [asyncio.create_task(cancel(one.id)) for one in batch[10:]]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(closed, *steps)
    assert done.index("claim") == 10
    transactions = f"SELECT count(DISTINCT xmin::text) FROM {fleet.schema}.history"
    assert postgres.sql(transactions) == "1"
