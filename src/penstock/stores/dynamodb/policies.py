"""Policies and suppressions in the table, with the counters in Redis.

Decisions are made in Redis, by a copy of the rules that carries a mark. A process that changes a
rule removes the mark first and sets another one at the end; if there is none, because a process
died in between or Redis lost its data, the rules are restored from the table before any decision.
Counters that Redis loses start from zero.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec

from penstock.model.decision import Conclusion, CounterFigure, Decision, PaceAllowance, Subject
from penstock.model.errors import StoreUnavailable
from penstock.model.policy import Policy, RuleBook, Suppression
from penstock.stores.dynamodb.items import Item, list_key
from penstock.stores.dynamodb.near import Near
from penstock.stores.dynamodb.table import LIST, Range, Table
from penstock.stores.redis.policies.store import RedisPolicies

T = TypeVar("T")

RULES = "s:rules"
"""The item of the rules: one attribute per policy ("p:" + id) and list ("l:" + id); `n` counts the
changes."""
MARK = "rules"
ROUNDS = 10
AT_ONCE = 16

_encode = msgspec.json.Encoder().encode
_policy = msgspec.json.Decoder(Policy)
_suppression = msgspec.json.Decoder(Suppression)


class TieredPolicies:
    """The PolicyStore of the tiered store. `counting` creates its part in Redis."""

    def __init__(
        self, table: Table, near: Near, shards: int, counting: Callable[[], RedisPolicies]
    ) -> None:
        self._table = table
        self._near = near
        self._shards = shards
        self._make_counting = counting
        self._zone: str | None = None
        self._counting = counting()
        self._seen: bytes | None = None
        """The mark of the rules that `_counting` has loaded."""

    def use_zone(self, zone: str) -> None:
        self._zone = zone
        self._counting.use_zone(zone)

    def _new_counting(self) -> RedisPolicies:
        counting = self._make_counting()
        if self._zone is not None:
            counting.use_zone(self._zone)
        return counting

    async def book(self) -> RuleBook:
        return await (await self._current()).book()

    async def put_policy(self, policy_id: str, policy: Policy) -> int:
        async def change() -> int:
            await self._set(f"p:{policy_id}", _encode(policy).decode())
            return await self._counting.put_policy(policy_id, policy)

        return await self._change(change)

    async def drop_policy(self, policy_id: str) -> bool:
        async def change() -> bool:
            await self._set(f"p:{policy_id}", None)
            return await self._counting.drop_policy(policy_id)

        return await self._change(change)

    async def put_suppression(self, list_id: str, suppression: Suppression) -> int:
        async def change() -> int:
            stored = set(await self._keys(list_id))
            wanted = set(suppression.keys)
            await self._add(list_id, wanted - stored)
            await self._remove(list_id, stored - wanted)
            kept = msgspec.structs.replace(suppression, keys=())
            await self._set(f"l:{list_id}", _encode(kept).decode())
            return await self._counting.put_suppression(list_id, suppression)

        return await self._change(change)

    async def drop_suppression(self, list_id: str) -> bool:
        async def change() -> bool:
            await self._set(f"l:{list_id}", None)
            await self._remove(list_id, await self._keys(list_id))
            return await self._counting.drop_suppression(list_id)

        return await self._change(change)

    async def suppression(self, list_id: str) -> Suppression | None:
        return await (await self._current()).suppression(list_id)

    async def suppress(
        self, list_id: str, add: Sequence[str] = (), remove: Sequence[str] = ()
    ) -> bool:
        async def change() -> bool:
            if f"l:{list_id}" not in (await self._rules()):
                return False
            await self._add(list_id, set(add) - set(remove))
            await self._remove(list_id, remove)
            return await self._counting.suppress(list_id, add, remove)

        return await self._change(change)

    async def decide(self, subjects: Sequence[Subject], now: int, hold: int) -> list[Decision]:
        return await (await self._current()).decide(subjects, now, hold)

    async def conclude(self, conclusions: Sequence[Conclusion], now: int) -> None:
        await (await self._current()).conclude(conclusions, now)

    async def explain(self, subjects: Sequence[Subject], now: int) -> list[Decision]:
        return await (await self._current()).explain(subjects, now)

    async def counters(self, key: str, now: int) -> list[CounterFigure]:
        return await (await self._current()).counters(key, now)

    async def forget(self, key: str, now: int) -> int:
        return await (await self._current()).forget(key, now)

    async def allowance(self, route: str, now: int) -> PaceAllowance | None:
        return await self._counting.allowance(route, now)

    async def _current(self) -> RedisPolicies:
        """The part in Redis, with the table's rules."""
        mark = await self._near.noted(MARK)
        if mark is None:
            mark = await self._restore()
        if mark != self._seen:
            self._counting = self._new_counting()
            self._seen = mark
        return self._counting

    async def _change(self, change: Callable[[], Awaitable[T]]) -> T:
        await self._current()
        await self._near.unkeep(MARK)
        done = await change()
        self._seen = await self._mark()
        return done

    async def _mark(self) -> bytes:
        mark = secrets.token_hex(8).encode()
        await self._near.keep(MARK, mark)
        return mark

    async def _restore(self) -> bytes:
        """Copy the table's rules to Redis; repeated if they change meanwhile."""
        counting = self._new_counting()
        for _ in range(ROUNDS):
            rules = await self._rules()
            await self._copy(rules, counting)
            if (await self._rules()).get("n") == rules.get("n"):
                return await self._mark()
        raise StoreUnavailable(
            f"rules changed {ROUNDS} times during this call; retry", retry_after=1.0
        )

    async def _copy(self, rules: Item, counting: RedisPolicies) -> None:
        stored = await counting.book()
        for policy_id in stored.policies:
            if f"p:{policy_id}" not in rules:
                await counting.drop_policy(policy_id)
        for list_id in stored.suppressions:
            if f"l:{list_id}" not in rules:
                await counting.drop_suppression(list_id)
        for name, value in rules.items():
            if name.startswith("p:"):
                await counting.put_policy(name[2:], _policy.decode(value["S"]))
            elif name.startswith("l:"):
                keys = tuple(await self._keys(name[2:]))
                kept = msgspec.structs.replace(_suppression.decode(value["S"]), keys=keys)
                await counting.put_suppression(name[2:], kept)

    async def _rules(self) -> Item:
        return (await self._table.get([RULES])).get(RULES, {})

    async def _set(self, name: str, body: str | None) -> None:
        change = "REMOVE #name" if body is None else "SET #name = :body"
        values: Item = {":one": {"N": "1"}}
        if body is not None:
            values[":body"] = {"S": body}
        await self._table.update(
            RULES,
            f"{change} ADD #n :one",
            ExpressionAttributeNames={"#name": name, "#n": "n"},
            ExpressionAttributeValues=values,
        )

    async def _keys(self, list_id: str) -> list[str]:
        """The keys of a list, in order."""

        async def read(shard: int) -> list[str]:
            found: list[str] = []
            async for page in self._table.pages(Range(LIST, list_key("x", list_id, shard))):
                items = await self._table.get([item["pk"]["S"] for item in page])
                found += [item["who"]["S"] for item in items.values()]
            return found

        parts = await asyncio.gather(*map(read, range(self._shards)))
        return sorted(key for part in parts for key in part)

    async def _add(self, list_id: str, keys: set[str]) -> None:
        await self._table.insert([_key_item(list_id, key, self._shards) for key in sorted(keys)])

    async def _remove(self, list_id: str, keys: Sequence[str] | set[str]) -> None:
        gate = asyncio.Semaphore(AT_ONCE)

        async def remove(key: str) -> None:
            async with gate:
                await self._table.delete(_key_item(list_id, key, self._shards)["pk"]["S"])

        await asyncio.gather(*map(remove, keys))


def _key_item(list_id: str, key: str, shards: int) -> Item:
    """The item of a suppressed key, named by a digest: keys may exceed DynamoDB's limit."""
    digest = hashlib.sha256(key.encode()).hexdigest()
    return {
        "pk": {"S": f"x:{list_id}:{digest}"},
        "l": {"S": list_key("x", list_id, int(digest[:8], 16) % shards)},
        "o": {"S": digest},
        "who": {"S": key},
    }
