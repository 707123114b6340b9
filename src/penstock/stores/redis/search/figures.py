"""What a partition holds, read off its counters: bounded by the number of routes."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model.query import RouteFigures, StoreFigures
from penstock.model.state import State
from penstock.redis_kit.runner import Group
from penstock.redis_kit.scripts import Script
from penstock.stores.redis.keys import DEAD, LEASED, SCHEDULED, PartitionKeys
from penstock.stores.redis.messages.promote import Near, promote
from penstock.stores.redis.messages.records import NUMBERS
from penstock.stores.redis.session import Session

PEEK = Script("stores/redis/search/peek.lua")

ROUNDS = 8
"""Times figures open buckets that are due, to count what is in them."""
_COUNTED = (State.DELIVERED, State.BLOCKED, State.EXPIRED, State.CANCELLED)


@dataclass
class Overview:
    """One partition's counters, structures and their lengths."""

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
) -> tuple[int, list[int], list[tuple[int, Near]]]:
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
    buckets: list[tuple[int, Near]] = []
    replies = await session.runner.run(PEEK, groups, writes=False) if groups else []
    for group, (far, *lane_replies) in zip(groups, replies, strict=True):
        for member, earliest in zip(far[::2], far[1::2], strict=True):
            buckets.append((int(earliest), Near(group.partition, member)))
        overdue += sum(lane_replies[::2])
        heads += [int(head[1]) for head in lane_replies[1::2] if head]
    return overdue, heads, buckets
