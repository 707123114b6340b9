"""Promises per key: every store and the plain book agree on every walk Hypothesis finds."""

from __future__ import annotations

import pytest
from hypothesis import settings

from penstock.testing.keyed_machine import KeyedMachine
from tests.conformance.redis_harness import RedisHarness
from tests.conformance.sqlite_harness import SqliteHarness
from tests.conformance.test_redis_machine import cluster, server


class SqliteMachine(KeyedMachine):
    def make_harness(self) -> SqliteHarness:
        return SqliteHarness("?synchronous=normal")


class OneServerMachine(KeyedMachine):
    def make_harness(self) -> RedisHarness:
        return RedisHarness(server())


class ClusterMachine(KeyedMachine):
    most = 100

    def make_harness(self) -> RedisHarness:
        return RedisHarness(cluster(), partitions=6)


TestSqlite = SqliteMachine.TestCase
TestSqlite.settings = settings(max_examples=15, stateful_step_count=40)
TestOneServer = pytest.mark.slow(OneServerMachine.TestCase)
TestOneServer.settings = settings(max_examples=60, stateful_step_count=40)
TestCluster = pytest.mark.slow(ClusterMachine.TestCase)
TestCluster.settings = settings(max_examples=6, stateful_step_count=30)
