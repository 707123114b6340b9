"""The bare limits of deciding: the same reads and writes, nothing reckoned; and PyPI `limits`."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Sequence

from limits import RateLimitItemPerDay, RateLimitItemPerHour, RateLimitItemPerSecond
from limits.storage import Storage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter
from redis.asyncio import Redis

BLOB = b"x" * 150
"""About what the counters of one recipient take."""
DAY_MS = 86_400_000

SCRIPT = """
-- KEYS: pace, shared counter, accounts. ARGV: blob, time to live.
local found = redis.call('MGET', unpack(KEYS, 3))
redis.call('HGET', KEYS[1], 'p')
redis.call('GET', KEYS[2])
for i = 3, #KEYS do redis.call('SET', KEYS[i], ARGV[1], 'PX', ARGV[2]) end
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
redis.call('HSET', KEYS[1], 'p', ARGV[1])
return #found
"""
READ = "SELECT name, counters FROM accounts WHERE name IN (SELECT value FROM json_each(?))"
WRITE = """
INSERT INTO accounts (name, stale, counters) VALUES (?, ?, ?)
ON CONFLICT (name) DO UPDATE SET counters = excluded.counters
"""


async def bare_redis(client: Redis, batches: Sequence[Sequence[str]]) -> float:
    """Decisions a second of a script that reads and writes as much and decides nothing."""
    sha = await client.script_load(SCRIPT)
    start = time.perf_counter()
    for batch in batches:
        keys = ["b:p", "b:c", *(f"b:a:{key}" for key in batch)]
        await client.evalsha(sha, len(keys), *keys, BLOB, DAY_MS)
    return sum(map(len, batches)) / (time.perf_counter() - start)


def bare_sqlite(connection: sqlite3.Connection, batches: Sequence[Sequence[str]]) -> float:
    connection.execute("PRAGMA synchronous = FULL")
    start = time.perf_counter()
    for batch in batches:
        connection.execute("BEGIN IMMEDIATE")
        names = '["' + '","'.join(batch) + '"]'
        connection.execute(READ, (names,)).fetchall()
        connection.executemany(WRITE, [(name, 1, BLOB) for name in {*batch, "all", "pace"}])
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
