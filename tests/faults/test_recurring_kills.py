"""kill -9 of workers while rules fire each second: no moment is missed, and none comes twice."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from penstock.model.recurrence import occurrence_id
from penstock.model.times import format_moment
from penstock.stores.dynamodb import init_store
from systems.servers.dynamodb import DynamoServer
from systems.servers.redis import RedisServer
from tests.faults.campaign import arrivals, assert_promises, until_more
from tests.faults.fleet import IN_FLIGHT, Fleet, run_fleet

pytestmark = pytest.mark.slow

RULES = 20
KILLS = 5
RULE = {"every": "1s", "route": "hook", "misfire": "all"}


@pytest.fixture
def redis() -> Iterator[RedisServer]:
    with RedisServer() as server:
        yield server


async def test_sqlite_misses_no_moment(tmp_path: Path) -> None:
    await _fire(tmp_path, f"sqlite:///{tmp_path}/rules.db")


async def test_redis_misses_no_moment(tmp_path: Path, redis: RedisServer) -> None:
    await _fire(tmp_path, redis.url)


async def test_dynamodb_misses_no_moment(
    tmp_path: Path, dynamodb: DynamoServer, redis: RedisServer
) -> None:
    store = dynamodb.url("rules-killed", redis.url, shards=2)
    await init_store(store)
    await _fire(tmp_path, store, lease="10s")  # DynamoDB Local is slow beside others


async def _fire(folder: Path, store: str, lease: str = "3s") -> None:
    """Rules fire each second while workers are killed and started again; then compare."""
    async with run_fleet(folder, store, workers=2, lease=lease, seed=31) as fleet:
        async with httpx.AsyncClient(base_url=fleet.urls[0], timeout=300) as client:
            # Given, not read from the answer: a slow PUT may be answered after its first moment.
            start = -(-time.time_ns() // 1_000_000_000) * 1_000 + 2_000
            first = {f"r{number}": start for number in range(RULES)}
            for rule in first:
                body = {**RULE, "start": format_moment(start)}
                answer = await client.put(f"/v1/recurring/{rule}", json=body)
                assert answer.status_code == 201, answer.text
            await _kill(fleet)
            expected = await _planted(client, first)
        verdict = await arrivals(fleet.witness, expected)
        seen = {one.id for one in await fleet.witness.arrivals()}
    assert_promises(verdict, duplicates=KILLS * IN_FLIGHT)
    # A worker may have put one that it could not count any more, because the rule was paused then.
    ahead = {occurrence_id(rule, _after(rule, expected)) for rule in first}
    assert seen - set(expected) <= ahead, "a message of no moment"


async def _kill(fleet: Fleet) -> None:
    for _ in range(KILLS):
        before = len(await fleet.witness.arrivals())
        await until_more(fleet.witness, before + RULES)  # they are at work again
        await fleet.kill_one(fleet.workers)
    await until_more(fleet.witness, len(await fleet.witness.arrivals()) + RULES)


async def _planted(client: httpx.AsyncClient, first: dict[str, int]) -> dict[str, int]:
    """Every moment from the first to the one at which its rule was paused, with its due."""
    expected: dict[str, int] = {}
    for rule, start in first.items():
        shown = (await client.post(f"/v1/recurring/{rule}/pause")).json()
        assert (shown["missed"], shown["skipped"]) == (0, 0)
        for number in range(shown["planted"]):
            due = start + number * 1_000
            expected[occurrence_id(rule, due)] = due
    return expected


def _after(rule: str, expected: dict[str, int]) -> int:
    """The moment after the last that was counted."""
    return 1_000 + max(due for name, due in expected.items() if name.startswith(f"{rule}@"))
