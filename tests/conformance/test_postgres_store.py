"""PostgreSQL keeps every promise of the store port."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest_asyncio

from penstock.testing.store_cases.fleet import FleetCases
from penstock.testing.store_cases.keyed import KeyedCases
from penstock.testing.store_suite import DurableStoreSuite
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness


class TestPostgres(DurableStoreSuite, FleetCases):
    @pytest_asyncio.fixture
    async def harness(self, postgres: PostgresServer) -> AsyncIterator[PostgresHarness]:
        harness = PostgresHarness(postgres)
        yield harness
        await harness.close()


class TestPostgresKeyed(KeyedCases):
    @pytest_asyncio.fixture
    async def harness(self, postgres: PostgresServer) -> AsyncIterator[PostgresHarness]:
        harness = PostgresHarness(postgres)
        yield harness
        await harness.close()
