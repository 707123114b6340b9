"""The near future in Redis: ids by partition, route and priority, in the order of due.

Redis is only an index here. A missing id is brought back from the table, a wrong one is detected
when claimed, and all of them may be lost at any moment.
"""

from __future__ import annotations

import secrets
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

from penstock.model.errors import StoreUnavailable
from penstock.model.identity import partition_of
from penstock.model.message import Message
from penstock.redis_kit.runner import Group, Runner
from penstock.redis_kit.scripts import Script
from penstock.redis_kit.wake import Wakeups, news_of
from penstock.stores.dynamodb.agenda import Agenda
from penstock.stores.redis.keys import PartitionKeys

_ADD = Script("stores/dynamodb/lua/add.lua")
_DROP = Script("stores/dynamodb/lua/drop.lua")
_TAKE = Script("stores/dynamodb/lua/take.lua")
_OPEN = Script("stores/dynamodb/lua/open.lua")
_RETIRED = Script("stores/dynamodb/lua/retired.lua")

REPEAT_MS = 60_000
"""How long the taker can repeat a `take` whose answer was lost."""
LEAD_MS = 4_000
"""How long the leader hydrates alone after its last sign of life."""


T = TypeVar("T")


class Hint(NamedTuple):
    """The position at which a message may be found, and when it may be due."""

    id: str
    route: str
    priority: int
    due: int

    @staticmethod
    def of(message: Message) -> Hint:
        return Hint(message.id, message.route, message.priority, message.due)


class Repeats:
    """Tokens for steps that take ids away: a step repeated after a lost answer uses the same one.

    The ids are gone from Redis. A repetition with the token returns them once more.
    """

    def __init__(self) -> None:
        self.who = secrets.token_hex(4)
        self._last = 0
        self._lost: dict[str, bytes] = {}

    async def take(self, route: str, step: Callable[[bytes], Awaitable[T]]) -> T:
        token = self._lost.pop(route, None)
        if token is None:
            self._last += 1
            token = b"%012d" % self._last
        try:
            return await step(token)
        except StoreUnavailable:
            self._lost[route] = token
            raise


class Taken(NamedTuple):
    hints: list[Hint]
    next_due: int | None
    """The earliest due of the remaining ids."""
    lost: bool = False
    """True if Redis has no data of this store (any more): the near future must be restored."""
    paused: bool = False

    @property
    def ids(self) -> list[str]:
        return [hint.id for hint in self.hints]


