"""CLAIM, EXTEND, REAP: the life of a lease up to its end by time.

Order: on one server a claim sees up to 64 partitions at once and gives exact priority; due order
is exact too unless much more is due than asked for, when partitions share equally. In a cluster
all partitions are asked what they have, then each for its share of the same order; what changes
between the two calls can make a claim smaller, or its order a little older; a claim that its bytes
end takes of each partition what comes first there. Where few partitions
are known to have something due, those are asked alone (known.py).
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence

from penstock.model.errors import PenstockError
from penstock.model.outcome import Claim, Reaped
from penstock.model.route import KeyLimit
from penstock.model.size import ANY_SIZE
from penstock.redis_kit.connect import Argument
from penstock.redis_kit.runner import MAX_GROUPS, Group, raw
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.keys import PartitionKeys, counter_of_lane
from penstock.stores.redis.messages.claiming import Call, Claiming
from penstock.stores.redis.messages.ids import unpack_id
from penstock.stores.redis.messages.known import Known
from penstock.stores.redis.messages.records import STATES, pack_token
from penstock.stores.redis.messages.turns import UNBOUNDED, KeyedClaiming, Missing
from penstock.stores.redis.session import Session

_EXTEND = Script("stores/redis/messages/extend.lua")
_EXPIRED = Script("stores/redis/messages/expired.lua")
_REAP = Script("stores/redis/messages/reap.lua")

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
        self._known: dict[str, Known] = {}
        self._missing: Missing = {}
        self._unanswered: dict[str, dict[int, list[Call]]] = {}
        """Route → token → calls of claims that may have leased something nobody knows of."""

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
            asked = (self._session, route, limit, lease, now, self._keys, known, max_bytes, token)
            if route in layout.keyed:
                return KeyedClaiming(*asked, per_key or UNBOUNDED, self._missing)
            return Claiming(*asked)

        if self._unanswered.get(route):
            found = await self._ask_again(route, begin)
            if found is not None:
                return found.claimed(limit)
        for _ in range(ROUNDS):
            work = begin(self._session.token())
            order = self._order(route)
            some = order if route in layout.keyed else self._worth_asking(known, order, now)
            if len(some) == len(order):
                known.asking_all()
            await self._ask(work, some)
            if work.left > 0 and len(work.told) == len(order):
                known.all_asked(now)
            opened = await work.open_buckets()
            if work.messages or not opened:
                break
        if work.messages:
            self._remember(work.token, work.partitions)
        return work.claimed(limit)

    async def _ask_again(self, route: str, begin: Callable[[int], Claiming]) -> Claiming | None:
        """Repeat calls whose answer was lost: what they leased is ours, and nobody else knows.

        A partition that was asked gives the same again, another one gives what is due now. The
        first claim that has something; the others wait for their turn.
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
        """Every partition, another one first each time, but those that still owe an answer."""
        total = self._session.layout.total
        self._turn = (self._turn + 1) % total
        order = [*range(self._turn, total), *range(self._turn)]
        if lost := self._unanswered.get(route):
            owing = {p for calls in lost.values() for call in calls for p in call.partitions}
            return [p for p in order if p not in owing]
        return order

    def _known_of(self, route: str) -> Known:
        if not self._known:
            self._session.wakeups.add(self._heard)
        known = self._known.get(route)
        if known is None:
            known = self._known[route] = Known(route)
        return known

    def _heard(self, route: str, due: int) -> None:
        known = self._known.get(route)
        if known is not None:
            known.heard(due)

    def _worth_asking(self, known: Known, order: list[int], now: int) -> Sequence[int]:
        heard = self._session.wakeups.subscribed.is_set()
        return known.worth_asking(order, now) if heard else order

    async def _ask(self, work: Claiming, order: Sequence[int]) -> None:
        """Of one server each partition once; of a cluster until nobody else was quicker."""
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
        """Leases that have ended, route by route, until `limit` messages are back."""
        layout, runner = self._session.layout, self._session.runner
        every = layout.all_keys()
        groups = [Group(keys.number, (keys.tokens, keys.grants, keys.generation)) for keys in every]
        replies = await runner.try_run(_EXPIRED, groups, [now, TOKENS])
        failed = [reply for reply in replies if isinstance(reply, PenstockError)]
        if len(failed) == len(replies):
            raise failed[0]
        by_route: dict[bytes, list[tuple[PartitionKeys, bytes]]] = {}
        for keys, reply in zip(every, replies, strict=True):
            if not isinstance(reply, PenstockError):
                generation, *ended = reply
                for token, route in zip(ended[::2], ended[1::2], strict=True):
                    by_route.setdefault(route, []).append((keys, token))
                if ended and generation != b"%d" % layout.generation:
                    await layout.renew([keys.number])  # the route may keep turns by now
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
            keyed = route in self._session.layout.keyed
            used = _reap_keys(keys, route) + (keys.turns(route) if keyed else [])
            group = Group(keys.number, used, [raw(token), counters, keyed])
            common: list[Argument] = [now, limit - len(reaped), channel, route]
            reply = await self._session.runner.single(_REAP, group, common)
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
