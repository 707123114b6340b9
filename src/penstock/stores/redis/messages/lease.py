"""CLAIM, EXTEND, REAP: the life of a lease up to its end by time.

Order: on one server a claim sees up to 64 partitions at once and gives exact priority; due order
is exact too unless much more is due than asked for, when partitions share equally. In a cluster
all partitions are asked what they have, then each for its share of the same order; what changes
between the two calls can make a claim smaller, or its order a little older; a claim that its bytes
end takes of each partition what comes first there. Where few partitions
are known to have something due, those are asked alone (`RouteKnowledge`).
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from penstock.model import lifecycle
from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import Claim, Reaped
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE
from penstock.redis_kit.connect import Argument, Reply
from penstock.redis_kit.runner import MAX_GROUPS, Group, raw
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.keys import PAUSED, counter_of_lane, member_of_bucket, parse_member
from penstock.stores.redis.messages.records import (
    Held,
    new_token,
    pack_token,
    token_of,
    unpack_claimed,
)
from penstock.stores.redis.messages.swap import Swap, load, try_swap
from penstock.stores.redis.session import Session

_EXTEND = Script("stores/redis/messages/extend.lua")
_EXPIRED = Script("stores/redis/messages/expired.lua")
_PROMOTE = Script("stores/redis/messages/promote.lua")
_DUE = Script("stores/redis/messages/due.lua")
_CLAIM = Script("stores/redis/messages/claim.lua")
ROUNDS = 16
"""Times a claim repeats: after opening due buckets, or when other processes were faster."""
REMEMBERED = 10_000
"""Tokens whose partitions are remembered; the leases of others are extended everywhere."""
TOKENS = 64
"""Ended leases of one partition read in one step."""
PROMOTED = 1_000
"""Entries of one bucket moved in one call."""
ALL_MS = 100
"""After all partitions were asked, some may be asked alone for so long."""
NEVER = 1 << 62
EXACT = 1024
"""Dues compared at most for exact order."""


class Leases(ABC):
    """Claims, extends and reaps leases; remembers the partitions of its own tokens."""

    def __init__(self, session: Session, *, cluster: bool) -> None:
        self._session = session
        self._cluster = cluster
        self._turn = 0
        self._partitions: OrderedDict[int, tuple[int, ...]] = OrderedDict()
        self._claim_keys: dict[tuple[str, int], list[bytes]] = {}
        self._known: dict[str, RouteKnowledge] = {}
        self._unanswered: dict[str, dict[int, list[ClaimCall]]] = {}
        """Route → token → calls that may have leased messages without our receiving the answer."""

    async def claim(
        self,
        route: str,
        limit: int,
        lease: int,
        now: int,
        max_bytes: int = ANY_SIZE,
        per_key: KeyLimit | None = None,
    ) -> Claim:
        if limit <= 0:
            return Claim(0)
        layout = self._session.layout
        if per_key is not None:
            await layout.keep_turns([route])
        known = self._known_of(route)

        def begin(token: int) -> Claiming:
            request = ClaimRequest(route, limit, lease, now, max_bytes, token)
            if route in layout.keyed:
                return self._begin_keyed(request, known, per_key)
            return Claiming(self._session, request, self._keys, known)

        if self._unanswered.get(route):
            found = await self._ask_again(route, begin)
            if found is not None:
                return found.claimed(limit)
        for _ in range(ROUNDS):
            work = begin(new_token())
            order = self._order(route)
            some = order if route in layout.keyed else self._worth_asking(known, order, now)
            if len(some) == len(order):
                known.asking_all()
            await self._ask(work, some)
            if work.left > 0 and len(work.reported) == len(order):
                known.all_asked(now)
            opened = await work.open_buckets()
            if work.messages or not opened:
                break
        if work.messages:
            self._remember(work.token, work.partitions)
        return work.claimed(limit)

    @abstractmethod
    def _begin_keyed(
        self, request: ClaimRequest, known: RouteKnowledge, per_key: KeyLimit | None
    ) -> Claiming:
        """A claim under way on a route that keeps turns (turns.py)."""

    async def _ask_again(self, route: str, begin: Callable[[int], Claiming]) -> Claiming | None:
        """Repeat calls whose answer was lost: their messages are leased to us and to no other
        process.

        A partition that was asked gives the same again, another one gives its due messages. Returns
        the first claim with messages; the others stay for the next calls.
        """
        lost = self._unanswered[route]
        for token, calls in list(lost.items()):
            work = begin(token)
            await asyncio.gather(*(work.ask(call) for call in calls))
            if work.unanswered:
                lost[token] = work.unanswered
            else:
                del lost[token]
            if work.messages:
                self._remember(token, {*self._partitions.get(token, ()), *work.partitions})
                return work
            if not self._order(route):
                work.raise_if_nothing_answered()
        return None

    def _order(self, route: str) -> list[int]:
        """Every partition, beginning with another one each time, without those that still owe an
        answer.
        """
        total = self._session.layout.total
        self._turn = (self._turn + 1) % total
        order = [*range(self._turn, total), *range(self._turn)]
        if lost := self._unanswered.get(route):
            owing = {p for calls in lost.values() for call in calls for p in call.partitions}
            return [p for p in order if p not in owing]
        return order

    def _known_of(self, route: str) -> RouteKnowledge:
        if not self._known:
            self._session.wakeups.add(self._heard)
        known = self._known.get(route)
        if known is None:
            known = self._known[route] = RouteKnowledge(route)
        return known

    def _heard(self, route: str, due: int) -> None:
        known = self._known.get(route)
        if known is not None:
            known.heard(due)

    def _worth_asking(self, known: RouteKnowledge, order: list[int], now: int) -> Sequence[int]:
        heard = self._session.wakeups.subscribed.is_set()
        return known.worth_asking(order, now) if heard else order

    async def _ask(self, work: Claiming, order: Sequence[int]) -> None:
        """On one server ask each partition once; in a cluster repeat while other processes are
        faster.
        """
        if self._cluster and len(order) > 1:
            for _ in range(ROUNDS):
                asked = await work.share_out(order)
                wanted = work.left - sum(share for _, share in asked)
                calls = [work.call([p], share, calls=len(asked)) for p, share in asked]
                await asyncio.gather(*map(work.ask, calls))
                if work.stopped:
                    await work.ask_the_stopped()
                    break
                if work.left <= wanted or work.left <= 0:
                    break
                work.round += 1
        else:
            for first in range(0, len(order), MAX_GROUPS):
                if work.left > 0 and not work.stopped:
                    await work.ask(work.call(order[first : first + MAX_GROUPS], work.left))
        if work.unanswered:
            self._unanswered.setdefault(work.route, {})[work.token] = work.unanswered
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
                    _EXTEND,
                    [Group(p, (layout.keys(p).tokens,)) for p in where],
                    [until, now, *packed],
                )
                for where, packed in by_partitions.items()
            )
        )

    async def reap(self, now: int, limit: int) -> list[Reaped]:
        """Return messages whose lease has ended, at most `limit`; a further call returns the
        others.
        """
        layout, runner = self._session.layout, self._session.runner
        every = layout.all_keys()
        groups = [
            Group(
                keys.number,
                (keys.records, keys.leases, keys.tokens, keys.grants, keys.generation),
            )
            for keys in every
        ]
        replies = await runner.try_run(_EXPIRED, groups, [now, TOKENS, limit])
        failed = [reply for reply in replies if isinstance(reply, PenstockError)]
        if len(failed) == len(replies):
            raise failed[0]
        reaped: list[Reaped] = []
        swaps: list[Swap] = []
        for keys, reply in zip(every, replies, strict=True):
            if isinstance(reply, PenstockError):
                continue
            generation, *ended = reply
            if ended and generation != b"%d" % layout.generation:
                await layout.renew([keys.number])  # the route may keep turns by now
            for member, record, lease in zip(ended[::3], ended[1::3], ended[2::3], strict=True):
                loaded = load(member, Held(keys.number, record, lease))
                lost, after, noted = lifecycle.lose(loaded.record, token_of(lease), now)
                if lost is not None and after is not None and len(swaps) < limit:
                    reaped.append(lost)
                    swaps.append(Swap(loaded, after.message, noted, over_by=now))
        done = await try_swap(self._session, swaps, now)
        return [lost for lost, was_done in zip(reaped, done, strict=True) if was_done is True]


class ClaimRequest(NamedTuple):
    """The arguments of one claim, and its token."""

    route: str
    limit: int
    lease: int
    now: int
    max_bytes: int
    token: int


class ClaimCall(NamedTuple):
    """One call of the script: some partitions, and how much each may give."""

    partitions: Sequence[int]
    share: int
    """Messages they may give together."""
    max_bytes: int
    at_least: int
    """Messages they give however large: 1, or 0 once the claim has some."""
    round: int
    """Asked again in the same round, a partition repeats its answer."""


class Claiming:
    """One claim in progress on a route served by priority and due."""

    def __init__(
        self,
        session: Session,
        request: ClaimRequest,
        keys_of: Callable[[str, int], list[bytes]],
        known: RouteKnowledge,
    ) -> None:
        self._session = session
        self.route = request.route
        self._now = request.now
        self._keys_of = keys_of
        self._known = known
        self._failed: PenstockError | None = None
        self._answered = False
        self.reported: set[int] = set()
        """Partitions that have reported their remaining messages."""
        self.token = request.token
        self.round = 1
        self.left = request.limit
        self.bytes_left = request.max_bytes
        self.stopped: set[int] = set()
        """Partitions with more due messages, too large for the bytes left."""
        self.unanswered: list[ClaimCall] = []
        """Calls that may have been made all the same."""
        self.messages: list[Message] = []
        self.partitions: set[int] = set()
        token = pack_token(self.token)
        self._more: list[Argument] = [request.now, request.lease, token, *known.counters]

    async def share_out(self, partitions: Sequence[int]) -> list[tuple[int, int]]:
        """(partition, how many to claim there) for partitions with due messages."""
        samples = due_samples(self.left, len(partitions))
        groups = []
        for p in partitions:
            keys = self._keys_of(self.route, p)
            groups.append(Group(p, [keys[0], *keys[5:]]))
        common: list[Argument] = [self._more[0], samples, *self._more[3:]]
        replies = await self._session.runner.try_run(_DUE, groups, common, writes=False)
        answered: list[int] = []
        found: list[PartitionDue] = []
        for partition, reply in zip(partitions, replies, strict=True):
            if isinstance(reply, PenstockError):
                self._failed = reply
                continue
            generation, numbers, dues, head, far = reply
            self._answered = True
            answered.append(partition)
            found.append(PartitionDue(numbers, [[int(due) for due in lane] for lane in dues]))
            if not sum(numbers):  # those with due messages are asked again and report then
                await self._learn(partition, generation, head, far)
        wanted = shares(found, self.left)
        return [(p, share) for p, share in zip(answered, wanted, strict=True) if share > 0]

    def call(self, partitions: Sequence[int], share: int, *, calls: int = 1) -> ClaimCall:
        """A call for all that is left, or for its part when several calls are made at once."""
        at_least = int(not self.messages and calls == 1)
        return ClaimCall(partitions, share, self.bytes_left // calls, at_least, self.round)

    async def ask(self, call: ClaimCall) -> None:
        """Make one call; partitions that do not answer are left out."""
        groups = [Group(p, self._keys_of(self.route, p)) for p in call.partitions]
        try:
            replies = await self._session.runner.run(_CLAIM, groups, self._common(call))
        except PenstockError as exc:
            self._failed = exc
            if isinstance(exc, StoreUnavailable):
                self.unanswered.append(call)
            return
        self._answered = True
        for partition, reply in zip(call.partitions, replies, strict=True):
            await self._answered_by(partition, reply)

    async def ask_the_stopped(self) -> None:
        """Ask the partitions that ended by bytes one after the other, with all the bytes left."""
        self.round += 1
        for partition in sorted(self.stopped):
            if self.left > 0 and (self.bytes_left > 0 or not self.messages):
                await self.ask(self.call([partition], self.left))

    def _common(self, call: ClaimCall) -> list[Argument]:
        bounds = (call.round, call.max_bytes, call.at_least)
        return [self.route, call.share, *self._more, *bounds]

    async def _answered_by(self, partition: int, reply: Reply) -> None:
        generation, lease, taken, head, far, stopped = reply[:6]
        (self.stopped.add if stopped else self.stopped.discard)(partition)
        self._take(partition, lease, taken)
        await self._learn(partition, generation, head, far)

    async def _learn(
        self, partition: int, generation: bytes | None, head: bytes | None, far: list[bytes]
    ) -> None:
        self.reported.add(partition)
        self._known.heads.pop(partition, None)
        if head is not None:
            self._known.heads[partition] = int(head)
        self._known.buckets[partition] = [
            (int(earliest), IndexedBucket(partition, member))
            for member, earliest in zip(far[::2], far[1::2], strict=True)
        ]
        if generation is None or int(generation) != self._session.layout.generation:
            await self._session.layout.renew([partition])

    def _take(self, partition: int, lease: bytes, taken: list[bytes]) -> None:
        if not taken:
            return
        self.partitions.add(partition)
        self.left -= len(taken) // 2
        self.bytes_left -= sum(map(len, taken[1::2]))
        self.messages += unpack_claimed(partition, lease, taken)

    def raise_if_nothing_answered(self) -> None:
        """Raise if no partition answered: messages of some must not be lost because others are
        down.
        """
        if not self._answered and self._failed is not None:
            raise self._failed

    async def open_buckets(self) -> bool:
        """Open the buckets that came near; True if one of them has due messages."""
        near, is_due = [], False
        buckets = [self._known.buckets.get(partition, []) for partition in sorted(self.reported)]
        for earliest, bucket in chain.from_iterable(buckets):
            width = parse_member(bucket.member)[1].width
            if earliest - 2 * width < self._now:
                near.append(bucket)
                is_due = is_due or earliest <= self._now
        await promote(self._session, self.route, near, self._now)
        return is_due

    def claimed(self, limit: int) -> Claim:
        if not self.messages:
            return Claim(0, (), self.next_due())
        self.messages.sort(key=lambda message: (-message.priority, message.due, message.id))
        stopped = bool(self.stopped)
        next_due = self.next_due() if len(self.messages) < limit and not stopped else None
        return Claim(self.token, tuple(self.messages), next_due, stopped)

    def next_due(self) -> int | None:
        return self._known.next_due()


class RouteKnowledge:
    """This process's knowledge of one route from its claims: the next due of each partition.

    Most messages come due one by one. Asking every partition for each would cost as many times more
    as there are partitions, while a claim reports the next due of every partition it has asked, and
    every nearer put is published. So only partitions known to have due messages are asked, and all
    of them now and then, in case an announcement was missed.
    """

    def __init__(self, route: str) -> None:
        counters = [counter_of_lane(route, priority) for priority in range(9, -1, -1)]
        self.counters: list[Argument] = [*counters, f"{PAUSED}{route}"]
        """The counters every claim names: those of the lanes, 9 first, and the pause."""
        self.heads: dict[int, int] = {}
        """Partition → due of the first message in its lanes."""
        self.buckets: dict[int, list[tuple[int, IndexedBucket]]] = {}
        """Partition → (earliest due, bucket), the nearest ones."""
        self._all_asked = NEVER
        self._news = 0
        """The earliest due that was put since, wherever it is."""

    def heard(self, due: int) -> None:
        self._news = min(due, self._news)

    def worth_asking(self, order: Sequence[int], now: int) -> Sequence[int]:
        """The partitions of this order with due messages; all of them if others may have some
        too.
        """
        if not 0 <= now - self._all_asked < ALL_MS or self._news <= now:
            return order
        due = [p for p in order if self._next(p) <= now]
        return due if 0 < len(due) <= len(order) // 2 else order

    def asking_all(self) -> None:
        """Note that all are about to be asked: puts from now on may be missed, and old dues are
        void.
        """
        self._all_asked, self._news = NEVER, NEVER
        self.heads.clear()
        self.buckets.clear()

    def all_asked(self, now: int) -> None:
        """Note that every partition has reported its next due."""
        self._all_asked = now

    def next_due(self) -> int | None:
        """A lower bound: a bucket's earliest may have been cancelled or moved since."""
        buckets = chain.from_iterable(self.buckets.values())
        return min([*self.heads.values(), *(earliest for earliest, _ in buckets)], default=None)

    def next_head(self) -> int | None:
        return min(self.heads.values(), default=None)

    def _next(self, partition: int) -> int:
        """0 where nothing is known."""
        buckets = self.buckets.get(partition)
        if buckets is None:
            return 0
        return min([self.heads.get(partition, NEVER), *(earliest for earliest, _ in buckets)])


