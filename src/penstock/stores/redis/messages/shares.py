"""How a claim is shared out over partitions that are asked one by one, as in a cluster.

The same order as a claim on one server gives (claim.lua): 9 → 0; within a priority all that
is due if there is room, else by due when the dues are known, else equally.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

EXACT = 1024
"""Dues compared at most for exact order."""


class Due(NamedTuple):
    """What is due in one partition, by lane, 9 first."""

    numbers: Sequence[int]
    dues: Sequence[Sequence[int]]
    """Of the first of each lane; as many as were asked for."""


def told(limit: int, partitions: int) -> int:
    """How many dues of a lane are worth asking for."""
    return limit if limit * partitions <= EXACT else 0


def shares(found: Sequence[Due], limit: int) -> list[int]:
    """How many to take from each partition."""
    taken = [0] * len(found)
    left = limit
    for lane in range(10):
        numbers = [one.numbers[lane] for one in found]
        if sum(numbers) <= left:
            more = numbers
        elif told(limit, len(found)):
            more = first_by_due([one.dues[lane] for one in found], left)
        else:
            more = _equally(numbers, left)
        taken = [before + added for before, added in zip(taken, more, strict=True)]
        left -= sum(more)
        if left <= 0:
            break
    return taken


def first_by_due(dues: Sequence[Sequence[int]], left: int) -> list[int]:
    """How many of each belong to the first `left` of all."""
    first = sorted((due, i) for i, some in enumerate(dues) for due in some)[:left]
    more = [0] * len(dues)
    for _, i in first:
        more[i] += 1
    return more


def _equally(numbers: Sequence[int], left: int) -> list[int]:
    more = [0] * len(numbers)
    while left > 0 and (open_ := [i for i, n in enumerate(numbers) if more[i] < n]):
        share = max(1, left // len(open_))
        for i in open_:
            added = min(share, numbers[i] - more[i], left)
            more[i] += added
            left -= added
    return more
