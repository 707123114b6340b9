"""The buckets that may hold messages: a registry in the table, written before any message.

`pk` = "b:<width>:<group>" has one attribute per bucket: the moment it was last confirmed in use;
"s:groups" names the groups. A bucket leaves the registry when it is long past, was found empty, and
was not confirmed recently: a process writes only into buckets that end in the future (or nearly),
or that it has just confirmed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import NamedTuple

from penstock.stores.dynamodb.items import Item, Shape
from penstock.stores.dynamodb.table import Table

GROUPS = "s:groups"
IN_GROUP = 1024
MARGIN_MS = 600_000
"""How long ago a bucket must have ended, and been confirmed, before it may be removed."""
_TRUST_MS = MARGIN_MS // 2


class Bucket(NamedTuple):
    start: int
    end: int
    width: int
    number: int
    vouched: int
    """When a process last confirmed that the bucket may hold messages."""


class Buckets:
    """This process's view of the registry."""

    def __init__(self, table: Table, shape: Shape) -> None:
        self._table = table
        self._shape = shape
        self._vouched: dict[int, int] = {}
        """Bucket → when it was last confirmed, as far as this process knows."""
        self._groups: set[int] = set()
        """Groups that were read and are listed."""

    async def ensure(self, dues: Iterable[int], now: int) -> None:
        """Return once every bucket of these due times is registered."""
        width = self._shape.width
        known = self._vouched
        old = (now - _TRUST_MS) // width
        wanted = {max(0, due) // width for due in dues}
        doubtful = [
            n for n in wanted if n not in known or (n <= old and known[n] < now - _TRUST_MS)
        ]
        if doubtful:
            await self._vouch(doubtful, now)

    async def _vouch(self, buckets: list[int], now: int) -> None:
        width = self._shape.width
        groups = {n // IN_GROUP for n in buckets}
        if new := groups - self._groups:
            names = [group_pk(width, group) for group in new]
            await self._table.update(
                GROUPS,
                "ADD #g :names",
                ExpressionAttributeNames={"#g": "groups"},
                ExpressionAttributeValues={":names": {"SS": names}},
            )
            for item in (await self._table.get(names)).values():
                self._learn(item, now)
            self._groups |= new
        left: dict[int, list[int]] = {}
        for n in buckets:
            if (n + 1) * width < now - _TRUST_MS or n not in self._vouched:
                left.setdefault(n // IN_GROUP, []).append(n)
        await asyncio.gather(
            *(
                self._write(group, numbers[i : i + 100], now)
                for group, numbers in left.items()
                for i in range(0, len(numbers), 100)
            )
        )

    def _learn(self, item: Item, now: int) -> None:
        """Take over buckets that other processes registered; old ones are confirmed by this one."""
        for bucket in _in_group(item):
            if bucket.end >= now - _TRUST_MS:
                self._vouched[bucket.number] = bucket.vouched

    async def _write(self, group: int, numbers: list[int], now: int) -> None:
        names = {f"#{n}": str(n) for n in numbers}
        await self._table.update(
            group_pk(self._shape.width, group),
            "SET " + ", ".join(f"{name} = :now" for name in names),
            ExpressionAttributeNames=names,
            ExpressionAttributeValues={":now": {"N": str(now)}},
        )
        for n in numbers:
            self._vouched[n] = now
        self._trim(now)

    def _trim(self, now: int) -> None:
        if len(self._vouched) > 200_000:
            old = (now - MARGIN_MS) // self._shape.width
            self._vouched = {n: at for n, at in self._vouched.items() if n > old}

    async def registered(self, until: int) -> list[Bucket]:
        """Every bucket that begins before `until`, the earliest first."""
        listed = (await self._table.get([GROUPS])).get(GROUPS)
        names = [] if listed is None else listed["groups"]["SS"]
        near = [name for name in names if _group_start(name) < until]
        items = await self._table.get(near)
        found = [b for item in items.values() for b in _in_group(item) if b.start < until]
        return sorted(found)

    async def drop(self, bucket: Bucket) -> None:
        """Remove a bucket found past and empty, unless it was confirmed meanwhile."""
        name = str(bucket.number)
        await self._table.update(
            group_pk(bucket.width, bucket.number // IN_GROUP),
            "REMOVE #b",
            ConditionExpression="#b = :seen",
            ExpressionAttributeNames={"#b": name},
            ExpressionAttributeValues={":seen": {"N": str(bucket.vouched)}},
        )


def group_pk(width: int, group: int) -> str:
    return f"b:{width}:{group}"


def _group_start(name: str) -> int:
    _, width, group = name.split(":")
    return int(width) * int(group) * IN_GROUP


def _in_group(item: Item) -> list[Bucket]:
    width = int(item["pk"]["S"].split(":")[1])
    return [
        Bucket(int(n) * width, (int(n) + 1) * width, width, int(n), int(value["N"]))
        for n, value in item.items()
        if n != "pk"
    ]
