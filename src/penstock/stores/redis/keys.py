"""The one place that names keys, and says under which of them a message is indexed.

Every key of a partition carries the partition's hash tag, so that a script's keys share a slot.
Tags are chosen so that partitions 0 … n-1 spread evenly over a cluster's slots for every n: the
k-th aims at the k-th number of the van der Corput sequence.

Per partition (`<prefix>:{tag}:…`):
  v             STRING  the layout's generation; puts of another one are refused
  m             HASH    id → record; the truth
  l             HASH    id → lease (token, moment, cancel asked)
  t             ZSET    token → end of its lease
  g             HASH    token → route and ids; token + "n" → how many are not settled yet,
                        token + "r" → the last round of its claim and where its ids begin
  c             HASH    counters and paused routes
  x             LIST    (moment, id) of settled messages, in the order they are forgotten
  q:<p>:<route> ZSET    the near future of one priority: id by due
  b:<p>:<width>:<start>:<route>  LIST  (offset, id) of the far future, one bucket each
  i:<route>     ZSET    the route's buckets by the earliest due in them
  d:<route>     ZSET    the dead by due
  k             ZSET    key + \\0 + id, all scored 0: the index by key, where that is asked for
  y:<route>, n:<route>, f:<route>  ZSETs  line, turns and busy of a route that keeps turns: what of
                        a key waits, when it is its turn, what of it is leased (line.lua)
  o             LIST    ids forgotten here that have a pointer in their own partition (pointers.py)
  w             STRING  written so that WAIT has something to wait for, where that is asked for
Of the whole store: `<prefix>:layout` HASH, `<prefix>:paused` SET, `<prefix>:processes` HASH, and
the channel `<prefix>:wake`.

A scheduled message is indexed in its lane when it is near, else in a bucket. Buckets are lists:
cheap to fill and small in memory. They are opened into the lane, or into narrower buckets, when
they come near. Widths grow with the distance, so years ahead do not mean millions of buckets.
"""

from __future__ import annotations

from binascii import crc_hqx
from collections.abc import Sequence
from functools import lru_cache
from struct import Struct, pack
from typing import NamedTuple

SLOTS = 16_384
_WINDOW = 16
"""Slots a tag may be off its aim; so close that 1,024 partitions still spread evenly."""

HOUR = 3_600_000
DAY = 86_400_000
END = 1 << 48
"""Later than every moment: due times have six bytes."""
OFFSET = Struct("<I")
"""The offset of a due time within its bucket."""

SCHEDULED = "s"
LEASED = "l"
DEAD = "d"
PAUSED = "p"


@lru_cache(maxsize=4096)
def tag_of(partition: int) -> str:
    """The hash tag of a partition: the same in every process, for any total."""
    aim = int(f"{partition % 1024:010b}"[::-1], 2) * _WINDOW
    tried = 0
    while True:
        tag = f"{partition}.{tried:x}"
        if 0 <= crc_hqx(tag.encode(), 0) % SLOTS - aim < _WINDOW:
            return tag
        tried += 1


class PartitionKeys:
    """The names of one partition's keys."""

    __slots__ = (
        "_prefix",
        "by_key",
        "counters",
        "generation",
        "grants",
        "leases",
        "number",
        "records",
        "settled",
        "tokens",
        "unused",
    )

    def __init__(self, prefix: str, partition: int) -> None:
        self.number = partition
        self._prefix = f"{prefix}:{{{tag_of(partition)}}}:"
        self.generation = self._name("v")
        self.records = self._name("m")
        self.leases = self._name("l")
        self.tokens = self._name("t")
        self.grants = self._name("g")
        self.counters = self._name("c")
        self.settled = self._name("x")
        self.by_key = self._name("k")
        self.unused = self._name("o")

    def lane(self, route: str, priority: int) -> bytes:
        return self._name(f"q:{priority}:{route}")

    def lanes(self, route: str) -> list[bytes]:
        """The lanes of every priority, 9 first: the order in which they are claimed."""
        return [self.lane(route, priority) for priority in range(9, -1, -1)]

    def bucket(self, route: str, priority: int, width: int, start: int) -> bytes:
        return self._name(f"b:{priority}:{width}:{start}:{route}")

    def index(self, route: str) -> bytes:
        return self._name(f"i:{route}")

    def dead(self, route: str) -> bytes:
        return self._name(f"d:{route}")

    def turns(self, route: str) -> list[bytes]:
        """Line, turns, busy."""
        return [self._name(f"{letter}:{route}") for letter in "ynf"]

    def ends(self, route: str) -> bytes:
        """When the leases of a busy key should be over, where the truth about leases is
        elsewhere.
        """
        return self._name(f"e:{route}")

    def agenda(self, kind: str, part: str) -> bytes:
        """Due times of one kind of items whose records are elsewhere, in DynamoDB."""
        return self._name(f"z:{kind}:{part}")

    def taken(self, who: str, route: str) -> bytes:
        """The last claim of a process, in case it did not receive the answer."""
        return self._name(f"a:{who}:{route}")

    def _name(self, rest: str) -> bytes:
        return (self._prefix + rest).encode()


def counter_of_lane(route: str, priority: int) -> str:
    """The counter of scheduled messages in a lane."""
    return f"{SCHEDULED}{priority}{route}"


def member_of_bucket(priority: int, width: int, start: int) -> str:
    """A bucket's name in its route's index."""
    return f"{priority}:{width}:{start}"


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
        """The width of the bucket for a message due then; 0: it is near."""
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
    """The place where one message is indexed, as commands on keys."""

    key: bytes
    index_key: bytes | None
    """The index its bucket is in; None: it is in a lane."""
    member: str
    """The member in the index."""
    counter: str


@lru_cache(maxsize=1024)  # of all there are, few are put to at one time
def spot_for(keys: PartitionKeys, route: str, priority: int, bucket: Bucket | None) -> Spot:
    counter = counter_of_lane(route, priority)
    if bucket is None:
        return Spot(keys.lane(route, priority), None, "", counter)
    key = keys.bucket(route, priority, bucket.width, bucket.start)
    member = member_of_bucket(priority, bucket.width, bucket.start)
    return Spot(key, keys.index(route), member, counter)
