"""The open store, as every step gets it: runner, layout, bucket widths, wake-ups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.model.errors import PenstockError
from penstock.redis_kit.runner import Group, Prepared, Runner
from penstock.redis_kit.scripts import Script
from penstock.redis_kit.wake import Wakeups
from penstock.stores.redis.keys import Bucket, Widths
from penstock.stores.redis.layout import Layout
from penstock.stores.redis.messages.records import Held, pack_id, target_of
from penstock.time.chance import given_or_fresh

FIND = Script("stores/redis/find.lua")

LOOKS = 5
"""Times an id is looked for again: each means that the layout has grown since the last."""


class Session:
    """The open store: its scripts, its layout, its wake-ups."""

    def __init__(
        self,
        runner: Runner,
        layout: Layout,
        widths: Widths,
        wakeups: Wakeups,
        *,
        retention: int,
        retention_count: int,
    ) -> None:
        self.runner = runner
        self.layout = layout
        self.widths = widths
        self.wakeups = wakeups
        self.retention = retention
        self.retention_count = retention_count
        self.calls: dict[tuple[int, int, str, int, int, int], Prepared] = {}
        """Cached calls for single puts (put.py), by generation, partition, route, priority and
        bucket.
        """
        self._chance = given_or_fresh(None)

    @property
    def kept_each(self) -> int:
        """Settled ids that stay known in one partition."""
        return max(1, self.retention_count // max(1, self.layout.total))

    def edition(self) -> int:
        """A number that distinguishes one write of a record from another."""
        return self._chance.getrandbits(16)

    def bucket_for(self, due: int, now: int) -> Bucket | None:
        return self.widths.bucket_for(due, now)

    async def find(self, ids: Sequence[str]) -> list[Held | None]:
        """Each id's record, in whichever partition; looks again if the layout has grown."""
        layout = self.layout
        found = await self.find_here(ids)
        for _ in range(LOOKS):
            generation = layout.generation
            if None not in found or layout.seen <= generation:
                break
            await layout.refresh()
            if layout.generation == generation:  # the generation seen is not in use
                break
            found = await self.find_here(ids)
        return found

    async def find_here(self, ids: Sequence[str]) -> list[Held | None]:
        """Find by the layout this process knows: a put must not change it between two of its
        steps.
        """
        by_partition: dict[int, list[int]] = {}
        for i, text in enumerate(ids):
            for partition in self.candidates(text):
                by_partition.setdefault(partition, []).append(i)
        found = await self.look(by_partition, ids)
        pointed: dict[int, list[int]] = {}
        for i, held in enumerate(found):
            target = None if held is None else target_of(held.record)
            if target is not None:
                pointed.setdefault(target, []).append(i)
                found[i] = None
        if pointed:
            there = await self.look(pointed, ids)
            found = [held or other for held, other in zip(found, there, strict=True)]
        return found

    async def look(
        self, by_partition: Mapping[int, Sequence[int]], ids: Sequence[str]
    ) -> list[Held | None]:
        """The records of some ids (by their places) in these partitions, pointers too."""
        found: list[Held | None] = [None] * len(ids)
        for i, held in enumerate(await self.try_look(by_partition, ids)):
            if isinstance(held, PenstockError):
                raise held
            found[i] = held
        return found

    async def try_look(
        self,
        by_partition: Mapping[int, Sequence[int]],
        ids: Sequence[str],
        *,
        without_payload: bool = False,
    ) -> list[Held | PenstockError | None]:
        """Like `look`, with the error of a partition that did not answer in place of a record."""
        groups = []
        for partition, wanted in by_partition.items():
            keys = self.layout.keys(partition)
            members = [pack_id(ids[i]) for i in wanted]
            used = (keys.records, keys.leases, keys.generation)
            groups.append(Group(partition, used, [len(wanted), without_payload], members))
        found: list[Held | PenstockError | None] = [None] * len(ids)
        replies = await self.runner.try_run(FIND, groups, writes=False) if groups else []
        for (partition, wanted), reply in zip(by_partition.items(), replies, strict=True):
            if isinstance(reply, PenstockError):
                for i in wanted:
                    found[i] = reply
                continue
            records, leases, generation = reply
            self.layout.seen = max(generation, self.layout.seen)
            for i, record, lease in zip(wanted, records, leases, strict=True):
                if record is not None and not isinstance(found[i], PenstockError):
                    found[i] = Held(partition, record, lease)
        return found

    def candidates(self, message_id: str) -> Iterable[int]:
        """The partitions that may have the id."""
        yield self.layout.home(message_id)
        if self.layout.older:
            yield from self.layout.elsewhere(message_id)
