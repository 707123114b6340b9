"""One claim under way: what it has so far, and what it learned of each partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import NamedTuple

from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.message import Message
from penstock.model.outcome import Claim
from penstock.redis_kit.connect import Argument, Reply
from penstock.redis_kit.runner import Group
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.messages.buckets import parse_member
from penstock.stores.redis.messages.known import Known
from penstock.stores.redis.messages.promote import Near, promote
from penstock.stores.redis.messages.records import pack_token, unpack_claimed
from penstock.stores.redis.messages.shares import Due, shares, told
from penstock.stores.redis.session import Session

_DUE = Script("stores/redis/messages/due.lua")
_CLAIM = Script("stores/redis/messages/claim.lua")


class Call(NamedTuple):
    """What a claim asks of some partitions at once."""

    partitions: Sequence[int]
    share: int
    """Messages they may give together."""
    max_bytes: int
    at_least: int
    """Messages they give however large: 1, or 0 once the claim has some."""
    round: int
    """Asked again in the same round, a partition repeats its answer."""


class Claiming:
    """Of a route whose messages go by priority and due."""

    def __init__(
        self,
        session: Session,
        route: str,
        limit: int,
        lease: int,
        now: int,
        keys_of: Callable[[str, int], list[bytes]],
        known: Known,
        max_bytes: int,
        token: int,
    ) -> None:
        self._session = session
        self.route = route
        self._now = now
        self._keys_of = keys_of
        self._known = known
        self._failed: PenstockError | None = None
        self._answered = False
        self.told: set[int] = set()
        """Partitions that have said what they have left."""
        self.token = token
        self.round = 1
        self.left = limit
        self.bytes_left = max_bytes
        self.stopped: set[int] = set()
        """Partitions that have more that is due, but too large for what is left."""
        self.unanswered: list[Call] = []
        """Calls that may have been made all the same."""
        self.messages: list[Message] = []
        self.partitions: set[int] = set()
        self._more: list[Argument] = [now, lease, pack_token(self.token), *known.counters]

    async def share_out(self, partitions: Sequence[int]) -> list[tuple[int, int]]:
        """(partition, how many to claim there) of those that have something due."""
        known = told(self.left, len(partitions))
        groups = []
        for p in partitions:
            keys = self._keys_of(self.route, p)
            groups.append(Group(p, [keys[0], *keys[5:]]))
        common: list[Argument] = [self._more[0], known, *self._more[3:]]
        replies = await self._session.runner.try_run(_DUE, groups, common, writes=False)
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

    def call(self, partitions: Sequence[int], share: int, *, calls: int = 1) -> Call:
        """For as much as is left, or for its part of that where several are made at once."""
        at_least = int(not self.messages and calls == 1)
        return Call(partitions, share, self.bytes_left // calls, at_least, self.round)

    async def ask(self, call: Call) -> None:
        """One call; what could not be answered is left out."""
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
        """One after the other, with all the bytes that are left."""
        self.round += 1
        for partition in sorted(self.stopped):
            if self.left > 0 and (self.bytes_left > 0 or not self.messages):
                await self.ask(self.call([partition], self.left))

    def _common(self, call: Call) -> list[Argument]:
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
        self.told.add(partition)
        self._known.heads.pop(partition, None)
        if head is not None:
            self._known.heads[partition] = int(head)
        self._known.buckets[partition] = [
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
        self.bytes_left -= sum(map(len, taken[1::2]))
        self.messages += unpack_claimed(partition, lease, taken)

    def raise_if_nothing_answered(self) -> None:
        """What some partitions gave must not be lost because others are away."""
        if not self._answered and self._failed is not None:
            raise self._failed

    async def open_buckets(self) -> bool:
        """Open those that came near; whether one of them has messages that are due."""
        near, is_due = [], False
        buckets = [self._known.buckets.get(partition, []) for partition in sorted(self.told)]
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
