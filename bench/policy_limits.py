"""The bare limits of deciding: the same reads and writes, nothing reckoned; and PyPI `limits`."""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Sequence
from zlib import crc32

from limits import RateLimitItemPerDay, RateLimitItemPerHour, RateLimitItemPerSecond
from limits.storage import Storage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter
from redis.asyncio import Redis

BLOB = b"x" * 150
"""About what the counters of one recipient take."""
SHARED_BLOB = b"x" * 13_500
"""About what a counter that keys share takes in a file, with who holds a place in it."""
DAY_MS = 86_400_000
HOLD_MS = 630_000
SHARDS = 16

KEYED = """
-- KEYS: of each shard its version and its accounts. ARGV: blob, time to live, accounts a shard.
local k, read = 0, 0
for shard = 3, #ARGV do
  local number = tonumber(ARGV[shard])
  redis.call('GET', KEYS[k + 1])
  read = read + #redis.call('MGET', unpack(KEYS, k + 2, k + 1 + number))
  for i = k + 2, k + 1 + number do redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) end
  k = k + 1 + number
end
return read
"""
SHARED = """
-- KEYS: version, pace, sends, held, counted. ARGV: now, hold until, blob, time to live, ids.
redis.call('GET', KEYS[1])
redis.call('GET', KEYS[3])
redis.call('ZMSCORE', KEYS[4], unpack(ARGV, 5))
redis.call('ZMSCORE', KEYS[5], unpack(ARGV, 5))
redis.call('ZCOUNT', KEYS[4], '(' .. ARGV[1], '+inf')
redis.call('HGET', KEYS[2], 'p')
local scores = {}
for i = 5, #ARGV do
  scores[#scores + 1] = ARGV[2]
  scores[#scores + 1] = ARGV[i]
end
redis.call('ZADD', KEYS[4], unpack(scores))
redis.call('ZREMRANGEBYSCORE', KEYS[4], '-inf', ARGV[1])
redis.call('ZREMRANGEBYRANK', KEYS[5], 0, -1001)
redis.call('SET', KEYS[3], ARGV[3], 'PX', ARGV[4])
redis.call('PEXPIRE', KEYS[4], ARGV[4])
redis.call('PEXPIRE', KEYS[5], ARGV[4])
return redis.call('HSET', KEYS[2], 'p', ARGV[3])
"""
VERSION = "SELECT CAST(value AS INTEGER) FROM meta WHERE name = 'policies'"
PACES = "SELECT name, state FROM paces WHERE name = 'p'"
READ = "SELECT name, counters FROM accounts WHERE name IN (SELECT value FROM json_each(?))"
WRITE = """
INSERT INTO accounts (name, stale, counters) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET counters = excluded.counters
"""
PACE = "INSERT INTO paces VALUES ('p', ?) ON CONFLICT (name) DO UPDATE SET state = excluded.state"


async def bare_redis(client: Redis, batches: Sequence[Sequence[str]]) -> float:
    """Decisions a second of two scripts that read and write as much and decide nothing.

    Places held by one batch are gone before the next, as those of the engine are once counted.
    """
    keyed, shared = await client.script_load(KEYED), await client.script_load(SHARED)
    took = 0.0
    for number, batch in enumerate(batches):
        ids = [f"{number}-{n:012}" for n in range(len(batch))]
        start = time.perf_counter()
        shards: dict[int, list[str]] = {}
        for key in batch:
            shards.setdefault(crc32(key.encode()) % SHARDS, []).append(key)
        keys: list[str] = []
        for shard, names in shards.items():
            keys += (f"b:{shard}:v", *(f"b:{shard}:a:{name}" for name in names))
        lengths = [len(names) for names in shards.values()]
        await client.evalsha(keyed, len(keys), *keys, BLOB, DAY_MS, *lengths)
        now = number * HOLD_MS
        common = ("b:v", "b:p", "b:c", "b:h", "b:r", now, now + HOLD_MS, BLOB, DAY_MS)
        await client.evalsha(shared, 5, *common, *ids)
        took += time.perf_counter() - start
        await client.zrem("b:h", *ids)
    return sum(map(len, batches)) / took


def bare_sqlite(connection: sqlite3.Connection, batches: Sequence[Sequence[str]]) -> float:
    """Decisions a second of one transaction a batch that reads and writes as much."""
    connection.execute("PRAGMA synchronous = FULL")
    start = time.perf_counter()
    for batch in batches:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute(VERSION).fetchone()
        connection.execute("PRAGMA data_version").fetchone()
        connection.execute(PACES).fetchall()
        names = json.dumps([*batch, "all"])
        connection.execute(READ, (names,)).fetchall()
        rows = [(name, 1, BLOB) for name in sorted(set(batch))]
        connection.executemany(WRITE, [("all", 1, SHARED_BLOB), *rows])
        connection.execute(PACE, (BLOB[:20],))
        connection.execute("COMMIT")
    return sum(map(len, batches)) / (time.perf_counter() - start)


def one_by_one(storage: Storage, keys: Sequence[str]) -> float:
    """Messages a second through PyPI `limits`: the same three caps and pace, each a call."""
    moving = MovingWindowRateLimiter(storage)
    fixed = FixedWindowRateLimiter(storage)
    daily, hourly = RateLimitItemPerDay(1_000), RateLimitItemPerHour(500)
    campaign, pace = RateLimitItemPerDay(1_000_000_000), RateLimitItemPerSecond(100_000)
    start = time.perf_counter()
    for key in keys:
        moving.hit(daily, "daily", key)
        moving.hit(hourly, "hourly", key, "push")
        fixed.hit(campaign, "campaign", "spring")
        fixed.hit(pace, "pace")
    return len(keys) / (time.perf_counter() - start)
