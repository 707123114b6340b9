"""Redis and the reference in memory agree on every walk Hypothesis finds."""

from __future__ import annotations

import atexit
from functools import cache

import pytest
from hypothesis import settings

from penstock.testing.store_machine import StoreMachine
from systems.servers.redis import RedisCluster, RedisServer
from tests.conformance.redis_harness import RedisHarness


@cache
def server() -> RedisServer:
    """One for all walks of this process: unittest's cases take no fixtures."""
    server = RedisServer()
    atexit.register(server.close)
    return server


@cache
def cluster() -> RedisCluster:
    cluster = RedisCluster(fails_over=False)
    atexit.register(cluster.close)
    return cluster


class OneServerMachine(StoreMachine):
    def make_harness(self) -> RedisHarness:
        return RedisHarness(server())


class ClusterMachine(StoreMachine):
    def make_harness(self) -> RedisHarness:
        return RedisHarness(cluster(), partitions=6, options="?key_index=true")


TestOneServerMachine = pytest.mark.slow(OneServerMachine.TestCase)
TestOneServerMachine.settings = settings(max_examples=30, stateful_step_count=40)
TestClusterMachine = pytest.mark.slow(ClusterMachine.TestCase)
TestClusterMachine.settings = settings(max_examples=10, stateful_step_count=30)
