"""PostgreSQL 13, the oldest that works: promises of the store port, and what SQL callers call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import psycopg
import pytest
import pytest_asyncio

import penstock
from penstock.model.errors import UnknownMessage
from penstock.model.state import State
from penstock.stores.postgres.address import parse_address
from penstock.stores.postgres.schema import OLDEST, SCHEMA_VERSION, migrate
from penstock.testing.store_cases.keeping import PurgeCases, WakeCases
from penstock.testing.store_cases.keyed import KeyedCases
from penstock.testing.store_cases.leases import ClaimCases, LeaseCases, SettleCases
from penstock.testing.store_cases.lists import FigureCases, SearchCases
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness


class TestOldestPostgres(
    ClaimCases,
    SettleCases,
    LeaseCases,
    SearchCases,
    FigureCases,
    PurgeCases,
    WakeCases,
):
    """Of the suite what differs most from statement to statement; the newest runs all of it."""

    @pytest_asyncio.fixture
    async def harness(self, oldest_postgres: PostgresServer) -> AsyncIterator[PostgresHarness]:
        harness = PostgresHarness(oldest_postgres)
        yield harness
        await harness.close()


class TestOldestPostgresKeyed(KeyedCases):
    @pytest_asyncio.fixture
    async def harness(self, oldest_postgres: PostgresServer) -> AsyncIterator[PostgresHarness]:
        harness = PostgresHarness(oldest_postgres)
        yield harness
        await harness.close()


async def test_the_schema_of_the_oldest_postgres_is_made_and_found(
    oldest_postgres: PostgresServer,
) -> None:
    assert int(oldest_postgres.sql("SHOW server_version_num")) // 10_000 * 10_000 == OLDEST
    address = parse_address(PostgresHarness(oldest_postgres).url)
    assert migrate(address) == (0, SCHEMA_VERSION)
    assert migrate(address) == (SCHEMA_VERSION, SCHEMA_VERSION)


async def test_the_oldest_postgres_schedules_in_the_callers_transaction(
    oldest_postgres: PostgresServer,
) -> None:
    harness = PostgresHarness(oldest_postgres)
    schema = parse_address(harness.url).schema
    arrived: asyncio.Queue[str] = asyncio.Queue()

    async def handle(message: penstock.Message) -> None:
        await arrived.put(message.id)

    async with penstock.open(harness.url, routes={"default": handle}, worker=True) as engine:
        async with await psycopg.AsyncConnection.connect(oldest_postgres.url) as connection:
            call = f"SELECT {schema}.schedule(id => %s, due => %s)"
            for name in ("from-sql", "taken-back"):
                await connection.execute(call.encode(), (name, "2100-01-01Z"))
            await connection.execute(call.encode(), ("sql", "now"))
            await engine.schedule({}, id="python", connection=connection)
            with pytest.raises(UnknownMessage):
                await engine.get("python")
            await connection.commit()
            assert {await arrived.get(), await arrived.get()} == {"sql", "python"}
            cancelled = await connection.execute(
                f"SELECT {schema}.cancel('taken-back'), {schema}.cancel('unknown')".encode()
            )
            assert await cancelled.fetchone() == (True, False)
        found = [await engine.get(name) for name in ("from-sql", "taken-back")]
    assert [one.state for one in found] == [State.SCHEDULED, State.CANCELLED]
    await harness.close()
