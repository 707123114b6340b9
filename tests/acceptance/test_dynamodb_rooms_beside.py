"""Workers of every example on one Redis, beside a dispatcher: who signs entry tokens there."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import httpx
import jwt
import pytest

from systems.servers.dynamodb import DynamoServer
from systems.servers.ports import free_port
from systems.servers.redis import RedisServer
from tests.acceptance.commands import EXAMPLES, Command, run, start

pytestmark = pytest.mark.slow

USERS = 300
KEY = {"kid": "dispatcher", "secret": "0123456789abcdef0123456789abcdef"}
REDIS, DYNAMODB = "localhost:6379", "localhost:8000"


def stores(redis: RedisServer, dynamodb: DynamoServer, table: str) -> dict[str, str]:
    """The stores of the other examples that use Redis; their routes have no part in rooms."""
    found = {}
    for file in sorted(EXAMPLES.rglob("penstock.toml")):
        store = tomllib.loads(file.read_text()).get("store", "")
        if REDIS in store and file.parent.name != "dispatcher":
            address = redis.url.removeprefix("redis://").partition("/")[0]
            store = store.replace(REDIS, address).replace(DYNAMODB, dynamodb.host)
            found[str(file.parent.relative_to(EXAMPLES))] = store.replace(
                "/scheduler?", f"/{table}?"
            )
    return found


def line_up(redis: RedisServer, event: str) -> None:
    """As a broker that writes each member with its record."""
    script = """
    for i = 1, ARGV[1] do
      redis.call('HSET', 'WAITING_QUEUE_INDEX_RECORD:' .. KEYS[1], 'u' .. i, '{"instanceId":"n1"}')
      redis.call('ZADD', 'WAITING:' .. KEYS[1], i, 'u' .. i)
    end"""
    redis.cli("EVAL", script, "1", event, str(USERS))


def signers(redis: RedisServer) -> Counter[str]:
    """Key id → entry tokens that it signed, checked with the dispatcher's key where it is that."""
    found: Counter[str] = Counter()
    for _, fields in json.loads(redis.cli("--json", "XRANGE", "DISPATCH", "-", "+") or "[]"):
        told = dict(zip(fields[::2], fields[1::2], strict=True))
        kid = jwt.get_unverified_header(told["entryToken"])["kid"]
        if kid == KEY["kid"]:
            jwt.decode(told["entryToken"], KEY["secret"], ["HS256"], audience=told["eventId"])
        found[kid] += 1
    return found


async def test_every_entry_token_is_signed_by_the_dispatchers_key(
    tmp_path: Path, redis: RedisServer, dynamodb: DynamoServer
) -> None:
    port = free_port()
    others = stores(redis, dynamodb, f"rooms-{tmp_path.name[:40]}")
    assert len(others) >= 5, "the examples have moved"
    quiet = {"PENSTOCK_WORKER__METRICS": "none"}
    async with AsyncExitStack() as stack:

        async def started(name: str, *words: str, **env: str) -> Command:
            folder = tmp_path / name.replace("/", "-")
            folder.mkdir()
            command = await start(folder, *words, env=env)
            stack.push_async_callback(command.stop)
            return command

        tables = [store for store in others.values() if store.startswith("dynamodb")]
        for store in tables:
            await run(tmp_path, "store", "init", env={"PENSTOCK_STORE": store})
        workers = [
            await started(name, "worker", PENSTOCK_STORE=store, **quiet)
            for name, store in others.items()
        ]
        dispatcher = await started(
            *("dispatcher", "serve"),
            PENSTOCK_STORE=redis.url,
            PENSTOCK_API__HTTP=f"127.0.0.1:{port}",
            PENSTOCK_ROOMS__KEYS=json.dumps([KEY]),
            PENSTOCK_ROOMS__POLL="100ms",
        )
        for process in (*workers, dispatcher):
            await process.until(lambda process=process: "holds messages in" in process.stdout)  # type: ignore[misc]  # bound now
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            made = await client.put("/v1/rooms/sale", json={"capacity": 1000})
            assert made.status_code == 200
        for event in ("concert", "sale"):
            line_up(redis, event)
        await dispatcher.until(lambda: sum(signers(redis).values()) == 2 * USERS)
    assert signers(redis) == {"dispatcher": 2 * USERS}
