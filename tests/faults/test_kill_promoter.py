"""kill -9 between promote and dispatch: no user is lost, no slot leaks, nobody is told twice."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from systems.servers.redis import RedisServer
from tests.rooms.redis_harness import eventually
from tests.servers.penstock import PenstockProcess

CONFIG = """
store = "{redis}"
[api]
http = "127.0.0.1:@PORT@"
[rooms]
take_over = "500ms"
poll = "100ms"
"""
CROWD = 1_500
CAPACITY = 600
"""More than one step lets in."""


def users(server: RedisServer, stream: str) -> list[str]:
    found = json.loads(server.cli("--json", "XRANGE", stream, "-", "+") or "[]")
    return [fields[1] for _, fields in found]


@pytest.mark.slow
async def test_a_promoter_killed_at_work_loses_nobody(tmp_path: Path) -> None:
    with RedisServer("--appendfsync", "always", aof=True) as redis:
        config = CONFIG.format(redis=redis.url)
        process = PenstockProcess(tmp_path, config)
        await process.start()
        try:
            async with httpx.AsyncClient(base_url=process.url, timeout=300) as client:
                made = await client.put("/v1/rooms/sale", json={"capacity": CAPACITY})
                assert made.status_code == 200
            script = f"for i=1,{CROWD} do redis.call('ZADD','WAITING:sale',i,'u'..i) end"
            redis.cli("EVAL", script, "0")
            await eventually(lambda: int(redis.cli("XLEN", "ENTRY") or 0) > 0)
            await process.kill()
            entered, passed_on = users(redis, "ENTRY"), users(redis, "DISPATCH")
            assert len(passed_on) <= len(entered)
            await process.start()
            await eventually(lambda: redis.cli("XLEN", "DISPATCH") == str(CAPACITY), 40)
            redis.cli("DECRBY", "ENTRY_QUEUE_SLOTS:sale", "10")
            await eventually(lambda: redis.cli("XLEN", "DISPATCH") == str(CAPACITY + 10), 40)
            wanted = [f"u{n}" for n in range(1, CAPACITY + 11)]
            assert users(redis, "ENTRY") == wanted
            assert sorted(users(redis, "DISPATCH")) == sorted(wanted)
            assert redis.cli("GET", "ENTRY_QUEUE_SLOTS:sale") == str(CAPACITY)
            assert redis.cli("ZCARD", "WAITING:sale") == str(CROWD - CAPACITY - 10)
        finally:
            await process.kill()
