"""One claim under way: what it has so far, and what it learned of each partition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

from penstock.model.errors import PenstockError
from penstock.model.message import Message
from penstock.model.outcome import Claim
from penstock.stores.redis.connect import Argument
from penstock.stores.redis.known import Known
from penstock.stores.redis.place import parse_member
from penstock.stores.redis.promote import Near, promote
from penstock.stores.redis.records import pack_token, unpack_claimed
from penstock.stores.redis.scripts import Group
from penstock.stores.redis.session import Session
from penstock.stores.redis.shares import Due, shares, told


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
    ) -> None:
        self._session = session
        self._route = route
        self._now = now
        self._keys_of = keys_of
        self._known = known
        self._failed: PenstockError | None = None
        self._answered = False
        self.told: set[int] = set()
        """Partitions that have said what they have left."""
        self.token = session.token()
        self.round = 1
        """Asked again in the same round, a partition repeats its answer."""
        self.left = limit
        self.messages: list[Message] = []
        self.partitions: set[int] = set()
        self._more: list[Argument] = [now, lease, pack_token(self.token), *known.counters]

    async def share_out(self, partitions: Sequence[int]) -> list[tuple[int, int]]:
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

    async def ask(self, partitions: Sequence[int], share: int) -> None:
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
        await promote(self._session, self._route, near, self._now)
        return is_due

    def claimed(self, limit: int) -> Claim:
        if not self.messages:
            return Claim(0, (), self.next_due())
        self.messages.sort(key=lambda message: (-message.priority, message.due, message.id))
        next_due = self.next_due() if len(self.messages) < limit else None
        return Claim(self.token, tuple(self.messages), next_due)

    def next_due(self) -> int | None:
        return self._known.next_due()
