"""PROMOTE: open buckets that came near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from penstock.redis_kit.runner import Group, raw
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.keys import member_of_bucket
from penstock.stores.redis.messages.buckets import parse_member
from penstock.stores.redis.session import Session

_PROMOTE = Script("stores/redis/messages/promote.lua")

STEP = 1_000
"""Entries of one bucket moved in one call."""


class Near(NamedTuple):
    """A bucket of a route's index."""

    partition: int
    member: bytes


async def promote(session: Session, route: str, buckets: Sequence[Near], now: int) -> None:
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
        await session.runner.run(_PROMOTE, groups, [now, session.widths.near, STEP])
