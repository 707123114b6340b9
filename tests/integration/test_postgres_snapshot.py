"""A transaction that stays open elsewhere keeps dead entries: claims do not walk over them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import psycopg
import pytest
import pytest_asyncio

from penstock.stores.postgres import floors
from penstock.stores.postgres.floors import ANYWHERE
from penstock.stores.postgres.session import STATEMENTS, Session, _placeholders
from penstock.stores.postgres.store import PostgresStore
from penstock.testing.store_cases.base import ending, new
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness

BATCH = 500
BATCHES = 16
LEASE = 60_000


@pytest_asyncio.fixture
async def store(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[PostgresStore]:
    monkeypatch.setattr(floors, "BUSY", 2 * BATCH)
    monkeypatch.setattr(floors, "EVERY", 3_600.0)
    monkeypatch.setattr(floors, "LONGEST", 3_600.0)
    harness = PostgresHarness(postgres)
    store = (await harness.open()).messages
    assert isinstance(store, PostgresStore)
    yield store
    await store.close()
    await harness.close()


@pytest_asyncio.fixture
async def snapshot(postgres: PostgresServer) -> AsyncIterator[None]:
    """Another session, in the middle of something long."""
    async with await psycopg.AsyncConnection.connect(postgres.url) as connection:
        await connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await connection.execute("SELECT 1")
        yield
        await connection.rollback()


async def pages_of_a_claim(store: PostgresStore, *, full: bool = False) -> int:
    """Pages that the next claim would visit, by either way; the claim itself is not made."""

    def explain(session: Session) -> int:
        look = store._floors.look("r")
        now = store.clock.now()
        values = {"route": "r", "limit": 1, "now": now, "until": now + LEASE}
        values |= ANYWHERE if full else look.values
        plain = pages(session, STATEMENTS["due"], values)
        for _ in range(2):  # the first makes the plans of this connection, and reads for that
            session._run("SAVEPOINT before")
            called = pages(session, _placeholders(CLAIM_DUE), values)
            session._run("ROLLBACK TO SAVEPOINT before")
        store._floors.end(look, committed=False)
        return max(plain, called)

    return await store._lane.submit(explain)


CLAIM_DUE = """
SELECT * FROM claim_due(:route, :limit, 1000000, 1, :now, :until, :floor_dues, :floor_ids)
"""


def pages(session: Session, text: str, values: Mapping[str, Any]) -> int:
    top = plan_of(session, text, values)
    return int(top["Shared Hit Blocks"] + top["Shared Read Blocks"])


def plan_of(session: Session, text: str, values: Mapping[str, Any]) -> Any:
    (row,) = session._run(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {text}", values).fetchall()
    plan = row[0] if isinstance(row[0], list) else json.loads(row[0])
    return plan[0]["Plan"]


async def run(store: PostgresStore, batches: int) -> int:
    """Put, claim and settle so many batches; how many were settled."""
    settled = 0
    for _ in range(batches):
        now = store.clock.now()
        await store.put([new(due=now) for _ in range(BATCH)], now)
        claim = await store.claim("r", BATCH, LEASE, now)
        await store.settle([ending(m, claim.token) for m in claim.messages], now)
        settled += len(claim.messages)
    return settled


async def test_claims_stay_cheap_while_a_snapshot_is_held(
    store: PostgresStore, snapshot: None
) -> None:
    settled = await run(store, 4)
    at_first = await pages_of_a_claim(store)
    settled += await run(store, BATCHES)
    assert settled == (4 + BATCHES) * BATCH
    later = await pages_of_a_claim(store)
    from_the_beginning = await pages_of_a_claim(store, full=True)
    assert from_the_beginning > 5 * later, "the dead entries are there"
    assert later <= 2 * at_first


async def test_what_comes_below_a_floor_is_claimed(
    store: PostgresStore, postgres: PostgresServer
) -> None:
    await run(store, 4)
    now = store.clock.now()
    claim = await store.claim("r", 1, LEASE, now)
    assert claim.messages == ()
    await store.put([new("old", due=now - 1_000_000), new("older", due=0, priority=9)], now)
    claim = await store.claim("r", 10, LEASE, now)
    assert [m.id for m in claim.messages] == ["older", "old"]


async def test_what_another_process_puts_below_a_floor_is_claimed(
    store: PostgresStore, postgres: PostgresServer
) -> None:
    heard = asyncio.Event()
    store.listen(lambda _route, due: heard.set() if due == 7 else None)
    await run(store, 4)
    schema = store.name.partition("schema=")[2]
    while not heard.is_set():  # until the listener is connected
        number = postgres.sql(f"SELECT count(*) FROM {schema}.messages")
        postgres.sql(
            f"SELECT {schema}.put_message('late-{number}', 'r', 'k', '1', 'application/json',"
            " NULL, NULL, NULL, 7, NULL, 5)"
        )
        await asyncio.sleep(0)
    claim = await store.claim("r", 100, LEASE, store.clock.now())
    assert claim.messages
    assert claim.messages[0].id == "late-0"
    assert {m.due for m in claim.messages} == {7}


async def test_a_message_put_back_below_a_floor_is_claimed_again(store: PostgresStore) -> None:
    await run(store, 4)
    now = store.clock.now()
    await store.put([new("again", due=now)], now)
    claim = await store.claim("r", 1, 0, now)
    assert len(claim.messages) == 1
    assert [one.id for one in await store.reap(now, 10)] == ["again"]
    claim = await store.claim("r", 1, LEASE, now)
    assert [m.id for m in claim.messages] == ["again"]


async def test_a_put_looks_its_ids_up_and_does_not_read_all_that_is_settled(
    store: PostgresStore,
) -> None:
    """Whatever the planner knows of the partitions, which is nothing of one that has just begun."""
    await run(store, BATCHES)

    def explain(session: Session) -> int:
        ids = [f"{n:06}" for n in range(BATCH)]
        return read_of_history(plan_of(session, STATEMENTS["unput"], {"ids": ids}))

    assert await store._lane.submit(explain) == 0


def read_of_history(plan: Any) -> int:
    """Rows of history that a plan read, those included that it did not take."""
    rows = 0
    if str(plan.get("Relation Name", "")).startswith("history_"):
        rows = plan["Actual Rows"] + plan.get("Rows Removed by Filter", 0)
        rows *= plan["Actual Loops"]
    return int(rows) + sum(map(read_of_history, plan.get("Plans", ())))
