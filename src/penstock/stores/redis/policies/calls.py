"""The two scripts of a decision, as calls: what they are told, and what they answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias
from zlib import crc32

import msgspec

from penstock.limits.rules import Rules
from penstock.redis_kit.connect import Argument, Reply
from penstock.redis_kit.runner import Group, Runner
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.policies.asked import Asked
from penstock.stores.redis.policies.keys import CounterKeys, ShardKeys

_KEYED = Script("stores/redis/policies/keyed.lua")
_SHARED = Script("stores/redis/policies/shared.lua")

MARGIN_MS = 3_600_000
"""Counters live this much longer than they can matter."""

Answers: TypeAlias = list[Reply] | None
"""One a message; None: 0 for each of them."""

_encode = msgspec.msgpack.Encoder().encode


class StaleRules(Exception):
    """A part of the store has seen a newer version than the caller's."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


class Calls:
    """At one version of the rules and one moment."""

    def __init__(
        self, runner: Runner, keys: CounterKeys, rules: Rules, now: int, hold_until: int
    ) -> None:
        self._runner = runner
        self._keys = keys
        self._common: list[Argument] = [
            now,
            hold_until,
            rules.version,
            rules.keeps + max(0, hold_until - now) + MARGIN_MS,
        ]
        self._living = _encode(list(rules.names))

    async def keyed(self, asked: Asked) -> Answers:
        """In the shards of their keys."""
        total = len(self._keys.shards)
        keys: list[list[bytes]] = [[] for _ in range(total)]
        places: list[list[int]] = [[] for _ in range(total)]
        for place, subject in enumerate(asked.subjects):
            key = subject.key.encode()
            number = crc32(key) % total
            keys[number].append(key)
            places[number].append(place)
        used = [number for number in range(total) if keys[number]]
        groups = [
            self._keyed_group(asked, self._keys.shards[number], keys[number], places[number])
            for number in used
        ]
        replies = await self._runner.run(
            _KEYED, groups, [*self._common, self._living], writes=asked.writes
        )
        if not any(_current(replies)):
            return None
        answers: list[Reply] = [0] * len(asked.subjects)
        for number, reply in zip(used, replies, strict=True):
            if reply != 0:
                for place, answer in zip(places[number], reply, strict=True):
                    answers[place] = answer
        return answers

    def _keyed_group(
        self, asked: Asked, shard: ShardKeys, keys: list[bytes], places: Sequence[int]
    ) -> Group:
        plans, runs = asked.runs(places)
        lists: dict[str, int] = {}
        packed = [
            [
                [lists.setdefault(name, len(lists) + 1) for name in numbers.lists],
                numbers.keyed_caps,
                numbers.tail,
            ]
            for numbers in plans
        ]
        accounts = list(dict.fromkeys(keys))
        placed = len(accounts) < len(keys) and _accounts(keys)
        used = [shard.version, shard.accounts, *map(shard.list, lists)]
        plan = [len(lists), len(accounts), packed, runs, placed]
        ids = b"".join([asked.marks[place] for place in places])
        return Group(shard.number, used, plan, [ids, *accounts])

    async def shared(self, asked: Asked) -> Answers:
        """In the slot of what keys share; maybe fewer answers than were asked for."""
        keys = self._keys.shared
        plans, runs = asked.runs(range(len(asked.subjects)))
        counters: dict[str, int] = {}
        for numbers in plans:
            for _, cap in numbers.shared:
                counters.setdefault(cap.counter, len(counters) + 1)
        used = [keys.version, keys.paces]
        for name in counters:
            used += keys.counter(name)
        packed = [numbers.shared_plan(counters) for numbers in plans]
        more = asked.more is not None and [
            _accounts([subject.key for subject in asked.subjects]),
            asked.more,
        ]
        group = Group(keys.number, used, [packed, runs, more], [b"".join(asked.marks)])
        replies = await self._runner.run(_SHARED, [group], self._common, writes=asked.writes)
        answers: list[Reply] | int = _current(replies)[0]
        return None if isinstance(answers, int) else answers


def _accounts(keys: Iterable[str] | Iterable[bytes]) -> list[int]:
    """A number for each: the same for the same key, in the order they first come."""
    known: dict[str | bytes, int] = {}
    return [known.setdefault(key, len(known) + 1) for key in keys]


def _current(replies: list[Reply]) -> list[Reply]:
    stale = [int(reply) for reply in replies if isinstance(reply, bytes)]
    if stale:
        raise StaleRules(max(stale))
    return replies
