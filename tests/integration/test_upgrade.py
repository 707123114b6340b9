"""Stores that the last development version before 0.2 wrote are refused clearly, and left alone.

`before_0_2/` holds them as that version left them: two messages, a policy and a waiting room each.
(There was no PostgreSQL then.)
"""

from __future__ import annotations

import base64
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from redis import Redis

import penstock
from systems.servers.dynamodb import DynamoServer
from systems.servers.redis import RedisServer

WRITTEN = Path(__file__).parent / "before_0_2"
TABLE = "old"

pytestmark = pytest.mark.slow


def raw(text: str) -> bytes:
    return base64.b64decode(text)


async def refusal(url: str) -> str:
    """What the store is refused with."""
    with pytest.raises(penstock.ConfigError) as refused:
        async with penstock.open(url):
            pass
    return str(refused.value)


async def test_a_sqlite_file_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "old.db"
    with sqlite3.connect(file) as connection:
        connection.executescript((WRITTEN / "sqlite.sql").read_text())
    connection.close()
    before = file.read_bytes()
    assert await refusal(f"sqlite:///{file}") == (
        f"sqlite:///{file}: schema 2 is too old to be brought up to date "
        "(it was written before 0.2); name another file"
    )
    assert file.read_bytes() == before


async def test_a_prefix_of_redis_is_refused_and_left_alone(redis: RedisServer) -> None:
    with redis.client as client:
        fill(client, json.loads((WRITTEN / "redis.json").read_text()))
        before = {key: client.dump(key) for key in client.scan_iter()}
        assert await refusal(redis.url) == (
            "store: penstock:* has format 0, this Penstock knows 1: "
            "it was written before 0.2, or name another prefix (?prefix=…)"
        )
        assert {key: client.dump(key) for key in client.scan_iter()} == before


def fill(client: Redis, keys: list[Any]) -> None:
    for name, kind, value in keys:
        key = raw(name)
        match kind:
            case "string":
                client.set(key, raw(value))
            case "hash":
                client.hset(key, mapping={raw(field): raw(text) for field, text in value})
            case "zset":
                client.zadd(key, {raw(member): score for member, score in value})
            case "list":
                client.rpush(key, *map(raw, value))
            case "set":
                client.sadd(key, *map(raw, value))
            case _:
                raise LookupError(kind)


async def test_a_dynamodb_table_is_refused_and_left_alone(
    dynamodb: DynamoServer, redis: RedisServer
) -> None:
    written = json.loads((WRITTEN / "dynamodb.json").read_text())
    dynamodb.ask("CreateTable", written["table"])
    try:
        for item in written["items"]:
            dynamodb.ask("PutItem", {"TableName": TABLE, "Item": item})
        refused = await refusal(dynamodb.url(TABLE, redis.url))
        assert refused == (
            "store: old has format 1, this Penstock knows 2: "
            "it was written before 0.2, or name another table"
        )
        left = dynamodb.ask("Scan", {"TableName": TABLE})["Items"]
        known = {item["pk"]["S"] for item in written["items"]}
        assert {item["pk"]["S"] for item in left} == known
    finally:
        dynamodb.drop(TABLE)
