"""DynamoDB + Redis and the plain-Python model agree on every walk Hypothesis finds."""

from __future__ import annotations

import atexit
import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

from penstock.testing.store_machine import StoreMachine
from tests.conformance.dynamodb_harness import TABLE, TieredHarness
from tests.servers.dynamodb import DynamoServer, dynamo_server
from tests.servers.redis import RedisServer


@cache
def servers() -> tuple[DynamoServer, RedisServer]:
    """One of each for all walks of this process: unittest's cases take no fixtures."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    dynamodb = dynamo_server(Path(folder.name))
    dynamodb.start()
    atexit.register(dynamodb.kill)
    dynamodb.make_table(TABLE, shards=3)
    redis = RedisServer()
    atexit.register(redis.close)
    return dynamodb, redis


class TieredMachine(StoreMachine):
    def make_harness(self) -> TieredHarness:
        return TieredHarness(*servers())


TestDynamoDBMachine = pytest.mark.slow(TieredMachine.TestCase)
TestDynamoDBMachine.settings = settings(max_examples=7, stateful_step_count=30)
