"""The one place that names keys.

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
"""

from __future__ import annotations

from binascii import crc_hqx
from functools import lru_cache

SLOTS = 16_384
_WINDOW = 16
"""Slots a tag may be off its aim; so close that 1,024 partitions still spread evenly."""

SCHEDULED = "s"
LEASED = "l"
DEAD = "d"
PAUSED = "p"


@lru_cache(maxsize=4096)
def tag_of(partition: int) -> str:
    """The hash tag of a partition: the same in every process, whatever the total."""
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
        """Of every priority, 9 first: the order they are claimed in."""
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
        """When what is busy should be over, where the truth about leases is elsewhere."""
        return self._name(f"e:{route}")

    def taken(self, who: str, route: str) -> bytes:
        """What a process took last, in case that it did not get the answer."""
        return self._name(f"a:{who}:{route}")

    def _name(self, rest: str) -> bytes:
        return (self._prefix + rest).encode()


def counter_of_lane(route: str, priority: int) -> str:
    """The counter of what is scheduled on a lane."""
    return f"{SCHEDULED}{priority}{route}"


def member_of_bucket(priority: int, width: int, start: int) -> str:
    """A bucket's name in its route's index."""
    return f"{priority}:{width}:{start}"
