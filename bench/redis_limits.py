"""The bare limits of Redis on this machine: three variadic scripts over 8 partitions, no more.

They write the same bytes (a record of the payload and some numbers, a due time, a lease, a
tombstone) in the same batches, pipelined in one round trip; they check nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from zlib import crc32

from redis.asyncio import Redis

from penstock.model.message import NewMessage

PARTITIONS = 8
BATCH = 500

PUT = """
-- KEYS: records, queue. ARGV: (id, record, due) again and again.
local fields, scores = {}, {}
for i = 1, #ARGV, 3 do
  fields[#fields + 1] = ARGV[i]; fields[#fields + 1] = ARGV[i + 1]
  scores[#scores + 1] = ARGV[i + 2]; scores[#scores + 1] = ARGV[i]
end
redis.call('HSET', KEYS[1], unpack(fields))
redis.call('ZADD', KEYS[2], unpack(scores))
return #ARGV / 3
"""
CLAIM = """
-- KEYS: records, queue, leases. ARGV: now, limit, token.
local ids = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', ARGV[1], 'LIMIT', 0, ARGV[2])
if #ids == 0 then return {} end
local records = redis.call('HMGET', KEYS[1], unpack(ids))
redis.call('ZREM', KEYS[2], unpack(ids))
local held = {}
for i = 1, #ids do held[2 * i - 1] = ids[i]; held[2 * i] = ARGV[3] end
redis.call('HSET', KEYS[3], unpack(held))
return {ids, records}
"""
SETTLE = """
-- KEYS: records, leases, settled. ARGV: tombstone, ids.
local ids, stones = {}, {}
for i = 2, #ARGV do
  ids[i - 1] = ARGV[i]
  stones[2 * i - 3] = ARGV[i]; stones[2 * i - 2] = ARGV[1]
end
redis.call('HDEL', KEYS[2], unpack(ids))
redis.call('HSET', KEYS[1], unpack(stones))
redis.call('RPUSH', KEYS[3], unpack(ids))
return #ids
"""


class Bare:
    """The three scripts, called as fast as a client can."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._shas: dict[str, str] = {}

    async def load(self) -> None:
        for name, text in (("put", PUT), ("claim", CLAIM), ("settle", SETTLE)):
            self._shas[name] = await self._client.script_load(text)

    async def put(self, messages: Sequence[NewMessage]) -> float:
        """Messages a second."""
        batches = [_by_partition(messages[i : i + BATCH]) for i in range(0, len(messages), BATCH)]
        start = time.perf_counter()
        for batch in batches:
            pipe = self._client.pipeline(transaction=False)
            for partition, args in batch.items():
                keys = (f"b:{{{partition}}}:m", f"b:{{{partition}}}:q")
                pipe.evalsha(self._shas["put"], 2, *keys, *args)
            await pipe.execute()
        return len(messages) / (time.perf_counter() - start)

    async def pipeline(self, messages: Sequence[NewMessage]) -> float:
        """Messages a second of plain HSET and ZADD in the same batches, without a script."""
        batches = [_by_partition(messages[i : i + BATCH]) for i in range(0, len(messages), BATCH)]
        start = time.perf_counter()
        for batch in batches:
            pipe = self._client.pipeline(transaction=False)
            for partition, args in batch.items():
                for at in range(0, len(args), 3):
                    name, record, due = args[at : at + 3]
                    pipe.execute_command("HSET", f"p:{{{partition}}}:m", name, record)
                    pipe.execute_command("ZADD", f"p:{{{partition}}}:q", due, name)
            await pipe.execute()
        return len(messages) / (time.perf_counter() - start)

    async def drain(self) -> float:
        """Claim and settle everything; messages a second."""
        done = 0
        start = time.perf_counter()
        while taken := await self._claim():
            pipe = self._client.pipeline(transaction=False)
            for partition, ids in taken.items():
                tag = f"b:{{{partition}}}"
                keys = (f"{tag}:m", f"{tag}:l", f"{tag}:x")
                pipe.evalsha(self._shas["settle"], 3, *keys, b"t" * 20, *ids)
                done += len(ids)
            await pipe.execute()
        return done / (time.perf_counter() - start)

    async def _claim(self) -> dict[int, list[bytes]]:
        pipe = self._client.pipeline(transaction=False)
        for partition in range(PARTITIONS):
            tag = f"b:{{{partition}}}"
            keys = (f"{tag}:m", f"{tag}:q", f"{tag}:l")
            pipe.evalsha(self._shas["claim"], 3, *keys, "+inf", BATCH // PARTITIONS, "token")
        answers = await pipe.execute()
        return {n: answer[0] for n, answer in enumerate(answers) if answer}


def _by_partition(messages: Sequence[NewMessage]) -> dict[int, list[bytes | int]]:
    found: dict[int, list[bytes | int]] = {}
    for message in messages:
        name = message.id.encode()
        record = message.payload + b"0" * 24
        found.setdefault(crc32(name) % PARTITIONS, []).extend((name, record, message.due))
    return found
