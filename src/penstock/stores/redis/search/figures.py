"""Figures of a partition, from its counters: the work is bounded by the number of routes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.model.forecast import MINUTE_MS, Forecast
from penstock.model.query import RouteFigures, StoreFigures
from penstock.model.state import State
from penstock.redis_kit.runner import Group, Plan
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.keys import DEAD, LEASED, SCHEDULED, PartitionKeys, parse_member
from penstock.stores.redis.messages.lease import IndexedBucket, promote
from penstock.stores.redis.messages.records import NUMBERS
from penstock.stores.redis.session import Session

PEEK = Script("stores/redis/search/peek.lua")
ROUNDS = 8
"""Times that figures open due buckets, to count their messages."""
_COUNTED = (State.DELIVERED, State.BLOCKED, State.EXPIRED, State.CANCELLED)
BUCKETS = 1_000
"""Most buckets read per route and partition, the nearest first; the rest counts as later."""


@dataclass
class Overview:
    """One partition's counters, and the lengths of its structures."""

    keys: PartitionKeys
    lanes: dict[tuple[str, int], int] = field(default_factory=dict)
    """(route, priority) → scheduled."""
    leased: dict[str, int] = field(default_factory=dict)
    dead: dict[str, int] = field(default_factory=dict)
    settled: dict[State, int] = field(default_factory=dict)
    retired: int = 0
    """Length of the list of settled ids."""

    def learn(self, counters: dict[str, int]) -> None:
        for name, number in counters.items():
            if number <= 0:
                continue
            kind, rest = name[:1], name[1:]
            if kind == SCHEDULED:
                self.lanes[rest[1:], int(rest[0])] = number
            elif kind == LEASED:
                self.leased[rest] = number
            elif kind == DEAD:
                self.dead[rest] = number
        for state in _COUNTED:
            self.settled[state] = max(0, counters.get(str(NUMBERS[state]), 0))


async def overviews(session: Session) -> list[Overview]:
    every = session.layout.all_keys()
    plan = [[["HGETALL", 1], ["LLEN", 2]]]
    groups = [Group(keys.number, (keys.counters, keys.settled), plan) for keys in every]
    replies = await session.runner.run(PEEK, groups, writes=False)
    found = []
    for keys, (pairs, retired) in zip(every, replies, strict=True):
        overview = Overview(keys, retired=retired)
        names = (name.decode() for name in pairs[::2])
        overview.learn(dict(zip(names, map(int, pairs[1::2]), strict=True)))
        found.append(overview)
    return found


async def figures(session: Session, now: int) -> StoreFigures:
    """Counts by state and route, the overdue and the next due of each route."""
    found = await overviews(session)
    states = dict.fromkeys(State, 0)
    routes: dict[str, RouteFigures] = {}
    for one in found:
        for (route, _), number in one.lanes.items():
            routes.setdefault(route, RouteFigures()).scheduled += number
            states[State.SCHEDULED] += number
        for route, number in one.leased.items():
            routes.setdefault(route, RouteFigures()).leased += number
            states[State.LEASED] += number
        for route, number in one.dead.items():
            routes.setdefault(route, RouteFigures()).dead += number
            states[State.DEAD] += number
        for state, number in one.settled.items():
            states[state] += number
    for route, part in routes.items():
        if part.scheduled:
            await _look_ahead(session, found, route, part, now)
    return StoreFigures(routes=routes, states=states)


async def _look_ahead(
    session: Session, found: list[Overview], route: str, part: RouteFigures, now: int
) -> None:
    for _ in range(ROUNDS):
        part.overdue, heads, buckets = await _read_route(session, found, route, now)
        part.next_due = min([*heads, *(earliest for earliest, _ in buckets)], default=None)
        due = [bucket for earliest, bucket in buckets if earliest <= now]
        if not due:
            return
        await promote(session, route, due, now)


