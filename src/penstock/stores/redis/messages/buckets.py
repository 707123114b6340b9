"""Where a scheduled message is indexed: in its lane when it is near, else in a bucket.

Buckets are lists: cheap to fill and small in memory. They are opened into the lane, or into
narrower buckets, when they come near. Widths grow with the distance, so years ahead do not mean
millions of buckets.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, pack
from typing import NamedTuple

from penstock.stores.redis.keys import PartitionKeys, counter_of_lane, member_of_bucket

HOUR = 3_600_000
DAY = 86_400_000
END = 1 << 48
"""After every moment there is: due times have six bytes."""
OFFSET = Struct("<I")
"""Of a due time in its bucket."""


class Bucket(NamedTuple):
    width: int
    start: int

    @property
    def end(self) -> int:
        return self.start + self.width


class Widths:
    """The widths of buckets: the setting, then an hour, then a day."""

    def __init__(self, narrowest: int) -> None:
        self._widths = [narrowest, *(width for width in (HOUR, DAY) if width > narrowest)]
        self.near = 2 * narrowest
        """What is due within this many milliseconds goes to the lane directly."""

    def width_for(self, due: int, now: int) -> int:
        """Of the bucket a message due then belongs to now; 0: it is near."""
        ahead, width = due - now, 0
        for following in self._widths:
            if ahead < 2 * following:
                break
            width = following
        return width

    def bucket_for(self, due: int, now: int) -> Bucket | None:
        """The bucket of a message due then; None: it belongs in the lane."""
        width = self.width_for(due, now)
        return Bucket(width, due - due % width) if width else None

    def steps(self, now: int) -> list[tuple[int, int]]:
        """(due before, width of the bucket) from near to far; width 0: the lane."""
        untils = [now + 2 * width for width in self._widths]
        return list(zip([*untils, END], [0, *self._widths], strict=True))

    def inside(self, bucket: Bucket) -> list[Bucket]:
        """The narrower buckets that a bucket is opened into; none: into the lane."""
        narrower = [width for width in self._widths if width < bucket.width]
        if not narrower:
            return []
        width = narrower[-1]
        first = bucket.start - bucket.start % width
        return [Bucket(width, start) for start in range(first, bucket.end, width)]


def bucket_entry(bucket: Bucket, due: int, member: bytes) -> bytes:
    return OFFSET.pack(due - bucket.start) + member


def offsets(bucket: Bucket, dues: Sequence[int]) -> bytes:
    """The offsets that many entries begin with, joined."""
    start = bucket.start
    return pack(f"<{len(dues)}I", *[due - start for due in dues])


def read_entry(bucket: Bucket, entry: bytes) -> tuple[int, bytes]:
    """(due, id as stored) of a bucket's entry."""
    return bucket.start + OFFSET.unpack_from(entry)[0], entry[4:]


def parse_member(member: bytes) -> tuple[int, Bucket]:
    """(priority, bucket) of a name in a route's index."""
    priority, width, start = member.split(b":")
    return int(priority), Bucket(int(width), int(start))


class Spot(NamedTuple):
    """Where one message is indexed, as commands on keys."""

    key: bytes
    index_key: bytes | None
    """The index its bucket is in; None: it is in a lane."""
    member: str
    """In the index."""
    counter: str


@lru_cache(maxsize=1024)  # of all there are, few are put to at one time
def spot_for(keys: PartitionKeys, route: str, priority: int, bucket: Bucket | None) -> Spot:
    counter = counter_of_lane(route, priority)
    if bucket is None:
        return Spot(keys.lane(route, priority), None, "", counter)
    key = keys.bucket(route, priority, bucket.width, bucket.start)
    member = member_of_bucket(priority, bucket.width, bucket.start)
    return Spot(key, keys.index(route), member, counter)
