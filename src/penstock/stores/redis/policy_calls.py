"""The two scripts of a decision, as calls: what they are told, and what they answer."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from penstock.limits.rules import Rules
from penstock.model.decision import Subject
from penstock.stores.redis.connect import Argument, Reply
from penstock.stores.redis.ids import pack_id
from penstock.stores.redis.policy_keys import CounterKeys, ShardKeys
from penstock.stores.redis.policy_numbers import Numbers
from penstock.stores.redis.scripts import Group, Plan, Runner

DECIDE, REFUSE, LOOK, RELEASE, COMMIT, KEEP = range(6)
"""What is to be done about a message."""
MARGIN_MS = 3_600_000
"""Counters live this much longer than they can matter."""

MARK_BYTES = 16

_encode = msgspec.msgpack.Encoder().encode


class StaleRules(Exception):
    """A part of the store has seen a newer version than the caller's."""

    def __init__(self, version: int) -> None:
        super().__init__(version)
        self.version = version


class Work(NamedTuple):
    """One message in a call."""

    subject: Subject
    numbers: Numbers
    what: int
    until: int = 0
    """KEEP: hold the place until then."""
    ready: int = 0
    more: Plan | int = 0
    """See lua/policy_shared.lua."""


class Calls:
    """At one version of the rules and one moment."""

    def __init__(
        self, runner: Runner, keys: CounterKeys, rules: Rules, now: int, hold_until: int
    ) -> None:
        self._runner = runner
        self._keys = keys
        self._now = now
        self._common: list[Argument] = [
            now,
            hold_until,
            rules.version,
            rules.keeps + max(0, hold_until - now) + MARGIN_MS,
        ]
        self._marks = _encode(list(rules.names))
        self._members: dict[str, msgspec.Raw] = {}

    async def keyed(self, works: Sequence[Work]) -> list[Reply]:
        """In the shards of their keys; an answer each."""
        shards: dict[int, _Shard] = {}
        for place, work in enumerate(works):
            key = work.subject.key.encode()
            keys = self._keys.shard_of(key)
            shard = shards.get(keys.number)
            if shard is None:
                shard = shards[keys.number] = _Shard(keys)
            shard.add(place, key, work, self._member(work.subject.id))
        groups = [shard.group() for shard in shards.values()]
        writes = any(work.what != LOOK for work in works)
        replies = await self._runner.run(
            "policy_keyed", groups, [*self._common, self._marks], writes=writes
        )
        answers: list[Reply] = [0] * len(works)
        for shard, reply in zip(shards.values(), _current(replies), strict=True):
            if reply != 0:
                for place, answer in zip(shard.places, reply, strict=True):
                    answers[place] = answer
        return answers

    async def shared(self, works: Sequence[Work]) -> list[Reply]:
        """In the slot of what keys share; maybe fewer answers than were asked for."""
        keys = self._keys.shared
        counters: dict[str, int] = {}
        plans: dict[int, int] = {}
        accounts: dict[str, int] = {}
        chosen: list[Numbers] = []
        items: Plan = []
        for work in works:
            numbers = work.numbers
            plan = plans.get(id(numbers))
            if plan is None:
                plan = plans[id(numbers)] = len(plans) + 1
                chosen.append(numbers)
                for _, cap in numbers.shared:
                    counters.setdefault(cap.counter, len(counters) + 1)
            account = accounts.setdefault(work.subject.key, len(accounts) + 1)
            more = work.until if work.what == KEEP else work.more
            member = self._member(work.subject.id)
            items += (work.what, plan, member, work.ready, account, more)
        used = [keys.version, keys.paces]
        for name in counters:
            used += keys.counter(name)
        packed = [numbers.shared_plan(counters) for numbers in chosen]
        group = Group(keys.number, used, [list(counters), packed, items])
        writes = any(work.what != LOOK for work in works)
        replies = await self._runner.run("policy_shared", [group], self._common, writes=writes)
        answers: list[Reply] | int = _current(replies)[0]
        return [0] * len(works) if isinstance(answers, int) else answers

    def _member(self, message_id: str) -> msgspec.Raw:
        member = self._members.get(message_id)
        if member is None:
            member = self._members[message_id] = msgspec.Raw(_FIXED + _mark_of(message_id))
        return member


_FIXED = b"\xb0"
"""In a plan: a text of 16 bytes follows."""


def _mark_of(message_id: str) -> bytes:
    """The id in 16 bytes: a UUID's own, or a digest that no other id of the key has."""
    packed = pack_id(message_id)
    if len(packed) == MARK_BYTES:
        return packed
    return hashlib.md5(packed, usedforsecurity=False).digest()


class _Shard:
    """What one shard is told in one call."""

    def __init__(self, keys: ShardKeys) -> None:
        self._keys = keys
        self._accounts: dict[bytes, int] = {}
        self._lists: dict[str, int] = {}
        self._plans: dict[int, int] = {}
        self._packed: list[Plan] = []
        self._items: Plan = []
        self.places: list[int] = []
        """Of its messages in the batch."""

    def add(self, place: int, key: bytes, work: Work, member: msgspec.Raw) -> None:
        numbers = work.numbers
        plan = self._plans.get(id(numbers))
        if plan is None:
            plan = self._plans[id(numbers)] = len(self._plans) + 1
            lists = [self._lists.setdefault(name, len(self._lists) + 1) for name in numbers.lists]
            self._packed.append([lists, numbers.keyed_caps])
        account = self._accounts.setdefault(key, len(self._accounts) + 1)
        self._items += (account, plan, work.what, member, work.until)
        self.places.append(place)

    def group(self) -> Group:
        keys = self._keys
        used = [
            keys.version,
            *map(keys.list, self._lists),
            *map(keys.account, self._accounts),
        ]
        plan = [len(self._lists), len(self._accounts), self._packed, self._items]
        # Only lists are asked by the key itself.
        asked = list(self._accounts) if self._lists else []
        return Group(keys.number, used, plan, asked)


def _current(replies: Iterable[Reply]) -> list[Reply]:
    answers = list(replies)
    stale = [int(reply) for reply in answers if isinstance(reply, bytes)]
    if stale:
        raise StaleRules(max(stale))
    return answers