async def _read_route(
    session: Session, found: list[Overview], route: str, now: int
) -> tuple[int, list[int], list[tuple[int, IndexedBucket]]]:
    """(overdue in the lanes, dues of their heads, the nearest buckets by earliest due)."""
    groups = []
    for one in found:
        lanes = [priority for name, priority in one.lanes if name == route]
        if not lanes:
            continue
        commands: list[list[object]] = [["ZRANGE", 1, 0, 3, "WITHSCORES"]]
        for place in range(2, len(lanes) + 2):
            commands.append(["ZCOUNT", place, "-inf", now])
            commands.append(["ZRANGE", place, 0, 0, "WITHSCORES"])
        used = [one.keys.index(route), *(one.keys.lane(route, p) for p in lanes)]
        groups.append(Group(one.keys.number, used, [commands]))
    overdue = 0
    heads: list[int] = []
    buckets: list[tuple[int, IndexedBucket]] = []
    replies = await session.runner.run(PEEK, groups, writes=False) if groups else []
    for group, (far, *lane_replies) in zip(groups, replies, strict=True):
        for member, earliest in zip(far[::2], far[1::2], strict=True):
            buckets.append((int(earliest), IndexedBucket(group.partition, member)))
        overdue += sum(lane_replies[::2])
        heads += [int(head[1]) for head in lane_replies[1::2] if head]
    return overdue, heads, buckets


async def forecast(session: Session, now: int) -> Forecast:
    found = await overviews(session)
    result = Forecast(now=now)
    held: Counter[str] = Counter()
    for one in found:
        for (route, _), number in one.lanes.items():
            held[route] += number
    await _add_lanes(session, found, result)
    await _add_buckets(session, found, result)
    for route, number in held.items():
        counted = sum(hour[route] for hour in result.hours) + result.later[route]
        if counted != number:
            result.exact = False
            result.later[route] = max(0, result.later[route] + number - counted)
    return result


async def _add_lanes(session: Session, found: Sequence[Overview], result: Forecast) -> None:
    edges = [
        result.first_minute + minute * MINUTE_MS
        for minute in range(1, session.widths.near // MINUTE_MS + 3)
    ]
    spans = list(zip(["-inf", *edges], [*(f"({edge}" for edge in edges), "+inf"], strict=True))
    groups: list[Group] = []
    for one in found:
        if one.lanes:
            plan: Plan = [
                ["ZCOUNT", place, start, end]
                for place in range(1, len(one.lanes) + 1)
                for start, end in spans
            ]
            keys = [one.keys.lane(route, priority) for route, priority in one.lanes]
            groups.append(Group(one.keys.number, keys, [plan]))
    replies = await session.runner.run(PEEK, groups, writes=False) if groups else []
    for one, reply in zip([one for one in found if one.lanes], replies, strict=True):
        for place, (route, _) in enumerate(one.lanes):
            numbers = reply[place * len(spans) : (place + 1) * len(spans)]
            for due, number in zip([result.now, *edges], numbers, strict=True):
                result.add(route, due, number)


async def _add_buckets(session: Session, found: Sequence[Overview], result: Forecast) -> None:
    for one in found:
        routes = sorted({route for route, _ in one.lanes})
        if not routes:
            continue
        plan: Plan = [
            ["ZRANGE", place, 0, BUCKETS - 1, "WITHSCORES"] for place in range(1, len(routes) + 1)
        ]
        group = Group(one.keys.number, [one.keys.index(route) for route in routes], [plan])
        listed = await session.runner.single(PEEK, group, writes=False)
        for route, members in zip(routes, listed, strict=True):
            await _add_route(session, one, route, members, result)


async def _add_route(
    session: Session, one: Overview, route: str, members: Sequence[bytes], result: Forecast
) -> None:
    buckets = [parse_member(member) for member in members[::2]]
    if not buckets:
        return
    keys = [one.keys.bucket(route, priority, b.width, b.start) for priority, b in buckets]
    plan: Plan = [["LLEN", place] for place in range(1, len(keys) + 1)]
    lengths = await session.runner.single(PEEK, Group(one.keys.number, keys, [plan]), writes=False)
    for (_, bucket), earliest, length in zip(buckets, members[1::2], lengths, strict=True):
        if length:
            result.spread(route, max(bucket.start, int(earliest)), bucket.end, length)
