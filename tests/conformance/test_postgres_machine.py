"""PostgreSQL and the reference in memory agree on every walk Hypothesis finds."""

from __future__ import annotations

import atexit
from functools import cache

import pytest
from hypothesis import settings

from penstock.testing.store_machine import StoreMachine
from systems.servers.postgres import PostgresServer
from tests.conformance.postgres_harness import PostgresHarness


@cache
def server() -> PostgresServer:
    """One for all walks of this process: unittest's cases take no fixtures."""
    server = PostgresServer(None, "fsync=off", "full_page_writes=off", "synchronous_commit=off")
    atexit.register(server.close)
    server.start()
    return server


class PostgresMachine(StoreMachine):
    def make_harness(self) -> PostgresHarness:
        return PostgresHarness(server())


TestPostgresMachine = pytest.mark.slow(PostgresMachine.TestCase)
TestPostgresMachine.settings = settings(max_examples=15, stateful_step_count=50)
