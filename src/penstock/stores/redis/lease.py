"""CLAIM, EXTEND, REAP: the life of a lease up to its end by time.

Order: on one server a claim sees up to 64 partitions at once and gives exact priority; due order
is exact too unless much more is due than asked for, when partitions share equally. In a cluster
all partitions are asked what they have, then each for its share of the same order; what changes
between the two calls can make a claim smaller, or its order a little older.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from penstock.model.errors import PenstockError
from penstock.model.message import Message
from penstock.model.outcome import Claim, Reaped
from penstock.stores.redis.connect import Argument
from penstock.stores.redis.keys import PAUSED, PartitionKeys, counter_of_lane
from penstock.stores.redis.place import parse_member
from penstock.stores.redis.promote import Near, promote
from penstock.stores.redis.records import STATES, pack_token, unpack_claimed, unpack_id
from penstock.stores.redis.scripts import MAX_GROUPS, Group, raw
from penstock.stores.redis.session import Session
from penstock.stores.redis.shares import Due, shares, told

ROUNDS = 16
"""Times a claim looks again: after opening buckets that are due, or when others were quicker."""
REMEMBERED = 10_000
"""Tokens whose partitions are known here; others are extended everywhere."""
TOKENS = 64
"""Ended leases of one partition looked at in one step."""


class Leases:
    """Who holds what, as far as this process needs to remember."""

    def __init__(self, session: Session, *, cluster: bool) -> None:
        self._session = session
        self._cluster = cluster
        self._turn = 0
        self._partitions: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._claim_keys: dict[tuple[str, int], list[bytes]] = {}

    async def claim(self, route: str, limit: int, lease: int, now: int) -> Claim:
        if limit <= 0:
            return Claim(0)
        for _ in range(ROUNDS):
            work = _Claiming(self._session, route, limit, lease, now, self._keys)
            await self._ask(work, self._order())
            opened = await work.open_buckets()
            if work.messages or not opened:
                break
        if not work.messages:
            return Claim(0, (), work.next_due())
        self._remember(work.token, work.partitions)
        work.messages.sort(key=_claim_order)
        next_due = work.next_due() if len(work.messages) < limit else None
        return Claim(work.token, tuple(work.messages), next_due)

    def _order(self) -> list[int]:
        """Every partition, another one first each time."""
        total = self._session.layout.total
        self._turn = (self._turn + 1) % total
        return [*range(self._turn, total), *range(self._turn)]

    async def _ask(self, work: _Claiming, order: list[int]) -> None:
        """Of one server each partition once; of a cluster until nobody else was quicker."""
        if self._cluster and len(order) > 1:
            for _ in range(ROUNDS):
                asked = await work.share_out(order)
                wanted = work.left - sum(share for _, share in asked)
                await asyncio.gather(*(work.ask([p], share) for p, share in asked))
                if work.left <= wanted or work.left <= 0:
                    break
                work.round += 1
        else:
            for first in range(0, len(order), MAX_GROUPS):
                if work.left > 0:
                    await work.ask(order[first : first + MAX_GROUPS], work.left)
        work.raise_if_nothing_answered()

    def _keys(self, route: str, partition: int) -> list[bytes]:
        cached = self._claim_keys.get((route, partition))
        if cached is None:
            keys = self._session.layout.keys(partition)
            cached = [
                keys.generation,
                keys.records,
                keys.leases,
                keys.tokens,
                keys.grants,
                keys.counters,
                keys.index(route),
                *keys.lanes(route),
            ]
            self._claim_keys[route, partition] = cached
        return cached

    def _remember(self, token: int, partitions: Iterable[int]) -> None:
        self._partitions[token] = tuple(partitions)
        if len(self._partitions) > REMEMBERED:
            self._partitions.popitem(last=False)

    async def extend(self, tokens: Sequence[int], until: int, now: int) -> None:
        layout = self._session.layout
        by_partitions: dict[tuple[int, ...], list[bytes]] = {}
        for token in tokens:
            where = self._partitions.get(token) or tuple(range(layout.total))
            by_partitions.setdefault(where, []).append(pack_token(token))
        await asyncio.gather(
            *(
                self._session.runner.run(
                    "extend",
                    [Group(p, (layout.keys(p).tokens,)) for p in where],
                    [until, now, *packed],
                )
                for where, packed in by_partitions.items()
            )
        )

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        """Leases that have ended, route by route, until `limit` messages are back."""
        layout, runner = self._session.layout, self._session.runner
        every = layout.all_keys()
        groups = [Group(keys.number, (keys.tokens, keys.grants)) for keys in every]
        replies = await runner.try_run("expired", groups, [now, TOKENS])
        failed = [reply for reply in replies if isinstance(reply, PenstockError)]
        if len(failed) == len(replies):
            raise failed[0]
        by_route: dict[bytes, list[tuple[PartitionKeys, bytes]]] = {}
        for keys, reply in zip(every, replies, strict=True):
            if not isinstance(reply, PenstockError):
                for token, route in zip(reply[::2], reply[1::2], strict=True):
                    by_route.setdefault(route, []).append((keys, token))
        reaped: list[Reaped] = []
        for route, ended in by_route.items():
            reaped += await self._reap_route(route.decode(), ended, now, limit - len(reaped))
        return reaped

    async def _reap_route(
        self, route: str, ended: list[tuple[PartitionKeys, bytes]], now: int, limit: int
    ) -> list[Reaped]:
        counters = [counter_of_lane(route, priority) for priority in range(9, -1, -1)]
        channel = self._session.wakeups.channel
        reaped: list[Reaped] = []
        # One call a token: in a cluster calls do not share the limit.
        for keys, token in ended:
            if len(reaped) >= limit:
                break
            group = Group(keys.number, _reap_keys(keys, route), [raw(token), counters])
            common: list[Argument] = [now, limit - len(reaped), channel, route]
            reply = await self._session.runner.single("reap", group, common)
            for member, state, attempt in zip(reply[::3], reply[1::3], reply[2::3], strict=True):
                reaped.append(Reaped(unpack_id(member), route, STATES[state], attempt))
        if reaped:
            self._session.wakeups.tell(route, now)
        return reaped


def _reap_keys(keys: PartitionKeys, route: str) -> list[bytes]:
    return [
        keys.records,
        keys.leases,
        keys.tokens,
        keys.grants,
        keys.counters,
        keys.settled,
        *keys.lanes(route),
    ]


def _claim_order(message: Message) -> tuple[int, int, str]:
    return -message.priority, message.due, message.id


class _Claiming:
    """One claim under way: what it has, and what it learned of each partition."""

    def __init__(
        self,
        session: Session,
        route: str,
        limit: int,
        lease: int,
        now: int,
        keys_of: Callable[[str, int], list[bytes]],
    ) -> None:
        self._session = session
        self._route = route
        self._now = now
        self._keys_of = keys_of
        self._heads: dict[int, int] = {}
        self._buckets: dict[int, list[tuple[int, Near]]] = {}
        self._failed: PenstockError | None = None
        self._answered = False
        self.token = session.token()
        self.round = 1
        """Asked again in the same round, a partition repeats its answer."""
        self.left = limit
        self.messages: list[Message] = []
        self.partitions: set[int] = set()
        counters = [counter_of_lane(route, priority) for priority in range(9, -1, -1)]
        self._more: list[Argument] = [
            now,
            lease,
            pack_token(self.token),
            *counters,
            f"{PAUSED}{route}",
        ]

    async def share_out(self, partitions: list[int]) -> list[tuple[int, int]]:
        """(partition, how many to claim there) of those that have something due."""
        known = told(self.left, len(partitions))
        groups = []
        for p in partitions:
            keys = self._keys_of(self._route, p)
            groups.append(Group(p, [keys[0], *keys[5:]]))
        common: list[Argument] = [self._more[0], known, *self._more[3:]]
        replies = await self._session.runner.try_run("due", groups, common, writes=False)
        answered: list[int] = []
        found: list[Due] = []
        for partition, reply in zip(partitions, replies, strict=True):
            if isinstance(reply, PenstockError):
                self._failed = reply
                continue
            generation, numbers, dues, head, far = reply
            self._answered = True
            answered.append(partition)
            found.append(Due(numbers, [[int(due) for due in lane] for lane in dues]))
            if not sum(numbers):  # those with something are asked again and tell then
                await self._learn(partition, generation, head, far)
        wanted = shares(found, self.left)
        return [(p, share) for p, share in zip(answered, wanted, strict=True) if share > 0]

    async def ask(self, partitions: list[int], share: int) -> None:
        """One call; what could not be answered is left out."""
        groups = [Group(p, self._keys_of(self._route, p)) for p in partitions]
        common: list[Argument] = [self._route, share, *self._more, self.round]
        try:
            replies = await self._session.runner.run("claim", groups, common)
        except PenstockError as exc:
            self._failed = exc
            return
        self._answered = True
        for partition, reply in zip(partitions, replies, strict=True):
            generation, lease, taken, head, far = reply
            self._take(partition, lease, taken)
            await self._learn(partition, generation, head, far)

    async def _learn(
        self, partition: int, generation: bytes | None, head: bytes | None, far: list[bytes]
    ) -> None:
        self._heads.pop(partition, None)
        if head is not None:
            self._heads[partition] = int(head)
        self._buckets[partition] = [
            (int(earliest), Near(partition, member))
            for member, earliest in zip(far[::2], far[1::2], strict=True)
        ]
        if generation is None or int(generation) != self._session.layout.generation:
            await self._session.layout.renew([partition])

    def _take(self, partition: int, lease: bytes, taken: list[bytes]) -> None:
        if not taken:
            return
        self.partitions.add(partition)
        self.left -= len(taken) // 2
        self.messages += unpack_claimed(partition, lease, taken)

    def raise_if_nothing_answered(self) -> None:
        """What some partitions gave must not be lost because others are away."""
        if not self._answered and self._failed is not None:
            raise self._failed

    async def open_buckets(self) -> bool:
        """Open those that came near; whether one of them has messages that are due."""
        near, is_due = [], False
        for earliest, bucket in chain.from_iterable(self._buckets.values()):
            width = parse_member(bucket.member)[1].width
            if earliest - 2 * width < self._now:
                near.append(bucket)
                is_due = is_due or earliest <= self._now
        await promote(self._session, self._route, near, self._now)
        return is_due

    def next_due(self) -> int | None:
        """A lower bound: a bucket's earliest may have been cancelled or moved since."""
        buckets = chain.from_iterable(self._buckets.values())
        known = [*self._heads.values(), *(earliest for earliest, _ in buckets)]
        return min(known, default=None)
