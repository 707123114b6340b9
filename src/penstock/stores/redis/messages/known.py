"""What a process knows of a route from its claims: which partitions have something due.

Most messages come due one by one. To ask every partition for each would cost as many times more as
there are partitions, here and on the server, while a claim tells the next due of every partition
it has asked, and whatever is put nearer than that is published. So those are asked that are known
to have something due, and all of them every now and then, in case news were missed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from penstock.redis_kit.connect import Argument
from penstock.stores.redis.keys import PAUSED, counter_of_lane
from penstock.stores.redis.messages.promote import Near

ALL_MS = 100
"""For so long after all were asked, some may be asked alone."""
NEVER = 1 << 62


class Known:
    """Of one route."""

    def __init__(self, route: str) -> None:
        counters = [counter_of_lane(route, priority) for priority in range(9, -1, -1)]
        self.counters: list[Argument] = [*counters, f"{PAUSED}{route}"]
        """What every claim names: the lanes' counters, 9 first, and the pause."""
        self.heads: dict[int, int] = {}
        """Partition → due of the first message in its lanes."""
        self.buckets: dict[int, list[tuple[int, Near]]] = {}
        """Partition → (earliest due, bucket), the nearest ones."""
        self._all_asked = NEVER
        self._news = 0
        """The earliest due that was put since, wherever it is."""

    def heard(self, due: int) -> None:
        self._news = min(due, self._news)

    def worth_asking(self, order: Sequence[int], now: int) -> Sequence[int]:
        """In this order those that have something due, unless others may have."""
        if not 0 <= now - self._all_asked < ALL_MS or self._news <= now:
            return order
        due = [p for p in order if self._next(p) <= now]
        return due if 0 < len(due) <= len(order) // 2 else order

    def asking_all(self) -> None:
        """What is put from now on may come too late to be seen; what was known is old."""
        self._all_asked, self._news = NEVER, NEVER
        self.heads.clear()
        self.buckets.clear()

    def all_asked(self, now: int) -> None:
        """Every partition has told what it has."""
        self._all_asked = now

    def next_due(self) -> int | None:
        """A lower bound: a bucket's earliest may have been cancelled or moved since."""
        buckets = chain.from_iterable(self.buckets.values())
        return min([*self.heads.values(), *(earliest for earliest, _ in buckets)], default=None)

    def next_head(self) -> int | None:
        return min(self.heads.values(), default=None)

    def _next(self, partition: int) -> int:
        """0 where nothing is known."""
        buckets = self.buckets.get(partition)
        if buckets is None:
            return 0
        return min([self.heads.get(partition, NEVER), *(earliest for earliest, _ in buckets)])
