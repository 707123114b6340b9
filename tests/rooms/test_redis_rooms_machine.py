"""Rooms on Redis agree with the reference in memory, step by step.

The reference takes the pure steps of `penstock.model.room_steps`; the scripts are copies of them:
`put.lua` ↔ `configure`, `state.lua` ↔ `set_state` and `reset`, `join.lua` ↔ `join`, `look.lua` ↔
`see` and `heartbeat`, `enter.lua` ↔ `enter`, `leave.lua` ↔ `end`, `promote.lua` ↔ `promote`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from penstock.redis_kit.address import parse_address
from penstock.redis_kit.connect import connect
from penstock.stores.redis.rooms.keys import RoomRunner
from penstock.stores.redis.rooms.store import RedisRooms
from penstock.testing.clock import ManualClock
from penstock.testing.room_machine import LONG_AGO
from penstock.testing.room_suite import RoomSuite
from penstock.testing.store_harness import StoreHarness
from systems.servers.redis import RedisServer
from tests.conformance.redis_harness import RedisHarness
from tests.rooms.broker_machine import BrokerMachine
from tests.rooms.crowd import run_crowd

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[RedisServer]:
    with RedisServer() as running:
        yield running


class TestRedisRooms(RoomSuite):
    examples = 40

    @pytest.fixture
    def make_harness(self, server: RedisServer) -> Callable[[], StoreHarness]:
        return lambda: RedisHarness(server)


def test_redis_rooms_that_brokers_write_agree_with_the_model(server: RedisServer) -> None:
    class RedisBrokers(BrokerMachine):
        async def open_store(self) -> RedisRooms:
            self.client = connect(parse_address(server.url))
            await self.client.call("FLUSHALL")
            return RedisRooms(RoomRunner(self.client, "redis"), ManualClock(LONG_AGO))

        async def close_store(self) -> None:
            await self.client.close()

    run_state_machine_as_test(
        RedisBrokers, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )


async def test_a_crowd_of_a_hundred_thousand_of_whom_a_tenth_gives_up(server: RedisServer) -> None:
    client = connect(parse_address(server.url))
    await client.call("FLUSHALL")
    try:
        rooms = RedisRooms(RoomRunner(client, "redis"), ManualClock(LONG_AGO))
        await run_crowd(rooms, 100_000, 1_000)
    finally:
        await client.close()
