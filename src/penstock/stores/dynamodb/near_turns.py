"""The near future of routes with a promise per key: lines and turns in Redis, by key.

Redis is only an index here too, but losing it costs more than time: without the record of busy
keys, too many messages of one key may be sent. So it is rebuilt from the table before anything is
claimed (`turns.py`), and entries busy for too long are checked against the table.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, TypeAlias

from penstock.model.identity import partition_of
from penstock.model.message import Message
from penstock.model.route import KeyLimit
from penstock.model.state import State
from penstock.redis_kit.connect import Argument
from penstock.redis_kit.runner import Group, Runner
from penstock.redis_kit.scripts import Script
from penstock.redis_kit.wake import Wakeups
from penstock.stores.dynamodb.near import REPEAT_MS, Repeats
from penstock.stores.redis.keys import PartitionKeys
from penstock.stores.redis.messages.line import line_entry

_LINE_UP = Script("stores/dynamodb/lua/line_up.lua")
_STEP_OUT = Script("stores/dynamodb/lua/step_out.lua")
_TAKE_TURNS = Script("stores/dynamodb/lua/take_turns.lua")
_FREE = Script("stores/dynamodb/lua/free.lua")
_HOLD = Script("stores/dynamodb/lua/hold.lua")

PARTITIONS = 8
"""Partitions of the keys, independent of the store's: a key's partition never changes."""
CHECKED = 50
"""Overdue leases of a partition that one claim reports."""

Holder: TypeAlias = tuple[str, str]
"""(key, id)"""


class Over(NamedTuple):
    """A holder that is no longer busy."""

    key: str
    id: str
    entry: bytes = b""
    """Its entry in the line, if it waits again."""

    @staticmethod
    def of(message: Message) -> Over:
        waits = message.state is State.SCHEDULED
        entry = line_entry(message, message.id.encode()) if waits else b""
        return Over(message.key, message.id, entry)


class Turn(NamedTuple):
    key: str
    entry: bytes
    """Its entry as it was in the line."""

    @property
    def id(self) -> str:
        return self.entry[len(self.key.encode()) + 8 :].decode()


class Turns(NamedTuple):
    taken: list[Turn]
    next_due: int | None
    """The due of the next turn."""
    over: list[Holder]
    """Holders busy beyond their time, to be checked."""


class NearTurns:
    """Lines and turns in Redis. Every call raises StoreUnavailable while Redis is unavailable."""

    def __init__(self, runner: Runner, wakeups: Wakeups, prefix: str, *, cluster: bool) -> None:
        self._runner = runner
        self._wakeups = wakeups
        self._keys = [PartitionKeys(f"{prefix}:turns", number) for number in range(PARTITIONS)]
        self._cluster = cluster
        self._repeats = Repeats()
        self._turn = 0

    async def line_up(self, messages: Iterable[Message]) -> None:
        wanted = (
            (m.route, m.key, [line_entry(m, m.id.encode()), b"%d" % m.due, m.key.encode()])
            for m in messages
        )
        groups = [
            Group(partition, self._of(partition, route)[:2], [route, len(parts) // 3], parts)
            for (partition, route), parts in self._by_partition(wanted).items()
        ]
        if groups:
            await self._runner.run(_LINE_UP, groups, (self._wakeups.channel,))

    async def step_out(self, messages: Iterable[Message]) -> None:
        wanted = (
            (m.route, m.key, [line_entry(m, m.id.encode()), m.key.encode()]) for m in messages
        )
        groups = [
            Group(partition, self._of(partition, route)[:2], [len(parts) // 2], parts)
            for (partition, route), parts in self._by_partition(wanted).items()
        ]
        if groups:
            await self._runner.run(_STEP_OUT, groups)

    async def take(self, route: str, limit: int, until: int, now: int, per_key: KeyLimit) -> Turns:
        """Take ids whose turn it is; they are busy until `until`, unless freed before."""
        common = (until, per_key.in_flight, int(per_key.ordered), CHECKED)
        return await self._repeats.take(
            route, lambda token: self._taken(route, limit, now, (*common, token, REPEAT_MS))
        )

    async def _taken(self, route: str, limit: int, now: int, common: tuple[Argument, ...]) -> Turns:
        if not self._cluster:
            return await self._take(range(PARTITIONS), route, limit, now, common)
        # Each partition may be on a server of its own: one after the other, in turn.
        self._turn += 1
        all_: list[Turns] = []
        left = limit
        for step in range(PARTITIONS):
            partition = (self._turn + step) % PARTITIONS
            all_.append(await self._take([partition], route, left, now, common))
            left = max(0, left - len(all_[-1].taken))
        nexts = [one.next_due for one in all_ if one.next_due is not None]
        taken = [turn for one in all_ for turn in one.taken]
        return Turns(taken, min(nexts, default=None), [pair for one in all_ for pair in one.over])

    async def _take(
        self,
        partitions: Iterable[int],
        route: str,
        limit: int,
        now: int,
        common: tuple[Argument, ...],
    ) -> Turns:
        groups = [
            Group(p, [*self._of(p, route), self._keys[p].taken(self._repeats.who, route)])
            for p in partitions
        ]
        answers = await self._runner.run(_TAKE_TURNS, groups, (now, limit, *common))
        taken = [
            Turn(key.decode(), entry)
            for answer in answers
            for key, entry in zip(answer[1][::2], answer[1][1::2], strict=True)
        ]
        nexts = [int(answer[0]) for answer in answers if answer[0]]
        over = [_holder(member) for answer in answers for member in answer[2]]
        return Turns(taken, min(nexts, default=None), over)

    async def free(self, route: str, over: Iterable[Over]) -> None:
        """Free these and requeue them in one step, so that no other message overtakes them."""
        wanted = ((route, one.key, [one.key.encode(), one.id.encode(), one.entry]) for one in over)
        groups = [
            Group(partition, self._of(partition, name), [name, len(parts) // 3], parts)
            for (partition, name), parts in self._by_partition(wanted).items()
        ]
        if groups:
            await self._runner.run(_FREE, groups, (self._wakeups.channel,))

    async def hold(
        self, route: str, holders: Iterable[Holder], until: int, *, if_busy: bool = False
    ) -> None:
        """Mark these as busy until then; with `if_busy`, only those that are."""
        wanted = ((route, key, [f"{key}\0{one}".encode()]) for key, one in holders)
        groups = [
            Group(partition, self._of(partition, name)[2:], [len(parts)], parts)
            for (partition, name), parts in self._by_partition(wanted).items()
        ]
        if groups:
            await self._runner.run(_HOLD, groups, (until, "XX" if if_busy else ""))

    def _of(self, partition: int, route: str) -> list[bytes]:
        keys = self._keys[partition]
        return [*keys.turns(route), keys.ends(route)]

    def _by_partition(
        self, wanted: Iterable[tuple[str, str, list[bytes]]]
    ) -> dict[tuple[int, str], list[bytes]]:
        """(partition, route) → the arguments of its ids."""
        found: dict[tuple[int, str], list[bytes]] = {}
        for route, key, parts in wanted:
            found.setdefault((partition_of(key, PARTITIONS), route), []).extend(parts)
        return found


def _holder(member: bytes) -> Holder:
    key, _, message_id = member.partition(b"\0")
    return key.decode(), message_id.decode()
