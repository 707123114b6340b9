"""Rooms in a Redis Cluster: the event is the hash tag, and every room has its own streams."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from penstock.model.room import RoomDraft
from penstock.model.ticket import TicketState
from systems.servers.redis import RedisCluster
from tests.rooms.redis_harness import eventually, rooms_on

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster() -> Iterator[RedisCluster]:
    running = RedisCluster(fails_over=False)
    try:
        yield running
    finally:
        running.close()


def cli(cluster: RedisCluster, *command: str) -> str:
    port = str(cluster.nodes[0].port)
    done = subprocess.run(
        ["redis-cli", "-c", "-p", port, *command], capture_output=True, text=True, check=True
    )
    return done.stdout.rstrip("\n")


async def test_rooms_on_every_node_are_found_promoted_and_dispatched(
    cluster: RedisCluster,
) -> None:
    names = [f"event-{n}" for n in range(6)]
    for name in names:
        cli(cluster, "ZADD", f"WAITING:{{{name}}}", "1700000001", "alice")
    async with rooms_on(cluster.url):
        for name in names:
            await eventually(
                lambda name=name: cli(cluster, "XLEN", f"DISPATCH:{{{name}}}") == "1"  # type: ignore[misc]  # bound now
            )
    for name in names:
        assert cli(cluster, "GET", f"ENTRY_QUEUE_SLOTS:{{{name}}}") == "1"
        assert cli(cluster, "XLEN", f"ENTRY:{{{name}}}") == "1"


async def test_records_are_awaited_and_late_ones_removed(cluster: RedisCluster) -> None:
    records = "WAITING_QUEUE_INDEX_RECORD:{late}"
    async with rooms_on(cluster.url):
        cli(cluster, "ZADD", "WAITING:{late}", "1", "bare")
        cli(cluster, "HSET", records, "bob", '{"instanceId":"n1"}')
        cli(cluster, "ZADD", "WAITING:{late}", "2", "bob")
        await eventually(lambda: cli(cluster, "XLEN", "DISPATCH:{late}") == "2")
        cli(cluster, "HSET", records, "bare", '{"instanceId":"n1"}')
        await eventually(lambda: cli(cluster, "HLEN", records) == "0")
    entries = cli(cluster, "XRANGE", "ENTRY:{late}", "-", "+").splitlines()
    assert entries.index("bob") < entries.index("bare"), "nobody waits for another's record"


async def test_a_visitor_walks_the_whole_way(cluster: RedisCluster) -> None:
    async with rooms_on(cluster.url) as rooms:
        await rooms.operate.put("sale", RoomDraft(capacity=1))
        await rooms.join.join("sale", "a")
        await rooms.join.join("sale", "b")
        await eventually(lambda: cli(cluster, "XLEN", "DISPATCH:{sale}") == "1")
        token = (await rooms.wait.look("sale", "a")).token
        assert (await rooms.enter.enter("sale", token or "")).state is TicketState.ENTERED
        assert (await rooms.wait.look("sale", "b")).ahead == 0
        await rooms.leave.leave("sale", "a")
        await eventually(lambda: cli(cluster, "XLEN", "DISPATCH:{sale}") == "2")


async def test_another_prefix_begins_the_keys_and_the_event_stays_the_hash_tag(
    cluster: RedisCluster,
) -> None:
    cli(cluster, "ZADD", "team-a:WAITING:{own}", "1700000001", "alice")
    cli(cluster, "ZADD", "WAITING:{other}", "1700000001", "bob")
    async with rooms_on(f"{cluster.url}?prefix=team-a") as rooms:
        await eventually(lambda: cli(cluster, "XLEN", "team-a:DISPATCH:{own}") == "1")
        assert await rooms.store.list_rooms("", 10) == ["own"]
    assert cli(cluster, "GET", "team-a:ENTRY_QUEUE_SLOTS:{own}") == "1"
    assert cli(cluster, "ZCARD", "WAITING:{other}") == "1"
