"""Candidates of a search: entries of every index, each with how far it is complete."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from penstock.model.state import State
from penstock.redis_kit.connect import Argument
from penstock.redis_kit.runner import Group, Plan
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.keys import Bucket, PartitionKeys, parse_member, read_entry
from penstock.stores.redis.messages.records import STATES, state_and_due
from penstock.stores.redis.search.figures import PEEK, Overview
from penstock.stores.redis.search.key_index import listed_by_key
from penstock.stores.redis.session import Session

_WINDOW = Script("stores/redis/search/window.lua")
_HEADS = Script("stores/redis/search/heads.lua")

CHUNK = 2_000
HEAD = 21
LISTED = 500
"""Most buckets read per route and partition for one page."""
FILTERED = 500
"""Entries of a lane read for one page when the filter needs the records."""


class Position(NamedTuple):
    """A point in the order of (due, id)."""

    due: int
    member: bytes


class Candidate(NamedTuple):
    due: int
    member: bytes
    partition: int


class Stretch(NamedTuple):
    """Entries after a position; complete up to `complete`, or entirely if that is None."""

    entries: list[Candidate]
    complete: Position | None = None


class Range(NamedTuple):
    """The range of a search: positions after `after` that are due before `due_to`."""

    after: Position
    due_to: int

    def holds(self, due: int, member: bytes) -> bool:
        return due < self.due_to and (due, member) > self.after


def routes_of(overview: Overview, state: State | None, route: str | None) -> Iterator[bytes]:
    """The ordered indexes of a partition that may hold matches."""
    keys = overview.keys
    if state in (None, State.SCHEDULED):
        for name, priority in overview.lanes:
            if route in (None, name):
                yield keys.lane(name, priority)
    if state in (None, State.DEAD):
        for name in overview.dead:
            if route in (None, name):
                yield keys.dead(name)


async def ordered(
    session: Session,
    found: Sequence[Overview],
    state: State | None,
    route: str | None,
    span: Range,
    limit: int,
) -> Stretch:
    """The next entries of every lane and of the dead letters."""
    groups = [
        Group(one.keys.number, keys, [len(keys)])
        for one in found
        if (keys := list(routes_of(one, state, route)))
    ]
    if not groups:
        return Stretch([])
    common: list[Argument] = [span.after.due, span.after.member, span.due_to, limit]
    replies = await session.runner.run(_WINDOW, groups, common, writes=False)
    entries: list[Candidate] = []
    complete: Position | None = None
    for group, reply in zip(groups, replies, strict=True):
        for lane in reply:
            for member, due in zip(lane[::2], lane[1::2], strict=True):
                entries.append(Candidate(int(due), member, group.partition))
            if len(lane) >= 2 * limit:
                last = Position(int(lane[-1]), lane[-2])
                complete = last if complete is None else min(complete, last)
    return Stretch(entries, complete)


class _Listed(NamedTuple):
    bucket: Bucket
    partition: int
    key: bytes


async def far(
    session: Session,
    found: Sequence[Overview],
    route: str | None,
    span: Range,
    limit: int,
    exact: int,
) -> Stretch | None:
    """The nearest buckets that together hold enough entries; None if they hold too many."""
    listed = await _list_buckets(session, found, route, span)
    lengths = await _lengths(session, listed)
    chosen, total, complete = [], 0, None
    for one, length in zip(listed, lengths, strict=True):
        begins = one.bucket.start > span.after.due
        if begins and total >= limit:
            complete = Position(one.bucket.start, b"")
            break
        total += length
        if total > exact:
            if not begins:
                return None
            complete = Position(one.bucket.start, b"")
            break
        chosen.append((one, length))
    entries = [
        Candidate(due, member, one.partition)
        for one, raw in await _read_buckets(session, chosen)
        for due, member in (read_entry(one.bucket, entry) for entry in raw)
        if span.holds(due, member)
    ]
    return Stretch(entries, complete)


async def _list_buckets(
    session: Session, found: Sequence[Overview], route: str | None, span: Range
) -> list[_Listed]:
    groups: list[Group] = []
    names: list[list[str]] = []
    for one in found:
        routes = sorted({name for name, _ in one.lanes if route in (None, name)})
        if routes:
            plan: Plan = [["ZRANGE", place, 0, LISTED - 1] for place in range(1, len(routes) + 1)]
            groups.append(Group(one.keys.number, [one.keys.index(r) for r in routes], [plan]))
            names.append(routes)
    replies = await session.runner.run(PEEK, groups, writes=False) if groups else []
    listed = []
    for group, routes, reply in zip(groups, names, replies, strict=True):
        keys = session.layout.keys(group.partition)
        for name, members in zip(routes, reply, strict=True):
            for member in members:
                priority, bucket = parse_member(member)
                if bucket.end > span.after.due and bucket.start < span.due_to:
                    key = keys.bucket(name, priority, bucket.width, bucket.start)
                    listed.append(_Listed(bucket, group.partition, key))
    return sorted(listed, key=lambda one: one.bucket.start)


async def _lengths(session: Session, listed: Sequence[_Listed]) -> list[int]:
    by_partition: dict[int, list[int]] = {}
    for i, one in enumerate(listed):
        by_partition.setdefault(one.partition, []).append(i)
    groups = [
        Group(
            partition,
            [listed[i].key for i in wanted],
            [[["LLEN", place] for place in range(1, len(wanted) + 1)]],
        )
        for partition, wanted in by_partition.items()
    ]
    replies = await session.runner.run(PEEK, groups, writes=False) if groups else []
    lengths = [0] * len(listed)
    for wanted, reply in zip(by_partition.values(), replies, strict=True):
        for i, length in zip(wanted, reply, strict=True):
            lengths[i] = length
    return lengths


async def _read_buckets(
    session: Session, chosen: Iterable[tuple[_Listed, int]]
) -> list[tuple[_Listed, list[bytes]]]:
    read = []
    for one, length in chosen:
        raw: list[bytes] = []
        for first in range(0, length, CHUNK):
            plan = [[["LRANGE", 1, first, min(first + CHUNK, length) - 1]]]
            group = Group(one.partition, (one.key,), plan)
            (part,) = await session.runner.single(PEEK, group, writes=False)
            raw += part
        read.append((one, raw))
    return read


async def leased(session: Session, found: Sequence[Overview], span: Range) -> list[Candidate]:
    """Every leased entry: at most as many as sends in flight."""
    entries: list[Candidate] = []
    for one in found:
        if not one.leased:
            continue
        cursor: bytes = b"0"
        members: list[bytes] = []
        while True:
            plan = [[["HSCAN", 1, cursor.decode(), "COUNT", CHUNK]]]
            group = Group(one.keys.number, (one.keys.leases,), plan)
            ((cursor, pairs),) = await session.runner.single(PEEK, group, writes=False)
            members += [member for member in pairs[::2] if not member.startswith(b"\0\0")]
            if cursor == b"0":
                break
        entries += await _with_dues(session, one.keys, members, None, span)
    return entries


async def settled(
    session: Session, found: Sequence[Overview], state: State | None, span: Range
) -> list[Candidate]:
    """Every entry in the lists of settled ids."""
    entries: list[Candidate] = []
    for one in found:
        for first in range(0, one.retired, CHUNK):
            plan = [[["LRANGE", 1, first, first + CHUNK - 1]]]
            group = Group(one.keys.number, (one.keys.settled,), plan)
            (raw,) = await session.runner.single(PEEK, group, writes=False)
            members = [entry[6:] for entry in raw]
            entries += await _with_dues(session, one.keys, members, state, span)
    return entries


async def of_key(session: Session, key: str, span: Range, most: int) -> list[Candidate] | None:
    """Every entry with this key, by the index; None without one, or with more than `most`."""
    listed = await listed_by_key(session, key, most)
    if listed is None:
        return None
    entries: list[Candidate] = []
    for partition, members in listed.items():
        keys = session.layout.keys(partition)
        entries += await _with_dues(session, keys, members, None, span)
    return entries


async def _with_dues(
    session: Session,
    keys: PartitionKeys,
    members: Sequence[bytes],
    state: State | None,
    span: Range,
) -> list[Candidate]:
    partition = keys.number
    entries = []
    for first in range(0, len(members), CHUNK):
        some = members[first : first + CHUNK]
        group = Group(partition, (keys.records,), [len(some)], some)
        heads = await session.runner.single(_HEADS, group, [HEAD], writes=False)
        for member, head in zip(some, heads, strict=True):
            if head is None or (state is not None and STATES[head[0]] is not state):
                continue
            _, due = state_and_due(head, None)
            if span.holds(due, member):
                entries.append(Candidate(due, member, partition))
    return entries
