"""A PostgreSQL that hangs, cuts connections or goes away: callers are told, and it goes on."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from penstock.model.errors import StoreUnavailable
from penstock.ports.store import MessageStore
from penstock.stores.postgres import history, lane, open_store
from penstock.stores.postgres.session import Session
from penstock.stores.postgres.store import PostgresStore
from penstock.testing.proxy import Proxy
from penstock.testing.store_cases.base import ending, new
from penstock.testing.store_harness import DAY_MS, MANY
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness


@asynccontextmanager
async def through(proxy: Proxy, server: PostgresServer) -> AsyncIterator[MessageStore]:
    """A store that reaches its server by the proxy."""
    harness = PostgresHarness(server)
    url = harness.url.replace(f":{server.port}/", f":{proxy.port}/")
    store = await open_store(
        url, total_partitions=8, retention=DAY_MS, retention_count=MANY, clock=None
    )
    try:
        yield store.messages
    finally:
        await store.close()
        await harness.close()


async def until_it_answers(store: MessageStore) -> None:
    while True:
        try:
            await store.check()
        except StoreUnavailable:
            await asyncio.sleep(0.05)
        else:
            return


async def test_a_connection_that_was_cut_is_replaced_and_nobody_notices(
    postgres: PostgresServer,
) -> None:
    async with Proxy("127.0.0.1", postgres.port) as proxy, through(proxy, postgres) as store:
        now = store.clock.now()
        await store.put([new("one", due=now)], now)
        proxy.cut()
        await store.put([new("two", due=now)], now)
        assert None not in await store.find(["one", "two"])


async def test_a_postgres_that_refuses_is_named_and_found_again(postgres: PostgresServer) -> None:
    async with Proxy("127.0.0.1", postgres.port) as proxy, through(proxy, postgres) as store:
        now = store.clock.now()
        proxy.refuse()
        proxy.cut()
        with pytest.raises(StoreUnavailable, match=str(proxy.port)):
            await store.put([new("one", due=now)], now)
        proxy.refuse(False)
        await until_it_answers(store)
        assert await store.find(["one"]) == [None]
        await store.put([new("one", due=now)], now)


async def test_a_postgres_that_hangs_leaves_no_caller_without_an_answer(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane, "PATIENCE", 1.0)
    monkeypatch.setattr(lane, "CLOSE_PATIENCE", 1.0)
    async with Proxy("127.0.0.1", postgres.port) as proxy, through(proxy, postgres) as store:
        now = store.clock.now()
        proxy.hang()
        with pytest.raises(StoreUnavailable, match="no answer"):
            await store.put([new("one", due=now)], now)
        proxy.flow()
        proxy.cut()
        await until_it_answers(store)
        await store.put([new("one", due=now)], now)
        assert None not in await store.find(["one"])


async def test_postgres_drops_partitions_that_are_forgotten_whole(
    postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "WIDTH", 10)
    harness = PostgresHarness(postgres)
    store = (await harness.open(retention=0)).messages
    assert isinstance(store, PostgresStore)
    now = store.clock.now()

    async def partitions() -> set[str]:
        def work(tx: Session) -> set[str]:
            return {name for (name,) in tx.query("history_parts")}

        return await store._lane.submit(work)

    before = await partitions()
    await store.put([new(f"m{n}", due=now) for n in range(35)], now)
    claim = await store.claim("r", 50, 60_000, now)
    await store.settle([ending(m, claim.token) for m in claim.messages], now)
    await harness.pass_time(5)
    while await store.purge(store.clock.now(), 20):
        pass
    after = await partitions()
    assert before == {f"history_{n}" for n in range(4)}
    assert after.isdisjoint({"history_0", "history_1", "history_2"})
    assert {"history_4", "history_5", "history_6"} <= after
    assert await store.find([f"m{n}" for n in range(35)]) == [None] * 35
    await store.close()
    await harness.close()