class PartitionDue(NamedTuple):
    """The due messages of one partition, by lane, 9 first."""

    numbers: Sequence[int]
    dues: Sequence[Sequence[int]]
    """The dues of the first messages of each lane, as many as requested."""


def due_samples(limit: int, partitions: int) -> int:
    """How many dues of each lane to read for an exact order; 0: too many to compare."""
    return limit if limit * partitions <= EXACT else 0


def shares(found: Sequence[PartitionDue], limit: int) -> list[int]:
    """How many to take from each partition."""
    taken = [0] * len(found)
    left = limit
    for lane in range(10):
        numbers = [one.numbers[lane] for one in found]
        if sum(numbers) <= left:
            more = numbers
        elif due_samples(limit, len(found)):
            more = first_by_due([one.dues[lane] for one in found], left)
        else:
            more = _equally(numbers, left)
        taken = [before + added for before, added in zip(taken, more, strict=True)]
        left -= sum(more)
        if left <= 0:
            break
    return taken


def first_by_due(dues: Sequence[Sequence[int]], left: int) -> list[int]:
    """How many of each sequence belong to the first `left` of all."""
    first = sorted((due, i) for i, some in enumerate(dues) for due in some)[:left]
    more = [0] * len(dues)
    for _, i in first:
        more[i] += 1
    return more