class Near:
    """Ids in Redis. Every call raises StoreUnavailable while Redis is unavailable."""

    def __init__(
        self, runner: Runner, wakeups: Wakeups, prefix: str, total: int, *, cluster: bool
    ) -> None:
        self._runner = runner
        self._wakeups = wakeups
        self._keys = [PartitionKeys(f"{prefix}:near", number) for number in range(total)]
        self._cluster = cluster
        self._repeats = Repeats()
        self._turn = 0
        self._prefix = prefix
        self._lead = f"{prefix}:near:lead"
        self._life = f"{prefix}:near:life"

    async def add(self, hints: Sequence[Hint], *, exact: bool = False) -> None:
        """Add hints; a known, earlier due stays unless the new one is `exact`."""
        lanes: dict[int, dict[tuple[str, int], list[bytes]]] = {}
        for hint in hints:
            part = lanes.setdefault(self._home(hint.id), {})
            entries = part.setdefault((hint.route, hint.priority), [])
            entries += (b"%d" % hint.due, hint.id.encode())
        groups = [
            Group(
                partition,
                [self._keys[partition].lane(route, priority) for route, priority in part],
                [[[route, len(entries) // 2] for (route, _), entries in part.items()]],
                [argument for entries in part.values() for argument in entries],
            )
            for partition, part in lanes.items()
        ]
        if groups:
            common = ("" if exact else "LT", self._wakeups.channel)
            await self._runner.run(_ADD, groups, common)

    async def drop(self, messages: Iterable[Message]) -> None:
        """Remove these, under any priority."""
        found: dict[tuple[int, str], list[bytes]] = {}
        for message in messages:
            place = self._home(message.id), message.route
            found.setdefault(place, []).append(message.id.encode())
        groups = [
            Group(partition, keys, [len(keys), len(ids)], ids)
            for (partition, route), ids in found.items()
            for keys in [self._keys[partition].lanes(route)]
        ]
        if groups:
            await self._runner.run(_DROP, groups)

    async def take(self, route: str, limit: int, now: int) -> Taken:
        """Take due ids, which removes them from Redis: claim them, or put them back."""
        return await self._repeats.take(route, lambda token: self._taken(route, limit, now, token))

    async def _taken(self, route: str, limit: int, now: int, token: bytes) -> Taken:
        if not self._cluster:
            return await self._take(self._keys, route, limit, now, token)
        # Each partition may be on a server of its own: one after the other, in turn.
        self._turn += 1
        start = self._turn % len(self._keys)
        hints: list[Hint] = []
        nexts: list[int] = []
        lost = paused = False
        for keys in self._keys[start:] + self._keys[:start]:
            taken = await self._take([keys], route, max(0, limit - len(hints)), now, token)
            hints += taken.hints
            lost, paused = lost or taken.lost, paused or taken.paused
            nexts += [] if taken.next_due is None else [taken.next_due]
        return Taken(hints, min(nexts, default=None), lost, paused)

    async def _take(
        self, partitions: Sequence[PartitionKeys], route: str, limit: int, now: int, token: bytes
    ) -> Taken:
        who = self._repeats.who
        groups = [
            Group(keys.number, [keys.generation, *keys.lanes(route), keys.taken(who, route)])
            for keys in partitions
        ]
        answers = await self._runner.run(_TAKE, groups, (now, limit, route, token, REPEAT_MS))
        hints = [
            Hint(message_id.decode(), route, int(priority), int(due))
            for *_, given in answers
            for message_id, due, priority in zip(given[::3], given[1::3], given[2::3], strict=True)
        ]
        nexts = [int(answer[2]) for answer in answers if answer[2]]
        lost, paused = (any(a[0] == 0 for a in answers), any(a[1] == 1 for a in answers))
        return Taken(hints, min(nexts, default=None), lost, paused)

    async def open(self, paused: Iterable[str], version: int, *, use: bool) -> None:
        """Copy this version of the list of paused routes, and open the partitions for use."""
        routes = [route.encode() for route in paused]
        groups = [
            Group(keys.number, [keys.generation], [len(routes)], routes) for keys in self._keys
        ]
        await self._runner.run(_OPEN, groups, (version, int(use)))

    def agenda(self, kind: str) -> Agenda:
        """The moments of one kind of items."""
        return Agenda(self._runner, self._prefix, kind)

    async def tell(self, route: str, due: int) -> None:
        """Wake every process that serves the route."""
        self._wakeups.tell(route, due)
        await self.publish(route, due)

    async def publish(self, route: str, due: int) -> None:
        """Wake other processes that serve the route, and this one when Redis echoes it."""
        await self._runner.call("PUBLISH", self._wakeups.channel, news_of(route, due))

    async def lead(self, who: str) -> bool:
        """Whether this process leads and so hydrates; only to avoid doing the work twice."""
        if await self._runner.call("SET", self._lead, who, "NX", "PX", LEAD_MS):
            return True
        if await self._runner.call("GET", self._lead) != who.encode():
            return False
        await self._runner.call("PEXPIRE", self._lead, LEAD_MS)
        return True

    async def give_way(self, who: str) -> None:
        """Let another process lead at once."""
        if await self._runner.call("GET", self._lead) == who.encode():
            await self._runner.call("DEL", self._lead)

    async def ensure_epoch(self, mark: str) -> bool:
        """False if Redis lost its data since `mark` was written; then the mark is written again."""
        stored: bytes | None = await self._runner.call("GET", self._life)
        if stored == mark.encode():
            return True
        await self._runner.call("SET", self._life, mark)
        return False

    async def retire(self, ids: Iterable[str], at: int) -> None:
        """Note settled ids, to be purged after the retention."""
        for partition, members in self._by_home(ids).items():
            entries = [part for member in members for part in (at, member)]
            await self._runner.call(
                "ZADD", self._keys[partition].settled, *entries, partition=partition
            )

    async def retired(self, now: int, retention: int, kept: int, limit: int) -> list[str]:
        """Ids to purge: settled long enough ago, or beyond the number kept."""
        groups = [Group(keys.number, [keys.settled]) for keys in self._keys]
        each = max(1, kept // len(self._keys))
        answers = await self._runner.run(_RETIRED, groups, (now, retention, each, limit))
        return [id_.decode() for answer in answers for id_ in answer][:limit]

    async def unretire(self, ids: Iterable[str]) -> None:
        for partition, members in self._by_home(ids).items():
            await self._runner.call(
                "ZREM", self._keys[partition].settled, *members, partition=partition
            )

    async def note(self, name: str, value: bytes, millis: int) -> None:
        """Store a value for some time, for every process."""
        await self._runner.call("SET", f"{self._life}:{name}", value, "PX", millis)

    async def noted(self, name: str) -> bytes | None:
        found: bytes | None = await self._runner.call("GET", f"{self._life}:{name}")
        return found

    async def keep(self, name: str, value: bytes) -> None:
        """Store a value until it is removed, or lost with everything else."""
        await self._runner.call("SET", f"{self._life}:{name}", value)

    async def unkeep(self, name: str) -> None:
        await self._runner.call("DEL", f"{self._life}:{name}")

    def _by_home(self, ids: Iterable[str]) -> dict[int, list[bytes]]:
        found: dict[int, list[bytes]] = {}
        for message_id in ids:
            found.setdefault(self._home(message_id), []).append(message_id.encode())
        return found

    def _home(self, message_id: str) -> int:
        return partition_of(message_id, len(self._keys))
