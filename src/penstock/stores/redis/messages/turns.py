"""TURNS: routes with a promise per key: so many in flight at most, or one by one in order.

The placement of messages decides which promises are possible. Messages of such a route are put into
the partition of their *key* and not of their id, so that a key's line, its leases and its turn are
in one place and change with the message in one script (line.lua): there is no moment at which two
workers could see a key free, or a message outside its line. The price is a pointer in the id's own
partition, written before the put (pointers.py). The reverse (messages with their ids, leased slots
with the keys) would need no pointer, but claim, settle, reap, cancel and reschedule would each be
two steps with a crash in between, and order by due would apply only among messages whose due is
known everywhere.

A claim reads turns: the keys that may have a due message, by the due of their next one. It never
reads the backlog of a busy key. Routes without such a promise pay nothing.

The promise binds messages put since the route made it (in any process: `Layout.keep_turns`). Older
ones stay where they are, in the partitions of their ids, and keep it among those there. The same is
true of a waiting message that is replaced by one of another key or route.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from penstock.model.errors import PenstockError, StoreUnavailable
from penstock.model.route import KeyLimit
from penstock.redis_kit.connect import Argument, Reply
from penstock.redis_kit.runner import Group
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.messages.lease import (
    ClaimCall,
    Claiming,
    ClaimRequest,
    Leases,
    RouteKnowledge,
    first_by_due,
)
from penstock.stores.redis.messages.line import UNBOUNDED
from penstock.stores.redis.session import Session

_CLAIM_KEYED = Script("stores/redis/messages/claim_keyed.lua")
_MEND = Script("stores/redis/messages/mend.lua")

LOOKED_AT = 500
"""Approximate entries read in one repair step."""
MENDING = 3
"""Times a partition is asked whose turns are fewer than its messages."""
Missing: TypeAlias = dict[tuple[str, int], tuple[int, int]]
"""(route, partition) → messages still missing from turns after a repair, and so for good."""


class KeyedLeases(Leases):
    """Leases of all routes, including those that keep turns."""

    def __init__(self, session: Session, *, cluster: bool) -> None:
        super().__init__(session, cluster=cluster)
        self._missing: Missing = {}

    def _begin_keyed(
        self, request: ClaimRequest, known: RouteKnowledge, per_key: KeyLimit | None
    ) -> Claiming:
        limit = per_key or UNBOUNDED
        return KeyedClaiming(self._session, request, self._keys, known, limit, self._missing)


class KeyedClaiming(Claiming):
    """A claim on a route that keeps turns: keys are served by the due of their next message."""

    def __init__(
        self,
        session: Session,
        request: ClaimRequest,
        keys_of: Callable[[str, int], list[bytes]],
        known: RouteKnowledge,
        per_key: KeyLimit,
        missing: Missing,
    ) -> None:
        super().__init__(session, request, keys_of, known)
        self._per_key = per_key
        self._missing = missing
        self._mended: set[tuple[str, int]] = set()

    async def share_out(self, partitions: Sequence[int]) -> list[tuple[int, int]]:
        dues: list[list[int]] = []
        answered: list[int] = []
        for partition, reply in await self._asked(self.call(partitions, self.left), look=True):
            answered.append(partition)
            dues.append([int(due) for due in reply[7]])
            if not reply[7]:
                await self._learn(partition, reply[0], reply[3], reply[4])
        wanted = first_by_due(dues, self.left)
        return [(p, share) for p, share in zip(answered, wanted, strict=True) if share > 0]

    async def ask(self, call: ClaimCall) -> None:
        for partition, reply in await self._asked(call, look=False):
            await self._answered_by(partition, reply)

    async def _asked(self, call: ClaimCall, *, look: bool) -> list[tuple[int, Reply]]:
        """The replies of the partitions that answered; inconsistent turns are repaired on the
        way.
        """
        answers: dict[int, Reply] = {}
        for _ in range(MENDING):
            replies = await self._call(call, look=look)
            answers.update(replies)
            left = [p for p, reply in replies if reply[6] is not None]
            for partition in left:
                await self._mend(partition, tuple(answers[partition][6]))
            share = call.share - sum(len(reply[2]) // 2 for _, reply in replies)
            call = call._replace(partitions=left, share=share)
            if not left or share <= 0:
                break
        return list(answers.items())

    async def _call(self, call: ClaimCall, *, look: bool) -> list[tuple[int, Reply]]:
        route, per_key = self.route, self._per_key
        groups = []
        for p in call.partitions:
            keys = [*self._keys_of(route, p)]
            keys[7:7] = self._session.layout.keys(p).turns(route)
            groups.append(Group(p, keys, self._missing.get((route, p), (0, 0))))
        common = [*self._common(call), per_key.in_flight, int(per_key.ordered), int(look)]
        replies = await self._session.runner.try_run(_CLAIM_KEYED, groups, common)
        answered, failed = [], []
        for partition, reply in zip(call.partitions, replies, strict=True):
            if isinstance(reply, PenstockError):
                self._failed = reply
                if isinstance(reply, StoreUnavailable):
                    failed.append(partition)
            else:
                self._answered = True
                answered.append((partition, reply))
        if failed and not look:
            self.unanswered.append(call._replace(partitions=failed))
        return answered

    async def _mend(self, partition: int, missing: tuple[int, int]) -> None:
        """Scan the whole partition the first time; messages still missing after it are
        tolerated.
        """
        place = self.route, partition
        if place in self._mended:
            self._missing[place] = missing
            return
        self._mended.add(place)
        self._missing.pop(place, None)
        await mend(self._session, *place)

    async def open_buckets(self) -> bool:
        """Does nothing: the line of a key has its messages, however far ahead."""
        await super().open_buckets()
        return False

    def next_due(self) -> int | None:
        """The due of the next turn; None while every key with messages is busy."""
        return self._known.next_head()


async def mend(session: Session, route: str, partition: int) -> None:
    """Hold a route's turns in a partition against its records, in bounded steps."""
    keys = session.layout.keys(partition)
    group = Group(partition, [keys.records, keys.leases, *keys.turns(route)])
    for subject in ("line", "busy", "records"):
        cursor = b"0"
        while True:
            common: list[Argument] = [route, subject, cursor, LOOKED_AT]
            cursor = await session.runner.single(_MEND, group, common)
            if cursor == b"0":
                break