def _equally(numbers: Sequence[int], left: int) -> list[int]:
    more = [0] * len(numbers)
    while left > 0 and (open_ := [i for i, n in enumerate(numbers) if more[i] < n]):
        share = max(1, left // len(open_))
        for i in open_:
            added = min(share, numbers[i] - more[i], left)
            more[i] += added
            left -= added
    return more


class IndexedBucket(NamedTuple):
    """A bucket of a route's index."""

    partition: int
    member: bytes


async def promote(session: Session, route: str, buckets: Sequence[IndexedBucket], now: int) -> None:
    """Move a bounded number of entries of each nearer to where they are claimed."""
    groups = []
    for partition, member in buckets:
        keys = session.layout.keys(partition)
        priority, bucket = parse_member(member)
        inside = session.widths.inside(bucket)
        used = [
            keys.records,
            keys.leases,
            keys.bucket(route, priority, bucket.width, bucket.start),
            keys.index(route),
            keys.lane(route, priority),
            *(keys.bucket(route, priority, one.width, one.start) for one in inside),
        ]
        narrower = [
            [one.start, one.width, member_of_bucket(priority, one.width, one.start)]
            for one in inside
        ]
        plan = [raw(member), bucket.start, priority, route, narrower]
        groups.append(Group(partition, used, plan))
    if groups:
        await session.runner.run(_PROMOTE, groups, [now, session.widths.near, PROMOTED])
