"""The rule book in Redis, and its compiled form while it does not change.

The book is one record with a version. A process that changes it writes the new version to every
counter shard before it answers; a shard refuses decisions by an older version, so from then on no
process decides by the previous rules. A shard that was not reached, because that process died,
learns it from the first decision by the new version.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence

import msgspec

from penstock.limits.rules import Rules
from penstock.model.policy import Policy, RuleBook, Suppression
from penstock.redis_kit.connect import Reply
from penstock.redis_kit.runner import Group, Runner
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.policies.keys import CounterKeys, ShardKeys

_LIST = Script("stores/redis/policies/list.lua")
_MARK = Script("stores/redis/policies/mark.lua")
_BOOK = Script("stores/redis/policies/book.lua")

SHARDS = 16
"""Counter shards of a new store."""
CHUNK = 5_000
"""Keys of a suppression list in one step and shard."""
UNFINISHED_MS = 3_600_000
"""How long an unfinished list stays."""

_encode = msgspec.json.Encoder().encode
_policy = msgspec.json.Decoder(Policy)
_suppression = msgspec.json.Decoder(Suppression)


class Book:
    """Reads and changes the rule book; remembers the rules last read."""

    def __init__(self, runner: Runner, prefix: str, default_zone: str) -> None:
        self._runner = runner
        self._prefix = prefix
        self._key = f"{prefix}:policies".encode()
        self._default_zone = default_zone
        self._keys: CounterKeys | None = None
        self.rules = Rules(RuleBook(), {}, default_zone)
        """The rules as last read."""

    async def keys(self) -> CounterKeys:
        if self._keys is None:
            _, shards, _ = await self._step("shards", str(SHARDS))
            self._keys = CounterKeys(self._prefix, shards)
        return self._keys

    async def read(self) -> Rules:
        """The rules now in force."""
        version = await self._runner.call("HGET", self._key, "v")
        if int(version or 0) != self.rules.version:
            await self._step("read")
        return self.rules

    async def catch_up(self, seen: int) -> Rules:
        """Adopt a version that a shard has seen.

        A book that is older than a shard's version has lost its last change (a server failed before
        its replica had it): it continues with its content, under a new version.
        """
        if (await self.read()).version < seen:
            await self._step("raise", str(seen))
        return self.rules

    async def put_policy(self, policy_id: str, policy: Policy) -> int:
        version, _, _ = await self._step("put", policy_id, _encode(policy))
        await self._tell(version)
        return version

    async def drop_policy(self, policy_id: str) -> bool:
        version, _, done = await self._step("drop", policy_id)
        await self._tell(version)
        return done

    async def put_suppression(self, list_id: str, suppression: Suppression) -> int:
        """The keys first: a list binds from the moment it is whole."""
        await self._replace(list_id, suppression.keys)
        kept = msgspec.structs.replace(suppression, keys=())
        version, _, _ = await self._step("list", list_id, _encode(kept))
        await self._tell(version)
        return version

    async def drop_suppression(self, list_id: str) -> bool:
        version, _, done = await self._step("unlist", list_id)
        await self._tell(version)
        for shard in (await self.keys()).shards:
            await self._runner.call("UNLINK", shard.list(list_id), partition=shard.number)
        return done

    async def suppression(self, list_id: str) -> Suppression | None:
        kept = (await self.read()).book.suppressions.get(list_id)
        if kept is None:
            return None
        found: list[bytes] = []
        for shard in (await self.keys()).shards:
            found += await self._members(shard, list_id)
        keys = tuple(key.decode() for key in sorted(set(found)) if key)
        return msgspec.structs.replace(kept, keys=keys)

    async def suppress(self, list_id: str, add: Sequence[str], remove: Sequence[str]) -> bool:
        if list_id not in (await self.read()).book.suppressions:
            return False
        for command, keys in (("SADD", add), ("SREM", remove)):
            for shard, members in (await self._by_shard(keys)).items():
                for first in range(0, len(members), CHUNK):
                    chunk = members[first : first + CHUNK]
                    await self._runner.call(
                        command, shard.list(list_id), *chunk, partition=shard.number
                    )
        return True

    async def _replace(self, list_id: str, keys: Sequence[str]) -> None:
        under_way = secrets.token_hex(4)
        members = await self._by_shard(keys)
        shards = (await self.keys()).shards

        def groups(first: int) -> list[Group]:
            made = []
            for shard in shards:
                names = (shard.list(list_id), shard.list(list_id, under_way))
                chunk = members.get(shard, [])[first : first + CHUNK]
                made.append(Group(shard.number, names, [len(chunk)], chunk))
            return made

        longest = max(map(len, members.values()), default=0)
        for first in range(0, max(1, longest), CHUNK):
            await self._runner.run(_LIST, groups(first), ["0", UNFINISHED_MS])
        await self._runner.run(_LIST, groups(longest), ["1", UNFINISHED_MS])

    async def _by_shard(self, keys: Sequence[str]) -> dict[ShardKeys, list[bytes]]:
        where = await self.keys()
        members: dict[ShardKeys, list[bytes]] = {}
        for key in keys:
            packed = key.encode()
            members.setdefault(where.shard_of(packed), []).append(packed)
        return members

    async def _members(self, shard: ShardKeys, list_id: str) -> list[bytes]:
        found: list[bytes] = []
        cursor: int = 0
        while True:
            step = ("SSCAN", shard.list(list_id), cursor, "COUNT", 1_000)
            reply = await self._runner.call(*step, partition=shard.number)
            cursor = int(reply[0])
            found += reply[1]
            if cursor == 0:
                return found

    async def _tell(self, version: int) -> None:
        keys = await self.keys()
        groups = [Group(shard.number, (shard.version,)) for shard in keys.all]
        await self._runner.run(_MARK, groups, [version])
        await asyncio.shield(self._forget_paces(keys.shared))

    async def _forget_paces(self, shared: ShardKeys) -> None:
        """Delete the states of paces that are in no rule any more."""
        kept = await self._runner.call("HKEYS", shared.paces, partition=shared.number)
        if gone := [mark for mark in kept if mark.decode() not in self.rules.names]:
            await self._runner.call("HDEL", shared.paces, *gone, partition=shared.number)

    async def _step(self, step: str, about: str = "", body: bytes = b"") -> tuple[int, int, bool]:
        """(version, shards, whether there was something to change)."""
        group = Group(0, (self._key,))
        reply = await self._runner.single(_BOOK, group, [step, about, body])
        version, shards, done, fields = reply
        if version != self.rules.version:
            self.rules = _compile(version, fields, self._default_zone)
        return version, int(shards or SHARDS), done == 1


def _compile(version: int, fields: Reply, default_zone: str) -> Rules:
    policies: dict[str, Policy] = {}
    born: dict[str, int] = {}
    suppressions: dict[str, Suppression] = {}
    entries = {field.decode(): body for field, body in zip(fields[::2], fields[1::2], strict=True)}
    for field, body in sorted(entries.items()):
        if field[0] == "p":
            mark, _, text = body.partition(b" ")
            policies[field[1:]] = _policy.decode(text)
            born[field[1:]] = int(mark)
        elif field[0] == "s":
            suppressions[field[1:]] = _suppression.decode(body)
    return Rules(RuleBook(version, policies, suppressions), born, default_zone)
