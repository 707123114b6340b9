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
from penstock.model.outcome import Action, Amendment, Claim
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.ports.store import Store
from penstock.stores.postgres import open_store
from penstock.stores.postgres.address import parse_address, with_schema
from penstock.stores.postgres.store import PostgresStore
from penstock.stores.postgres.turn_locks import ANY, NONE, Turns, number_in_order, order
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
        self._schema = parse_address(url).schema
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
                    (f"{self._schema}.turns", route),
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
                f" AND classid = CAST('{self._schema}.turns' AS REGCLASS)"
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


A, B, C = (frozenset((route,)) for route in ROUTES)


@pytest.mark.parametrize(
    ("steps", "number"),
    [
        ([A, A, B, C], 4),
        ([B, A], 1),
        ([A, A | B, A | B, B, C], 5),
        ([A, B | C, A | B | C], 3),
        ([B, A | C], 1),
        ([A | C, B], 1),
        ([NONE, ANY, NONE], 3),
        ([ANY, ANY], 1),
        ([ANY, A], 1),
        ([A, NONE, ANY], 2),
    ],
)
def test_steps_on_postgres_share_a_transaction_that_lock_turns_in_order(
    steps: list[Turns], number: int
) -> None:
    assert number_in_order(steps) == number


def test_steps_on_postgres_that_lock_one_route_each_all_share_a_transaction() -> None:
    steps = sorted([C, NONE, A, B, A, NONE, C], key=order)
    assert number_in_order(steps) == len(steps)
